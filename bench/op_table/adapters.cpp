#include "autograd/adapter_functions.h"
#include "bench/op_table/op_table.h"
#include "ops/dense/copy.h"

namespace frugal::op_table {
namespace {

Case low_rank(const std::string& name, const Shape& x, int64_t out, int64_t rank,
              const LowRankOptions& options) {
  Shape y = x;
  y[y.dim() - 1] = out;
  return {.name = name,
          .inputs = {{y}, {x}, {{rank, x.back()}, true}, {{out, rank}, true}},
          .run = [options](
                     const Variables& v) { return add_low_rank(v[0], v[1], v[2], v[3], options); },
          .saved = elements({x.numel(), x.numel() / x.back() * rank})};
}

Case magnitude(const std::string& name, const Shape& y, bool bias) {
  const int64_t out = y.back();
  Case c{name, {{y}, {{out}, true, 0.5, 2}}, {}, {}};
  if (bias) c.inputs.push_back({{out}, true});
  c.run = [bias, out](const Variables& v) {
    const auto of = [&](const Variable& parameter) {
      std::vector<float> lengths;
      for (int64_t i = 0; i < out; ++i) lengths.push_back(0.5F + 0.25F * static_cast<float>(i));
      return beside(parameter, ops::cast(Tensor::from(lengths, {out}), parameter.dtype()));
    };
    return scale_to_magnitude(v[0], v[1], of(v[1]), bias ? v[2] : Variable());
  };
  c.saved = elements({y.numel(), out});
  return c;
}

}  // namespace

void add_adapters(std::vector<Op>& rows) {
  const LowRankOptions plain, scaled{.scale = 0.5},
      dropped{.scale = 2, .dropout = 0.4, .key = {7, 3}};
  rows.push_back(
      {.name = "add_low_rank",
       .cases = {low_rank("rank 3", {5, 7}, 4, 3, plain),
                 low_rank("scaled, three axes", {2, 3, 4}, 5, 2, scaled),
                 low_rank("dropout", {6, 5}, 3, 2, dropped),
                 low_rank("no rows", {0, 4}, 3, 2, scaled)},
       .failures = {{[] {
                       add_low_rank(leaf({2, 4}), leaf({2, 3}), leaf({2, 5}), leaf({4, 2}));
                     },
                     "[add_low_rank] expected x [..., 5]"},
                    {[] {
                       add_low_rank(leaf({2, 4}), leaf({2, 5}), leaf({2, 5}), leaf({4, 3}));
                     },
                     "[add_low_rank] expected b of shape [4, 2]"},
                    {[] {
                       add_low_rank(leaf({2, 3}), leaf({2, 5}), leaf({2, 5}), leaf({4, 2}));
                     },
                     "[add_low_rank] expected y of shape [2, 4]"}},
       .bench = low_rank("512 x 1024, rank 16", {512, 1024}, 1024, 16, scaled)});
  rows.push_back({.name = "scale_to_magnitude",
                  .cases = {magnitude("no bias", {5, 4}, false),
                            magnitude("bias, three axes", {2, 3, 4}, true),
                            magnitude("no rows", {0, 3}, true)},
                  .failures = {{[] {
                                  scale_to_magnitude(leaf({2, 4}), leaf({3}), f32({4}));
                                },
                                "[scale_to_magnitude] expected magnitude of shape [4]"},
                               {[] {
                                  scale_to_magnitude(leaf({2, 4}), leaf({4}), f32({3}));
                                },
                                "[scale_to_magnitude] expected norm of shape [4]"}},
                  .bench = magnitude("512 x 1024", {512, 1024}, true)});
}

}  // namespace frugal::op_table

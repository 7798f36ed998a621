#include "autograd/functions.h"
#include "autograd/volume_functions.h"
#include "bench/op_table/op_table.h"
#include "core/integers.h"

namespace frugal::op_table {
namespace {

Pool2dOptions pool(Pair kernel, Pair stride, Pair padding, bool count_include_pad = true) {
  return {kernel, stride, padding, count_include_pad};
}

// bits: of each element of the index that is kept.
Case max_case(const std::string& name, const Shape& shape, const Pool2dOptions& o, int64_t outputs,
              int64_t bits) {
  return one(
      name, shape, [o](const Variable& x) { return max_pool2d(x, o); },
      bytes(ceil_div(outputs * bits, int64_t{8})));
}

Case avg_case(const std::string& name, const Shape& shape, const Pool2dOptions& o) {
  return one(name, shape, [o](const Variable& x) { return avg_pool2d(x, o); });
}

}  // namespace

void add_pool(std::vector<Op>& rows) {
  const Pool2dOptions stem = pool({3, 3}, {2, 2}, {1, 1});
  rows.push_back(
      {.name = "max_pool2d",
       .cases = {max_case("2x2", {2, 4, 6, 3}, pool({2, 2}, {2, 2}, {0, 0}), 2 * 2 * 3 * 3, 2),
                 max_case("overlapping, padded", {2, 5, 6, 3}, stem, 2 * 3 * 3 * 3, 4),
                 max_case("a window of 20 cells", {1, 5, 6, 3}, pool({4, 5}, {1, 1}, {0, 0}),
                          2 * 2 * 3, 8),
                 max_case("a window of 289 cells", {1, 17, 18, 2}, pool({17, 17}, {1, 1}, {0, 0}),
                          4, 32),
                 max_case("no images", {0, 4, 4, 2}, stem, 0, 4)},
       .failures = {{[] {
                       max_pool2d(leaf({1, 4, 4, 1}), pool({2, 2}, {2, 2}, {2, 2}));
                     },
                     "[max_pool2d] expected a kernel and stride of at least 1 and a padding"},
                    {[] {
                       max_pool2d(leaf({1, 1, 4, 1}), pool({2, 2}, {2, 2}, {0, 0}));
                     },
                     "[max_pool2d] expected a window within the padded image"},
                    {[] {
                       max_pool2d(leaf({4, 4, 1}), Pool2dOptions{});
                     },
                     "[max_pool2d] expected x [N, H, W, C]"}},
       .bench = max_case("imagenet stem", {4, 112, 112, 64}, stem, 4 * 56 * 56 * 64, 4)});
  rows.push_back({.name = "avg_pool2d",
                  .cases = {avg_case("2x2", {2, 4, 6, 3}, pool({2, 2}, {2, 2}, {0, 0})),
                            avg_case("padding counts", {1, 5, 6, 2}, stem),
                            avg_case("padding does not count", {1, 5, 6, 2},
                                     pool({3, 3}, {2, 2}, {1, 1}, false))},
                  .bench = avg_case("56x56x64", {4, 56, 56, 64}, pool({2, 2}, {2, 2}, {0, 0}))});
  auto adaptive = [](const Variable& x) { return adaptive_avg_pool2d(x, 2, 3); };
  rows.push_back({.name = "adaptive_avg_pool2d",
                  .cases = {one("uneven windows", {2, 5, 7, 3}, adaptive)},
                  .failures = {{[] {
                                  adaptive_avg_pool2d(leaf({1, 2, 2, 1}), 0, 1);
                                },
                                "[adaptive_avg_pool2d] expected an image and an output"}},
                  .bench = one("56x56x64", {4, 56, 56, 64}, adaptive)});
  const auto most = [](int64_t h, int64_t w) {
    return [=](const Variable& x) { return adaptive_max_pool2d(x, h, w); };
  };
  const auto bytes = [](int64_t count) {
    return [=](int64_t) { return std::vector<int64_t>{count}; };
  };
  rows.push_back({.name = "adaptive_max_pool2d",
                  .cases = {one("uneven windows", {2, 5, 7, 3}, most(2, 3), bytes(2 * 2 * 3 * 3)),
                            one("a larger output", {1, 2, 3, 2}, most(4, 4), bytes(4 * 4 * 2)),
                            one("a window of 289 cells", {1, 17, 17, 2}, most(1, 1), bytes(2 * 4)),
                            one("no images", {0, 4, 4, 2}, most(2, 2), bytes(0))},
                  .failures = {{[] {
                                  adaptive_max_pool2d(leaf({1, 2, 2, 1}), 0, 1);
                                },
                                "[adaptive_max_pool2d] expected an image and an output"},
                               {[] {
                                  adaptive_max_pool2d(leaf({2, 2, 1}), 1, 1);
                                },
                                "[adaptive_max_pool2d] expected x with 4 axes"}},
                  .bench = one("56x56x64", {4, 56, 56, 64}, most(7, 7), bytes(4 * 7 * 7 * 64))});
  auto global = [](const Variable& x) { return global_avg_pool2d(x); };
  rows.push_back({.name = "global_avg_pool2d",
                  .cases = {one("images", {3, 4, 5, 2}, global)},
                  .failures = {{[] {
                                  global_avg_pool2d(leaf({2, 3}));
                                },
                                "expected x with 4 axes"}},
                  .bench = one("8x8x64", {128, 8, 8, 64}, global)});
  const auto to = [](int64_t h, int64_t w, Interpolation mode, bool align_corners = false) {
    return [=](const Variable& x) { return interpolate(x, h, w, {mode, align_corners}); };
  };
  constexpr auto kNearest = Interpolation::nearest, kBilinear = Interpolation::bilinear;
  rows.push_back(
      {.name = "interpolate",
       .cases = {one("nearest, twice as large", {2, 3, 4, 3}, to(6, 8, kNearest)),
                 one("nearest, uneven", {1, 5, 3, 2}, to(3, 7, kNearest)),
                 one("bilinear, twice as large", {2, 3, 4, 4}, to(6, 8, kBilinear)),
                 one("bilinear, uneven", {1, 5, 3, 2}, to(7, 2, kBilinear)),
                 one("bilinear, corners aligned", {1, 4, 3, 2}, to(7, 5, kBilinear, true)),
                 one("one pixel", {1, 1, 1, 2}, to(3, 2, kBilinear, true)),
                 one("no images", {0, 4, 4, 2}, to(8, 8, kBilinear))},
       .failures = {{[] {
                       interpolate(leaf({1, 2, 2, 1}), 0, 1);
                     },
                     "[interpolate] expected an image and an output of at least 1x1"},
                    {[] {
                       interpolate(leaf({2, 2, 1}), 4, 4);
                     },
                     "expected x with 4 axes"}},
       .bench = one("28x28x64 to 56x56", {4, 28, 28, 64}, to(56, 56, kBilinear))});
}

}  // namespace frugal::op_table

#include "autograd/functions.h"
#include "autograd/segmentation_functions.h"
#include "bench/op_table/op_table.h"

namespace frugal::op_table {
namespace {

using Function = Variable (*)(const Variable&);
using Function2 = Variable (*)(const Variable&, const Variable&);
const Shape kMany{1 << 22};

Case unary(const std::string& name, const Shape& shape, std::function<Variable(const Variable&)> f,
           Saved saved, double lo = -2, double hi = 2) {
  return {.name = name,
          .inputs = {{shape, false, lo, hi}},
          .run = [f](const Variables& v) { return f(v[0]); },
          .saved = std::move(saved)};
}

// A smooth function that keeps one tensor of its size.
Op keeps_one(const std::string& name, std::function<Variable(const Variable&)> f, double lo = -2,
             double hi = 2) {
  Op op{.name = name,
        .cases = {unary("odd", {3, 5}, f, elements({15}), lo, hi),
                  unary("scalar", {}, f, elements({1}), lo, hi),
                  unary("empty", {0, 3}, f, elements({0}), lo, hi)},
        .bench = unary("4 Mi elements", kMany, f, elements({kMany.numel()}), lo, hi)};
  return op;
}

Op keeps_none(const std::string& name, std::function<Variable(const Variable&)> f) {
  return {.name = name,
          .cases = {unary("odd", {3, 5}, f, nothing()), unary("empty", {0}, f, nothing())},
          .bench = unary("4 Mi elements", kMany, f, nothing())};
}

Op keeps_mask(const std::string& name, std::function<Variable(const Variable&)> f) {
  auto mask = [](int64_t n) {
    return [n](int64_t) { return std::vector<int64_t>{mask_bytes(n)}; };
  };
  return {
      .name = name,
      .cases = {unary("rows by eight", {2, 4, 5}, f, mask(40)), unary("odd", {3, 5}, f, mask(15)),
                unary("one", {1}, f, mask(1)), unary("empty", {0, 2}, f, mask(0))},
      .bench = unary("4 Mi elements", {1 << 16, 64}, f, mask(1 << 22))};
}

Case pair(const std::string& name, const Shape& a, const Shape& b, Function2 f, Saved saved) {
  return {.name = name,
          .inputs = {{a, false, 0.5, 2}, {b, false, 0.5, 2}},
          .run = [f](const Variables& v) { return f(v[0], v[1]); },
          .saved = std::move(saved)};
}

Op binary(const std::string& name, Function2 f, bool saves) {
  auto saved = [saves](int64_t a, int64_t b) { return saves ? elements({a, b}) : nothing(); };
  return {.name = name,
          .cases = {pair("same shape", {3, 4}, {3, 4}, f, saved(12, 12)),
                    pair("trailing axis", {2, 3, 4}, {4}, f, saved(24, 4)),
                    pair("both broadcast", {3, 1}, {1, 4}, f, saved(3, 4)),
                    pair("scalar", {3, 4}, {}, f, saved(12, 1)),
                    pair("empty", {0, 3}, {3}, f, saved(0, 3))},
          .failures = {{[f] {
                          f(leaf({2, 3}), leaf({2, 4}));
                        },
                        "expected shapes that broadcast together"},
                       {[f] { f(leaf({2}), Variable(Tensor::zeros({2}, DType::f64))); },
                        "expected tensors of one dtype and device"},
                       {[f] { f(leaf({2}), Variable(Tensor::zeros({2}, DType::i64))); },
                        "expected b of dtype f32, f64 or bf16"}},
          .bench = pair("4 Mi elements", kMany, kMany, f, saved(kMany.numel(), kMany.numel()))};
}

}  // namespace

void add_elementwise(std::vector<Op>& rows) {
  rows.push_back(binary("add", add, false));
  rows.push_back(binary("sub", sub, false));
  rows.push_back(binary("mul", mul, true));
  rows.push_back(binary("div", div, true));
  rows.back().other_form = true;
  rows.push_back(keeps_none("scale", [](const Variable& x) { return scale(x, -1.5); }));
  rows.push_back(keeps_none("add_scalar", [](const Variable& x) { return add_scalar(x, 2); }));
  rows.push_back(keeps_none("neg", neg));
  rows.push_back(keeps_one("exp", exp));
  for (const Op& op : {keeps_one("log", log, 0.5, 3), keeps_one("sqrt", sqrt, 0.5, 3),
                       keeps_one("sigmoid", sigmoid), keeps_one("tanh", tanh)}) {
    rows.push_back(op);
    rows.back().other_form = true;
  }
  rows.push_back(keeps_one("gelu", [](const Variable& x) { return gelu(x); }));
  rows.back().bias = kSmooth;
  rows.back().cases.push_back(unary(
      "tanh form", {3, 5}, [](const Variable& x) { return gelu(x, Gelu::tanh); }, elements({15})));
  rows.push_back(keeps_one("silu", silu));
  rows.back().bias = kSmooth;
  rows.push_back(keeps_mask("relu", relu));
  rows.push_back(keeps_mask("leaky_relu", [](const Variable& x) { return leaky_relu(x, 0.2); }));
  rows.push_back(keeps_mask("clamp", [](const Variable& x) { return clamp(x, -0.5, 1); }));
  rows.back().failures = {{[] { clamp(leaf({2}), 1, 0); }, "[clamp] expected bounds in order"}};
  rows.push_back(keeps_none("dropout", [](const Variable& x) { return dropout(x, 0.4, {7, 3}); }));
  rows.back().failures = {
      {[] { dropout(leaf({2}), 1.5, {}); }, "[dropout] expected a probability in [0, 1]"}};
  const auto channels = [](const Variable& x) { return dropout2d(x, 0.4, {7, 3}); };
  rows.push_back(
      {.name = "dropout2d",
       .cases = {unary("images", {3, 2, 2, 4}, channels, nothing()),
                 unary("rows", {5, 3}, channels, nothing()),
                 unary("no images", {0, 2, 2, 4}, channels, nothing())},
       .failures = {{[] {
                       dropout2d(leaf({2, 2}), 1.5, {});
                     },
                     "[dropout2d] expected a probability in [0, 1], got 1.5"},
                    {[] { dropout2d(leaf({2}), 0.5, {}); }, "[dropout2d] expected x [N, ..., C]"}},
       .bench = unary("56x56x64", {16, 56, 56, 64}, channels, nothing())});
}

}  // namespace frugal::op_table

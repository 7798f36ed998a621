#include "autograd/functions.h"
#include "bench/op_table/op_table.h"

namespace frugal::op_table {
void add_shape(std::vector<Op>& rows) {
  const Shape large{1 << 16, 64};
  auto folded = [](const Variable& x) { return reshape(x, {4, -1}); };
  rows.push_back({.name = "reshape",
                  .cases = {one("inferred extent", {2, 6, 3}, folded)},
                  .failures = {{[] {
                                  reshape(leaf({2, 3}), {4, 2});
                                },
                                "expected"}},
                  .bench = one("view", large, folded)});
  auto swapped = [](const Variable& x) { return transpose(x, 0, -1); };
  rows.push_back({.name = "transpose",
                  .cases = {one("outer axes", {2, 3, 4}, swapped)},
                  .failures = {{[] {
                                  transpose(leaf({2, 3}), 0, 2);
                                },
                                "expected an axis in [-2, 2)"}},
                  .bench = one("view", large, swapped)});
  auto middle = [](const Variable& x) { return slice(x, 1, 1, 3); };
  rows.push_back(
      {.name = "slice",
       .cases = {one("middle", {2, 4, 3}, middle),
                 one("nothing", {2, 3}, [](const Variable& x) { return slice(x, 0, 1, 1); })},
       .failures = {{[] {
                       slice(leaf({2, 3}), 1, 2, 4);
                     },
                     "[slice] expected 0 <= begin <= end <= 3"}},
       .bench = one("view", large, middle)});
  auto joined = [](const Variables& v) { return concat(v, 1); };
  rows.push_back({.name = "concat",
                  .cases = {{"three", {{{2, 1, 3}}, {{2, 2, 3}}, {{2, 3, 3}}}, joined, nothing()}},
                  .failures = {{[] {
                                  concat({leaf({2, 3}), leaf({3, 3})}, 1);
                                },
                                "expected"},
                               {[] { concat({}, 0); }, "expected"}},
                  .bench = {"two", {{large}, {large}}, joined, nothing()}});
  auto padded = [](const Variable& x) { return pad(x, {{1, 0}, {0, 2}}, 0.5); };
  rows.push_back({.name = "pad",
                  .cases = {one("uneven", {2, 3}, padded)},
                  .failures = {{[] {
                                  pad(leaf({2, 3}), {{1, 1}});
                                },
                                "expected"},
                               {[] {
                                  pad(leaf({2}), {{-1, 0}});
                                },
                                "expected"}},
                  .bench = one("rows", large, padded)});
  Case same = one("to f64 and back", {3, 4}, [](const Variable& x) {
    return cast(cast(x, x.dtype() == DType::f64 ? DType::f32 : DType::f64), x.dtype());
  });
  same.smooth = false;  // f64 goes through f32
  rows.push_back(
      {.name = "cast", .cases = {same}, .bench = one("to bf16", large, [](const Variable& x) {
                                          return cast(x, DType::bf16);
                                        })});
  auto shortcut = [](const Variable& x) { return subsample_pad(x, 2, 1, 3); };
  rows.push_back({.name = "subsample_pad",
                  .cases = {one("odd image", {2, 5, 4, 3}, shortcut)},
                  .failures = {{[] {
                                  subsample_pad(leaf({1, 2, 2, 1}), 0, 0, 0);
                                },
                                "[subsample_pad] expected a stride"}},
                  .bench = one("32x32x16", {128, 32, 32, 16}, shortcut)});
}

}  // namespace frugal::op_table

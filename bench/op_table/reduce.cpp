#include "autograd/functions.h"
#include "bench/op_table/op_table.h"

namespace frugal::op_table {
void add_reduce(std::vector<Op>& rows) {
  rows.push_back(
      {.name = "sum",
       .cases = {one("all", {3, 4}, [](const Variable& x) { return sum(x); }),
                 one("first axis", {3, 4}, [](const Variable& x) { return sum(x, {0}); }),
                 one("inner axes kept", {2, 3, 4},
                     [](const Variable& x) {
                       return sum(x, {1, -1}, true);
                     }),
                 one("nothing", {0, 4}, [](const Variable& x) { return sum(x, {0}); })},
       .failures = {{[] {
                       sum(leaf({2, 3}), {2});
                     },
                     "expected an axis in [-2, 2)"},
                    {[] {
                       sum(leaf({2, 3}), {0, 0});
                     },
                     "axis"}},
       .bench = one("rows", {1 << 16, 64}, [](const Variable& x) { return sum(x, {0}); })});
  rows.push_back(
      {.name = "mean",
       .cases = {one("all", {3, 4}, [](const Variable& x) { return mean(x); }),
                 one("middle axis", {2, 3, 4}, [](const Variable& x) { return mean(x, {1}); })},
       .failures = {{[] {
                       mean(leaf({0, 3}));
                     },
                     "mean"}},
       .bench = one("rows", {1 << 16, 64}, [](const Variable& x) { return mean(x, {0}); })});
  rows.push_back(
      {.name = "max",
       .cases = {one(
                     "last axis", {3, 5}, [](const Variable& x) { return max(x, -1); }, bytes(3)),
                 one(
                     "first axis kept", {4, 2, 3},
                     [](const Variable& x) { return max(x, 0, true); }, bytes(6))},
       .failures = {{[] {
                       max(leaf({2, 0}), 1);
                     },
                     "max"}},
       .bench = one(
           "rows", {1 << 16, 64}, [](const Variable& x) { return max(x, -1); }, bytes(1 << 16))});
}

}  // namespace frugal::op_table

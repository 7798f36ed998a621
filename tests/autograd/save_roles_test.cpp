#include <doctest/doctest.h>

#include "autograd/engine.h"
#include "autograd/record.h"
#include "ops/dense/copy.h"

namespace frugal {

TEST_CASE("a slice takes its rows of an exact tensor, and all of a whole one") {
  const Variable x = Variable::parameter(Tensor::zeros({4, 2}));
  const Tensor each = Tensor::from<float>({1, 2, 3, 4}, {4}),
               all = Tensor::from<float>({5, 6}, {2});
  int seen = 0;
  const Variable y = record("scaled", {x}, ops::clone(x.value()),
                            {save_exact(each), save_whole(all)}, [&seen](const Backward& b) {
                              CHECK(b.slot(0).role() == Role::exact);
                              CHECK(b.slot(1).role() == Role::whole);
                              CHECK(b.has_rows(0, 1, 4));
                              CHECK(b.has_rows(1, 1, 4));
                              const auto part = b.saved_rows(0, 1, 3, 4).to_vector();
                              CHECK(part == std::vector<double>{2, 3});
                              const auto whole = b.saved_rows(1, 1, 3, 4).to_vector();
                              CHECK(whole == std::vector<double>{5, 6});
                              ++seen;
                              return Grads{b.dy()};
                            });
  backward(y, Tensor::zeros({4, 2}));
  CHECK(seen == 1);
}

}  // namespace frugal

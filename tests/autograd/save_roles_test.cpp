#include <doctest/doctest.h>

#include "autograd/engine.h"
#include "autograd/record.h"
#include "ops/dense/copy.h"
#include "tests/autograd/copy_codec.h"
#include "tests/autograd/pack_all.h"

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

TEST_CASE("backward that reads what was not saved is an error that names the op") {
  const auto message = [](const BackwardFn& backward_of, std::vector<Save> saves) {
    const Variable x = Variable::parameter(Tensor::zeros({4, 2}));
    const Variable y = record("own", {x}, ops::clone(x.value()), saves, backward_of);
    try {
      backward(y, Tensor::zeros({4, 2}));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const auto says = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  says(message([](const Backward& b) { return Grads{b.saved(0)}; }, {}),
       "[own] expected a slot below 0, since the op saves 0 tensors, got saved(0)");
  const Save one = save_exact(Tensor::zeros({4, 2}));
  says(message([](const Backward& b) { return Grads{b.saved(1)}; }, {one}), "[own]");
  says(message([](const Backward& b) { return Grads{b.saved(-1)}; }, {one}), "got saved(-1)");
  says(message([](const Backward& b) { return Grads{b.saved_rows(1, 0, 1, 4)}; }, {one}), "[own]");
  says(message([](const Backward& b) { return b.keeps(1) ? Grads{b.dy()} : Grads{}; }, {one}),
       "[own]");
  says(message([](const Backward& b) { return b.needs(1) ? Grads{b.dy()} : Grads{}; }, {}),
       "expected one of the op's 1 inputs");
  says(message([](const Backward& b) { return Grads{b.partial(2)}; }, {}), "got input 2");
}

TEST_CASE("an op may save a tensor that it made on the way, and codes may carry it") {
  const CopyCodec codec;
  PackAll policy(&codec);
  const PolicyScope scope(&policy);
  const Variable x = Variable::parameter(Tensor::full({64, 2}, 3));
  const Tensor middle = Tensor::full({64, 2}, 2), marks = Tensor::full({64}, 1, DType::i64);
  const Variable y = record("own", {x}, ops::clone(x.value()),
                            {save(middle), save(marks), save(Tensor())}, [](const Backward& b) {
                              CHECK(b.slot(0).role() == Role::activation);
                              CHECK_FALSE(b.slot(0).is_raw());
                              CHECK(b.slot(1).role() == Role::exact);
                              CHECK_FALSE(b.keeps(2));
                              CHECK_FALSE(b.saved(2).defined());
                              return Grads{b.saved(0)};
                            });
  backward(y, Tensor::zeros({64, 2}));
  CHECK(x.grad().to_vector() == middle.to_vector());
}

}  // namespace frugal

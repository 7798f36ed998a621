// What a BackwardObserver is shown.
#include "autograd/observer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "ops/optimizer/sgd.h"

namespace frugal {
namespace {

Tensor waves(const Shape& shape, double rate) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::sin(rate * static_cast<double>(i + 1)));
  return Tensor::from(values, shape);
}

struct Seen {
  std::string op;
  std::vector<uint64_t> rests_on;
  Use use;
  Shape dy;
  double weight = 0;  // squared norm of the gradient of input 1
};

class Watcher final : public BackwardObserver {
 public:
  void before(const BackwardStep& step, const Tensor& dy) override {
    Seen& seen = steps.emplace_back();
    seen.op = step.op;
    seen.dy = dy.shape();
    if (step.slots.size() == 0) return;
    seen.rests_on = step.slots[0].rests_on();
    seen.use = step.slots[0].use();
  }
  void after(const BackwardStep& step, const Grads& gradients) override {
    CHECK(step.op == steps.back().op);  // in pairs
    if (gradients.size() < 2 || !gradients[1].defined()) return;
    CHECK(gradients[1].is_whole());
    steps.back().weight = ops::sum_of_squares(gradients[1].rows(0, gradients[1].shape()[0]));
  }
  std::vector<Seen> steps;
};

// Keeps what cannot be rebuilt.
class Recipes final : public SavePolicy {
 public:
  Decision decide(const SaveInfo& info, const Tensor&) override {
    return {info.rebuilt == Rebuilt::none ? Decision::raw : Decision::rebuild};
  }
};

}  // namespace

TEST_CASE("an observer is shown each op's gradients and what its slots rest on") {
  Variable w1 = Variable::parameter(waves({8, 3, 3, 3}, 0.7));
  Variable w2 = Variable::parameter(waves({4, 3, 3, 8}, 0.9));
  const Variable gamma = Variable::parameter(waves({8}, 1.1));
  const Variable beta = Variable::parameter(waves({8}, 1.3));
  Recipes policy;
  Watcher watcher;
  begin_step(0);
  {
    PolicyScope scope(&policy);
    Conv2dOptions same, half;
    same.padding = half.padding = {1, 1};
    half.stride = {2, 2};
    const Variable h = batch_norm_relu(conv2d(Variable(waves({2, 6, 6, 3}, 0.3)), w1, {}, same),
                                       gamma, beta, {}, {});
    const Variable y = conv2d(h, w2, {}, half);
    backward(y, waves(y.shape(), 0.4), {}, &watcher);
  }
  REQUIRE(watcher.steps.size() == 3);
  const Seen &second = watcher.steps[0], &norm = watcher.steps[1], &first = watcher.steps[2];
  CHECK(second.op == "conv2d");
  CHECK(second.dy == Shape{2, 3, 3, 4});
  CHECK(second.rests_on == std::vector<uint64_t>{1});  // its input is rebuilt from the norm's
  CHECK(second.use.kind == Use::Kind::product);
  CHECK(second.use.input == 1);
  CHECK(second.use.gain == doctest::Approx(9.0 / 4));
  CHECK(second.use.fan == 72);
  CHECK(second.weight == doctest::Approx(ops::sum_of_squares(w2.grad())));
  CHECK(norm.op == "batch_norm_relu");
  CHECK(norm.use.kind == Use::Kind::normalized);
  CHECK(norm.rests_on == std::vector<uint64_t>{1});
  CHECK(norm.weight == doctest::Approx(ops::sum_of_squares(gamma.grad())));
  CHECK(first.rests_on == std::vector<uint64_t>{0});
  CHECK(first.use.gain == 9);
  CHECK(first.use.fan == 27);
  CHECK(first.weight == doctest::Approx(ops::sum_of_squares(w1.grad())));
}

}  // namespace frugal

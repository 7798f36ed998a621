#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "optim/clip.h"
#include "optim/schedule.h"
#include "optim/sgd.h"

using namespace frugal;
using namespace frugal::optim;

namespace {

Variable parameter(double value, double gradient) {
  Variable p = Variable::parameter(Tensor::full({3}, value, DType::f64));
  p.set_grad(Tensor::full({3}, gradient, DType::f64));
  return p;
}

// Three steps of one scalar, written out.
double reference(const SgdOptions& o, double decay, double lr, int steps, double p, double g) {
  double v = 0;
  for (int i = 0; i < steps; ++i) {
    const double total = g + decay * p;
    v = i == 0 ? total : o.momentum * v + total;
    p -= lr * (o.nesterov ? total + o.momentum * v : (o.momentum != 0 ? v : total));
  }
  return p;
}

}  // namespace

TEST_CASE("SGD follows its formula with and without momentum, Nesterov and decay") {
  for (const SgdOptions options :
       {SgdOptions{0, false}, SgdOptions{0.9, false}, SgdOptions{0.9, true}})
    for (double decay : {0.0, 0.1}) {
      Variable p = parameter(2, 0.5);
      Sgd sgd({{{{"p", p}}, 0.5, decay}}, options);
      const uint64_t version = p.value().storage()->version();
      for (int i = 0; i < 3; ++i) sgd.step(0.2);
      CHECK(p.value().item(1) ==
            doctest::Approx(reference(options, decay, 0.1, 3, 2, 0.5)).epsilon(1e-12));
      CHECK(p.value().storage()->version() == version + 3);
    }
}

TEST_CASE("parameters without a gradient are left alone") {
  Variable p = parameter(1, 1);
  p.zero_grad();
  Sgd sgd({{{{"p", p}}, 1, 0.1}}, {});
  sgd.step(1);
  CHECK(p.value().item() == 1);
  CHECK(sgd.state().empty());
}

TEST_CASE("the optimizer's state goes on where it was") {
  Variable a = parameter(2, 0.5), b = parameter(2, 0.5);
  Sgd first({{{{"p", a}}, 1, 0}}, {}), second({{{{"p", b}}, 1, 0}}, {});
  first.step(0.1);
  second.step(0.1);
  Sgd resumed({{{{"p", b}}, 1, 0}}, {});
  resumed.load_state(second.state());
  CHECK(resumed.state().front().first == "momentum/p");
  CHECK(resumed.state().front().second.storage()->category() == Category::optimizer);
  first.step(0.1);
  resumed.step(0.1);
  CHECK(a.value().to_vector() == b.value().to_vector());
  CHECK_THROWS_WITH_AS(resumed.load_state({{"momentum/q", Tensor::zeros({3}, DType::f64)}}),
                       doctest::Contains("unexpected entry 'momentum/q'"), Error);
  CHECK_THROWS_AS(resumed.load_state({{"momentum/p", Tensor::zeros({4}, DType::f64)}}), Error);
  CHECK(resumed.state().size() == 1);
}

TEST_CASE("SGD refuses impossible options") {
  CHECK_THROWS_AS(Sgd({}, {1.0, false}), Error);
  CHECK_THROWS_AS(Sgd({}, {0.0, true}), Error);
  CHECK_THROWS_AS(Sgd({{{}, 1, -1}}, {}), Error);
}

TEST_CASE("norms and biases can go without decay") {
  const std::vector<std::pair<std::string, Variable>> all = {
      {"weight", Variable::parameter(Tensor::zeros({2, 2}))},
      {"bias", Variable::parameter(Tensor::zeros({2}))}};
  const auto split = decay_groups(all, 0.1, false), together = decay_groups(all, 0.1, true);
  CHECK(split[0].parameters.size() == 1);
  CHECK(split[0].weight_decay == 0.1);
  CHECK(split[1].parameters.front().first == "bias");
  CHECK(split[1].weight_decay == 0);
  CHECK(together[0].parameters.size() == 2);
}

TEST_CASE("schedules meet their closed forms") {
  CHECK(constant_schedule(0.3)->lr(1000) == 0.3);
  const auto step = step_schedule(1, {10, 20}, 0.1);
  CHECK(step->lr(9) == 1);
  CHECK(step->lr(10) == doctest::Approx(0.1));
  CHECK(step->lr(20) == doctest::Approx(0.01));
  const auto cosine = cosine_schedule(1, 0.2, 100);
  CHECK(cosine->lr(0) == doctest::Approx(1));
  CHECK(cosine->lr(50) == doctest::Approx(0.6));
  CHECK(cosine->lr(25) == doctest::Approx(0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2));
  CHECK(cosine->lr(1000) == doctest::Approx(0.2));
  const auto warm = warmup(cosine, 4);
  CHECK(warm->lr(0) == doctest::Approx(0.25));
  CHECK(warm->lr(3) == doctest::Approx(1));
  CHECK(warm->lr(54) == doctest::Approx(0.6));
  OneCycleOptions options;
  options.max_lr = 1;
  options.total = 100;
  const auto cycle = one_cycle_schedule(options);
  CHECK(cycle->lr(0) == doctest::Approx(0.04));
  CHECK(cycle->lr(29) == doctest::Approx(1));
  CHECK(cycle->lr(99) == doctest::Approx(4e-6));
  CHECK(cycle->lr(64) == doctest::Approx((1 + 4e-6) / 2));
  for (int64_t i = 1; i < 100; ++i) CHECK((cycle->lr(i) > cycle->lr(i - 1)) == (i <= 29));
}

TEST_CASE("linear decay and the inverse root meet their closed forms, also behind a warm-up") {
  const auto linear = warmup(linear_schedule(1, 0.2, 10), 5);
  CHECK(linear->lr(0) == doctest::Approx(0.2));
  CHECK(linear->lr(4) == doctest::Approx(1));
  CHECK(linear->lr(5) == doctest::Approx(1));
  CHECK(linear->lr(10) == doctest::Approx(0.6));
  CHECK(linear->lr(15) == doctest::Approx(0.2));
  CHECK(linear->lr(100) == doctest::Approx(0.2));
  const auto root = warmup(inverse_sqrt_schedule(0.5, 100), 100);
  CHECK(root->lr(49) == doctest::Approx(0.25));
  CHECK(root->lr(100) == doctest::Approx(0.5));
  // Step t of the paper, warm-up included: peak sqrt(100 / t).
  CHECK(root->lr(400) == doctest::Approx(0.25));
  CHECK_THROWS_AS(linear_schedule(1, 2, 10), Error);
  CHECK_THROWS_AS(linear_schedule(1, 0, 0), Error);
  CHECK_THROWS_AS(inverse_sqrt_schedule(1, 0), Error);
  CHECK_THROWS_AS(inverse_sqrt_schedule(-1, 10), Error);
}

TEST_CASE("schedules refuse impossible options") {
  CHECK_THROWS_AS(constant_schedule(-1), Error);
  CHECK_THROWS_AS(step_schedule(1, {5, 5}, 0.1), Error);
  CHECK_THROWS_AS(step_schedule(1, {}, 0), Error);
  CHECK_THROWS_AS(cosine_schedule(1, 2, 10), Error);
  CHECK_THROWS_AS(cosine_schedule(1, 0, 0), Error);
  CHECK_THROWS_AS(warmup(constant_schedule(1), -1), Error);
  CHECK_THROWS_AS(one_cycle_schedule({1, 10, 2}), Error);
}

TEST_CASE(
    "clipping by norm scales, by value limits, and a norm that is not finite changes nothing") {
  Variable p = parameter(0, 3), q = parameter(0, -4);
  CHECK(clip_grad_norm({p, q}, 1) == doctest::Approx(std::sqrt(75.0)));
  CHECK(grad_norm({p, q}) == doctest::Approx(1).epsilon(1e-6));
  CHECK(p.grad().item() / q.grad().item() == doctest::Approx(-0.75));
  Variable r = parameter(0, 3);
  CHECK(clip_grad_norm({r}, 100) == doctest::Approx(std::sqrt(27.0)));
  CHECK(r.grad().item() == 3);
  clip_grad_value({r}, 2);
  CHECK(r.grad().item() == 2);
  r.set_grad(Tensor::full({3}, std::numeric_limits<double>::infinity(), DType::f64));
  CHECK(std::isinf(clip_grad_norm({r}, 1)));
  CHECK(std::isinf(r.grad().item()));
  CHECK_THROWS_AS(clip_grad_norm({r}, 0), Error);
  CHECK_THROWS_AS(clip_grad_value({r}, -1), Error);
}

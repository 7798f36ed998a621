#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "optim/averaged.h"
#include "optim/clip.h"
#include "optim/optimizers.h"
#include "optim/schedule.h"

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

TEST_CASE("SGD's state is its momentum, which a schedule may begin and a restart goes on with") {
  Variable a = parameter(2, 0.5), b = parameter(2, 0.5);
  Sgd whole({{{{"p", a}}, 1, 0}}, {.momentum = 0}), first({{{{"p", b}}, 1, 0}}, {.momentum = 0});
  const auto step = [](Sgd& sgd, double momentum) {
    if (momentum > 0) sgd.set_momentum(momentum);
    sgd.step(0.1);
  };
  for (Sgd* sgd : {&whole, &first}) {
    step(*sgd, 0);
    CHECK(sgd->state().empty());
    step(*sgd, 0.9);
  }
  CHECK(first.state().size() == 1);
  // The optimizer is made with its own momentum, and the schedule sets another one later.
  Sgd resumed({{{{"p", b}}, 1, 0}}, {.momentum = 0});
  resumed.load_state(first.state());
  step(whole, 0.8);
  step(resumed, 0.8);
  CHECK(a.value().to_vector() == b.value().to_vector());
  CHECK(whole.state()[0].second.to_vector() == resumed.state()[0].second.to_vector());
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
  // Both milestones lie in the warm-up, whose rates are lower from each of them on.
  ScheduleOptions early;
  early.name = "step";
  early.milestones = {8, 11};
  early.gamma = 0.1;
  early.warmup_steps = 1000;
  const auto passed = make_schedule(early, 1, 4, 2000);
  CHECK(passed->lr(31) == doctest::Approx(0.032));
  CHECK(passed->lr(32) == doctest::Approx(0.0033));
  CHECK(passed->lr(44) == doctest::Approx(0.00045));
  CHECK(passed->lr(499) == doctest::Approx(0.005));
  CHECK(passed->lr(1000) == doctest::Approx(0.01));
  // A milestone behind the warm-up, which begins at a share of the rate.
  early.milestones = {1, 3};
  early.warmup_steps = 4;
  early.warmup_start = 0.5;
  const auto started = make_schedule(early, 1, 2, 8);
  const double rates[] = {0.5, 0.625, 0.075, 0.0875, 0.1, 0.1, 0.01, 0.01};
  for (int64_t i = 0; i < 8; ++i) CHECK(started->lr(i) == doctest::Approx(rates[i]));
  ScheduleOptions at_once;  // milestones within the first step
  at_once.name = "step";
  at_once.milestones = {0.01, 0.04};
  const auto first = make_schedule(at_once, 1, 10, 100);
  CHECK(first->lr(0) == 1);
  CHECK(first->lr(1) == doctest::Approx(at_once.gamma * at_once.gamma));
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
  CHECK(cycle->lr(99) == doctest::Approx(4e-6).scale(0));
  CHECK(cycle->lr(64) == doctest::Approx((1 + 4e-6) / 2));
  for (int64_t i = 1; i < 100; ++i) CHECK((cycle->lr(i) > cycle->lr(i - 1)) == (i <= 29));
}

// PyTorch 1.13: OneCycleLR(max_lr=0.4, total_steps=20, pct_start=0.3, base_momentum=0.8,
// max_momentum=0.95), with nine decimals.
TEST_CASE("one_cycle gives PyTorch's rates and momenta, in two phases and in three") {
  struct Phases {
    bool three;
    std::vector<std::pair<double, double>> steps;
  };
  const std::vector<std::pair<double, double>> rise = {{0.016, 0.95},
                                                       {0.052668737, 0.935676275},
                                                       {0.148668737, 0.898176275},
                                                       {0.267331263, 0.851823725},
                                                       {0.363331263, 0.814323725},
                                                       {0.4, 0.8}};
  const std::vector<std::pair<double, double>> two = {
      {0.394985602, 0.801880407}, {0.380193853, 0.807427335},
      {0.356366471, 0.816362639}, {0.324698262, 0.828238265},
      {0.286777201, 0.84245872},  {0.244504809, 0.85831093},
      {0.2000008, 0.875},         {0.155496791, 0.89168907},
      {0.113224399, 0.90754128},  {0.075303338, 0.921761735},
      {0.043635129, 0.933637361}, {0.019807747, 0.942572665},
      {0.005015998, 0.948119593}, {1.6e-06, 0.95}};
  const std::vector<std::pair<double, double>> three = {{0.363331263, 0.814323725},
                                                        {0.267331263, 0.851823725},
                                                        {0.148668737, 0.898176275},
                                                        {0.052668737, 0.935676275},
                                                        {0.016, 0.95},
                                                        {0.015517589, 0.95},
                                                        {0.014128543, 0.95},
                                                        {0.0120004, 0.95},
                                                        {0.009389847, 0.95},
                                                        {0.006611753, 0.95},
                                                        {0.0040012, 0.95},
                                                        {0.001873057, 0.95},
                                                        {0.000484011, 0.95},
                                                        {1.6e-06, 0.95}};
  for (const bool in_three : {false, true}) {
    OneCycleOptions options;
    options.max_lr = 0.4;
    options.total = 20;
    options.three_phase = in_three;
    CHECK_FALSE(one_cycle_schedule(options)->momentum(3));
    options.momentum = {0.8, 0.95};
    const auto cycle = one_cycle_schedule(options);
    std::vector<std::pair<double, double>> expected = rise;
    for (const auto& step : in_three ? three : two) expected.push_back(step);
    for (size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      const auto step = static_cast<int64_t>(i);
      CHECK(std::abs(cycle->lr(step) - expected[i].first) < 1e-9);
      CHECK(std::abs(*cycle->momentum(step) - expected[i].second) < 1e-9);
    }
    CHECK(cycle->lr(100) == cycle->lr(19));
  }
  OneCycleOptions wrong{1, 10, 0.6};
  wrong.three_phase = true;
  CHECK_THROWS_WITH_AS(one_cycle_schedule(wrong), doctest::Contains("at most 0.5"), Error);
  wrong = {1, 10, 0.3};
  wrong.momentum = {0.9, 0.8};
  CHECK_THROWS_WITH_AS(one_cycle_schedule(wrong), doctest::Contains("the lowest first"), Error);
}

TEST_CASE("warm-up may start at 0 or at a share of the rate") {
  const auto from_zero = warmup(constant_schedule(0.1), 4, 0.0);
  CHECK(from_zero->lr(0) == 0);
  CHECK(from_zero->lr(1) == doctest::Approx(0.025));
  CHECK(from_zero->lr(4) == 0.1);
  // PyTorch: LinearLR(start_factor=0.25, total_iters=4)
  const auto quarter = warmup(constant_schedule(0.1), 4, 0.25);
  const std::vector<double> rates = {0.025, 0.04375, 0.0625, 0.08125, 0.1, 0.1};
  for (size_t i = 0; i < rates.size(); ++i)
    CHECK(quarter->lr(static_cast<int64_t>(i)) == doctest::Approx(rates[i]));
  CHECK_THROWS_WITH_AS(warmup(constant_schedule(1), 4, 1.5), doctest::Contains("in [0, 1]"), Error);
}

// PyTorch 1.13 in f64: OneCycleLR(max_lr=0.1, total_steps=6, pct_start=0.5) with AdamW without
// decay and with SGD, of the sum of (w - (0.5, 1))^2 from w = (1, -2).
TEST_CASE("optimizers follow a momentum that a schedule cycles") {
  OneCycleOptions options{0.1, 6, 0.5};
  options.momentum = OneCycleOptions::Momentum();
  const auto schedule = one_cycle_schedule(options);
  const auto trained = [&](const std::function<std::unique_ptr<Optimizer>(Variable)>& make) {
    Variable w = Variable::parameter(Tensor::from<double>({1, -2}, {2}));
    const auto optimizer = make(w);
    for (int64_t step = 0; step < 6; ++step) {
      const std::vector<double> now = w.value().to_vector();
      w.set_grad(Tensor::from<double>({2 * (now[0] - 0.5), 2 * (now[1] - 1)}, {2}));
      optimizer->set_momentum(*schedule->momentum(step));
      optimizer->step(schedule->lr(step));
      w.zero_grad();
    }
    return w.value().to_vector();
  };
  const auto groups = [](const Variable& w) { return std::vector<ParameterGroup>{{{{"w", w}}}}; };
  const auto adam = trained([&](const Variable& w) { return std::make_unique<Adam>(groups(w)); });
  CHECK(std::abs(adam[0] - 0.792690639299) < 1e-11);
  CHECK(std::abs(adam[1] + 1.788320693246) < 1e-11);
  const auto sgd = trained([&](const Variable& w) { return std::make_unique<Sgd>(groups(w)); });
  CHECK(std::abs(sgd[0] - 0.421251356267) < 1e-11);
  CHECK(std::abs(sgd[1] - 1.472491862396) < 1e-11);
  // An average around an optimizer passes the momentum on.
  const auto averaged = trained([&](const Variable& w) {
    return std::make_unique<Averaged>(std::make_unique<Sgd>(groups(w)),
                                      std::vector<std::pair<std::string, Variable>>{{"w", w}},
                                      EmaOptions());
  });
  CHECK(averaged == sgd);
  Adafactor without(groups(Variable::parameter(Tensor::zeros({2}))));
  CHECK_THROWS_WITH_AS(without.set_momentum(0.9), doctest::Contains("with a momentum"), Error);
  Sgd plain(groups(Variable::parameter(Tensor::zeros({2}))));
  CHECK_THROWS_WITH_AS(plain.set_momentum(1), doctest::Contains("(0, 1)"), Error);
}

TEST_CASE("linear decay and the inverse root meet their closed forms, also behind a warm-up") {
  const auto linear = warmup(linear_schedule(1, 0.2, 10), 5);
  CHECK(linear->lr(0) == doctest::Approx(0.2));
  CHECK(linear->lr(4) == doctest::Approx(1));
  CHECK(linear->lr(5) == doctest::Approx(1));
  CHECK(linear->lr(10) == doctest::Approx(0.6));
  CHECK(linear->lr(15) == doctest::Approx(0.2));
  CHECK(linear->lr(100) == doctest::Approx(0.2));
  // The paper's step t begins with 1, and its rates are width^-0.5 min(t^-0.5, t warm^-1.5).
  constexpr double kWidth = 512, kWarm = 100;
  const double highest = 1 / std::sqrt(kWidth * kWarm);
  const auto root = inverse_sqrt_schedule(highest, 100);
  for (const int64_t step : {0, 1, 49, 98, 99, 100, 101, 399, 100'000}) {
    const auto t = static_cast<double>(step + 1);
    const double wanted = std::min(1 / std::sqrt(t), t * std::pow(kWarm, -1.5)) / std::sqrt(kWidth);
    CHECK(root->lr(step) == doctest::Approx(wanted).epsilon(1e-12));
  }
  ScheduleOptions named{.name = "inverse_sqrt", .warmup_steps = 60, .warmup_epochs = 4};
  CHECK(make_schedule(named, highest, 10, 1000)->lr(100) == root->lr(100));
  // With a start, the highest rate comes a step later, as in warmup().
  const auto started = inverse_sqrt_schedule(0.5, 100, 0.2);
  CHECK(started->lr(0) == doctest::Approx(0.1));
  CHECK(started->lr(50) == doctest::Approx(0.3));
  CHECK(started->lr(100) == doctest::Approx(0.5));
  CHECK(started->lr(400) == doctest::Approx(0.25));
  // Without a warm-up the first rate is the highest.
  CHECK(inverse_sqrt_schedule(0.5, 0)->lr(0) == doctest::Approx(0.5));
  CHECK(inverse_sqrt_schedule(0.5, 0)->lr(3) == doctest::Approx(0.25));
  CHECK_THROWS_AS(linear_schedule(1, 2, 10), Error);
  CHECK_THROWS_AS(linear_schedule(1, 0, 0), Error);
  CHECK_THROWS_AS(inverse_sqrt_schedule(1, -1), Error);
  CHECK_THROWS_AS(inverse_sqrt_schedule(1, 10, 2), Error);
  CHECK_THROWS_AS(inverse_sqrt_schedule(-1, 10), Error);
}

TEST_CASE("schedules refuse impossible options") {
  CHECK_THROWS_AS(constant_schedule(-1), Error);
  CHECK_THROWS_AS(step_schedule(1, {6, 5}, 0.1), Error);
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

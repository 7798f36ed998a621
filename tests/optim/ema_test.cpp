#include "optim/averaged.h"

#include "ops/optimizer/adam.h"
#include "optim/optimizers.h"
#include "tests/optim/samples.h"

namespace frugal::optim {
namespace {

Variable scalar(double value) { return Variable::parameter(Tensor::full({2}, value, DType::f64)); }

}  // namespace

TEST_CASE("EMA averages with a constant decay, and with one that warms up") {
  for (const bool warm_up : {false, true}) {
    Variable p = scalar(1);
    Ema ema({{"p", p}}, {0.5, warm_up});
    double expected = 1;
    for (int t = 0; t < 12; ++t) {
      p.value().mut<double>()[1] = t;
      ema.update();
      const double decay = warm_up ? std::min(0.5, (1.0 + t) / (10.0 + t)) : 0.5;
      expected = decay * expected + (1 - decay) * t;
      CHECK(ema.average(0).item(1) == doctest::Approx(expected).epsilon(1e-12));
    }
    CHECK(ema.average(0).item(0) == doctest::Approx(1));
    CHECK(ema.updates() == 12);
    CHECK(ema.average(0).storage()->category() == Category::optimizer);
  }
}

TEST_CASE("EMA: averages are swapped in and out, also past an exception") {
  Variable p = scalar(1), q = scalar(2);
  Ema ema({{"p", p}, {"q", q}}, {0.5, false});
  p.value().mut<double>()[0] = 3;
  ema.update();
  const Tensor before = p.value();
  {
    const Ema::Swap swap(ema);
    CHECK(p.value().item() == 2);
    CHECK(q.value().item() == 2);
    CHECK_THROWS_WITH_AS(ema.update(), doctest::Contains("[ema] expected no update"), Error);
    CHECK_THROWS_WITH_AS(ema.load_state(ema.state()), doctest::Contains("no loading"), Error);
    CHECK_THROWS_WITH_AS([&] { const Ema::Swap again(ema); }(),
                         doctest::Contains("one swap at a time"), Error);
    CHECK(p.value().item() == 2);
  }
  CHECK(p.value().storage() == before.storage());
  CHECK(p.value().item() == 3);
  try {
    const Ema::Swap swap(ema);
    throw Error("evaluation failed");
  } catch (const Error&) {
  }
  CHECK(p.value().item() == 3);
  ema.update();
  CHECK(ema.average(0).item() == 2.5);
}

TEST_CASE("EMA: a variable with two names gets its own value back") {
  Variable p = scalar(1);
  Ema ema({{"p", p}, {"tied", p}}, {});
  const Tensor before = p.value();
  { const Ema::Swap swap(ema); }
  CHECK(p.value().storage() == before.storage());
}

TEST_CASE("EMA: its state goes on where it was, and one that does not fit changes nothing") {
  Variable p = Variable::parameter(normals({5}, 1, DType::f32));
  Ema ema({{"p", p}}, {0.9, true});
  const auto advance = [&](Ema& e, int first, int last) {
    for (int t = first; t < last; ++t) {
      p.set_value(normals({5}, 10 + static_cast<uint64_t>(t), DType::f32));
      e.update();
    }
    return e.average(0).to_vector();
  };
  advance(ema, 0, 3);
  Ema resumed({{"p", p}}, {0.9, true});
  resumed.load_state(ema.state());
  CHECK(resumed.updates() == 3);
  CHECK(resumed.average(0).storage()->id() != ema.average(0).storage()->id());
  CHECK(advance(ema, 3, 6) == advance(resumed, 3, 6));

  const std::vector<double> kept = ema.average(0).to_vector();
  const Tensor count = Tensor::from<int64_t>({1}, {}), five = Tensor::zeros({5});
  const auto refused = [&](const Ema::NamedTensors& state, const char* message) {
    CHECK_THROWS_WITH_AS(ema.load_state(state), doctest::Contains(message), Error);
  };
  refused({}, "expected a state with 'ema_updates'");
  refused({{"ema_updates", count}}, "expected a state with 'ema/p'");
  refused({{"ema_updates", count}, {"ema/p", Tensor::zeros({4})}}, "'ema/p' to be [5] f32");
  refused({{"ema_updates", count}, {"ema/p", five}, {"ema/q", five}}, "unexpected entry 'ema/q'");
  refused({{"ema_updates", Tensor::from<int64_t>({-1}, {})}, {"ema/p", five}}, "at least 0");
  CHECK(ema.average(0).to_vector() == kept);
  CHECK(ema.updates() == 6);
}

TEST_CASE("EMA refuses impossible options and tensors") {
  CHECK_THROWS_WITH_AS(Ema({}, {1.0, true}), doctest::Contains("decay in [0, 1), got 1"), Error);
  CHECK_THROWS_WITH_AS(Ema({}, {-0.1, true}), doctest::Contains("decay"), Error);
  CHECK_THROWS_WITH_AS(ops::average_into({{Tensor::zeros({2}), Tensor::zeros({3})}}, 0.5),
                       doctest::Contains("[average] expected the value of shape [2]"), Error);
}

TEST_CASE("an averaged optimizer steps as its own does, and both states come back or neither") {
  const auto parameter = [] {
    return std::vector<std::pair<std::string, Variable>>{
        {"w", Variable::parameter(Tensor::from<float>({1, 2}, {2}))}};
  };
  const auto make = [](const std::vector<std::pair<std::string, Variable>>& named) {
    return Averaged(std::make_unique<Sgd>(decay_groups(named, 0, true), SgdOptions{}), named,
                    {0.5, false});
  };
  const auto step = [](Averaged& optimizer, Variable w) {
    w.set_grad(Tensor::from<float>({1, -1}, {2}));
    optimizer.step(1);
  };
  const auto one = parameter();
  Averaged first = make(one);
  step(first, one[0].second);
  CHECK(one[0].second.value().to_vector() == std::vector<double>{0, 3});
  CHECK(first.averages()->average(0).to_vector() == std::vector<double>{0.5, 2.5});

  auto two = parameter();
  Averaged second = make(two);
  auto state = first.state();
  second.load_state(state);
  two[0].second.set_value(Tensor::from<float>({0, 3}, {2}));
  step(first, one[0].second);
  step(second, two[0].second);
  CHECK(two[0].second.value().to_vector() == one[0].second.value().to_vector());
  CHECK(second.averages()->average(0).to_vector() == first.averages()->average(0).to_vector());

  // The average of another parameter: nothing is taken over, of the momentum either.
  for (auto& [name, tensor] : state)
    if (name == "ema/w") name = "ema/v";
  const auto before = second.state();
  CHECK_THROWS_AS(second.load_state(state), Error);
  const auto after = second.state();
  REQUIRE(after.size() == before.size());
  for (size_t i = 0; i < after.size(); ++i)
    CHECK(after[i].second.to_vector() == before[i].second.to_vector());
}

TEST_CASE("a step that is taken back is not counted, of parameters with a gradient") {
  Variable p = scalar(1), q = scalar(2);
  const std::vector<std::pair<std::string, Variable>> named = {{"p", p}, {"q", q}};
  Averaged optimizer(std::make_unique<Adam>(decay_groups(named, 0, true), AdamOptions{}), named,
                     {});
  CHECK(optimizer.capturable());
  const auto counts = [&] {
    std::vector<double> list;
    for (const auto& [name, tensor] : optimizer.state())
      if (name == "ema_updates" || name.rfind("steps/", 0) == 0) list.push_back(tensor.item());
    return list;
  };
  p.set_grad(Tensor::full({2}, 1, DType::f64));
  q.set_grad(Tensor::full({2}, 1, DType::f64));
  optimizer.step(0.1);
  q.zero_grad();
  optimizer.step(0.1);
  CHECK(counts() == std::vector<double>{2, 1, 2});
  optimizer.take_back();
  CHECK(counts() == std::vector<double>{1, 1, 1});
}

}  // namespace frugal::optim

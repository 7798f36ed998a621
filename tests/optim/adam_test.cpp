
#include "ops/optimizer/adam.h"
#include "optim/optimizers.h"
#include "tests/optim/samples.h"

namespace frugal::optim {
namespace {

// Adam as the papers write it, on one element after the other.
struct AdamReference {
  AdamOptions o;
  double decay;
  std::vector<double> p, m, v;
  int t = 0;
  void step(const std::vector<double>& g, double lr) {
    ++t;
    m.resize(p.size());
    v.resize(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      double total = g[i];
      if (o.decoupled)
        p[i] -= lr * decay * p[i];
      else
        total += decay * p[i];
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * total;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * total * total;
      const double m_hat = m[i] / (1 - std::pow(o.beta1, t));
      const double v_hat = v[i] / (1 - std::pow(o.beta2, t));
      p[i] -= lr * m_hat / (std::sqrt(v_hat) + o.eps);
    }
  }
};

}  // namespace

TEST_CASE("Adam's first two steps, by hand") {
  // Without decay the first step is lr g / (|g| + eps): m and v are corrected to g and g^2.
  Variable p = Variable::parameter(Tensor::from<double>({1, -2}, {2}));
  Adam adam(group(p), {0.9, 0.999, 0.5, true});
  p.set_grad(Tensor::from<double>({0.5, -2}, {2}));
  adam.step(0.1);
  CHECK(p.value().item(0) == doctest::Approx(1 - 0.1 * 0.5 / (0.5 + 0.5)).epsilon(1e-14));
  CHECK(p.value().item(1) == doctest::Approx(-2 + 0.1 * 2 / (2 + 0.5)).epsilon(1e-14));
  // Then g = 0: m = 0.9 * 0.1 g, v = 0.999 * 0.001 g^2.
  p.set_grad(Tensor::zeros({2}, DType::f64));
  adam.step(0.1);
  const double m = 0.09 * 0.5 / 0.19, v = 0.000999 * 0.25 / (1 - 0.999 * 0.999);
  CHECK(p.value().item(0) == doctest::Approx(0.95 - 0.1 * m / (std::sqrt(v) + 0.5)).epsilon(1e-12));
}

TEST_CASE("AdamW takes the decay beside the gradient, Adam within it") {
  for (const bool decoupled : {true, false}) {
    Variable p = Variable::parameter(Tensor::full({1}, 4, DType::f64));
    p.set_grad(Tensor::zeros({1}, DType::f64));
    Adam adam(group(p, 0.25, 0.5), {0.9, 0.999, 1e-8, decoupled});
    adam.step(0.2);  // lr_scale 0.5: at 0.1
    CHECK(p.value().item() == doctest::Approx(decoupled ? 4 - 0.1 * 0.25 * 4 : 4 - 0.1));
  }
}

TEST_CASE("Adam and AdamW follow a plain reference over 20 steps, in both dtypes") {
  for (const DType dtype : {DType::f64, DType::f32})
    for (const bool decoupled : {true, false})
      for (const int64_t n : {1, 37, 1000}) {
        CAPTURE(n);
        Variable p = Variable::parameter(normals({n}, 1, dtype));
        const AdamOptions options{0.9, 0.98, 1e-6, decoupled};
        Adam adam(group(p, 0.1), options);
        AdamReference reference{options, 0.1, p.value().to_vector(), {}, {}};
        CHECK(error_of_steps(adam, p, reference) < (dtype == DType::f32 ? 1e-6 : 1e-13));
      }
}

TEST_CASE("Adam: steps are counted for each parameter, and leaves can be updated alone") {
  Variable a = Variable::parameter(Tensor::zeros({3}, DType::f64));
  Variable b = Variable::parameter(Tensor::zeros({3}, DType::f64));
  Adam adam({{{{"a", a}, {"b", b}}, 1, 0}}, {});
  CHECK(adam.state().empty());
  a.set_grad(Tensor::full({3}, 2, DType::f64));
  adam.step(0.1);
  CHECK(adam.state().size() == 3);
  b.set_grad(Tensor::full({3}, -5, DType::f64));
  CHECK(adam.step_leaf(*b.accumulator(), 0.1));
  // Its first step, so of the full rate.
  CHECK(b.value().item() == doctest::Approx(0.1));
  CHECK(a.value().item() == doctest::Approx(-0.1));
  CHECK_FALSE(adam.step_leaf(*Variable::parameter(Tensor::zeros({1})).accumulator(), 0.1));
  CHECK(adam.state()[0].first == "steps/a");
  CHECK(adam.state()[3].second.item() == 1);
}

TEST_CASE("Adam: the same bits for every thread count, and for any place in memory") {
  const int64_t n = 70001;
  std::vector<double> expected;
  for (const int threads : {1, 2, 3}) {
    const Threads scope(threads);
    Variable p = Variable::parameter(normals({n}, 1, DType::f32));
    Adam adam(group(p, 0.01), {});
    const std::vector<double> got = run_steps(adam, p, 0, 2, 0.01);
    if (threads == 1) expected = got;
    CHECK(got == expected);
  }
  // The last elements alone: their vectors begin elsewhere.
  Variable p = Variable::parameter(ops::clone(normals({n}, 1, DType::f32).slice(0, n - 5, n)));
  Adam adam(group(p, 0.01), {});
  for (int t = 0; t < 2; ++t) {
    p.set_grad(normals({n}, 100 + static_cast<uint64_t>(t), DType::f32).slice(0, n - 5, n));
    adam.step(0.01);
  }
  CHECK(p.value().to_vector() == std::vector<double>(expected.end() - 5, expected.end()));
}

TEST_CASE("Adam: resuming equals no interruption, and the state takes the bytes it says") {
  const int64_t n = 1000, before = optimizer_bytes();
  Variable p = Variable::parameter(normals({n}, 1, DType::f32));
  Adam adam(group(p, 0.01), {});
  run_steps(adam, p, 0, 3, 0.01);
  CHECK(optimizer_bytes() - before == 2 * (4 * n + 32));  // rounded up to 64
  Variable q = Variable::parameter(ops::clone(p.value()));
  Adam resumed(group(q, 0.01), {});
  resumed.load_state(adam.state());
  for (const auto& [name, tensor] : resumed.state())
    CHECK(tensor.storage()->category() == Category::optimizer);
  CHECK(run_steps(adam, p, 3, 6, 0.01) == run_steps(resumed, q, 3, 6, 0.01));
}

TEST_CASE("Adam: a state that does not fit changes nothing") {
  Variable p = Variable::parameter(normals({4}, 1, DType::f32));
  Adam adam(group(p), {});
  run_steps(adam, p, 0, 2, 0.1);
  const Optimizer::NamedTensors good = adam.state();
  const auto steps = [](int64_t t) { return Tensor::from<int64_t>({t}, {}); };
  const Tensor four = Tensor::zeros({4}), five = Tensor::zeros({5});
  const auto refused = [&](const Optimizer::NamedTensors& state, const char* message) {
    CHECK_THROWS_WITH_AS(adam.load_state(state), doctest::Contains(message), Error);
  };
  refused({{"m/q", four}}, "unexpected entry 'm/q'");
  refused({{"m/p", four}}, "unexpected entry 'm/p'");
  refused({{"steps/p", steps(1)}, {"m/p", four}}, "expected a state with 'v/p'");
  refused({{"steps/p", steps(1)}, {"m/p", four}, {"v/p", five}}, "'v/p' to be [4] f32");
  refused({{"steps/p", steps(0)}, {"m/p", four}, {"v/p", four}}, "at least 1, got 0");
  refused({{"steps/p", Tensor::zeros({})}, {"m/p", four}, {"v/p", four}}, "'steps/p' to be [] i64");
  const Optimizer::NamedTensors after = adam.state();
  REQUIRE(after.size() == good.size());
  for (size_t i = 0; i < good.size(); ++i)
    CHECK(after[i].second.to_vector() == good[i].second.to_vector());
  adam.load_state({});
  CHECK(adam.state().empty());
}

TEST_CASE("Adam on meta plans its bytes") {
  const int64_t before = optimizer_bytes(kMeta);
  Variable p = Variable::parameter(Tensor::empty({1024}, DType::f32, kMeta));
  p.set_grad(Tensor::empty({1024}, DType::f32, kMeta));
  Adam adam(group(p), {});
  adam.step(0.1);
  CHECK(optimizer_bytes(kMeta) - before == 8 * 1024);
}

TEST_CASE("Adam refuses impossible options and tensors") {
  CHECK_THROWS_WITH_AS(Adam({}, {1.0, 0.999, 1e-8, true}),
                       doctest::Contains("[adam] expected betas in [0, 1), got 1"), Error);
  CHECK_THROWS_WITH_AS(Adam({}, {0.9, -0.1, 1e-8, true}), doctest::Contains("betas"), Error);
  for (const double eps : {0.0, 1e-300})  // both are 0 in f32
    CHECK_THROWS_WITH_AS(Adam({}, {0.9, 0.999, eps, true}),
                         doctest::Contains("an eps of at least 1e-30, got "), Error);
  Variable p = Variable::parameter(Tensor::zeros({2})), q = Variable::parameter(Tensor::zeros({2}));
  CHECK_THROWS_WITH_AS(Adam(group(p, -1), {}), doctest::Contains("weight decay"), Error);
  CHECK_THROWS_WITH_AS(Adam({{{{"p", p}, {"p", q}}, 1, 0}}, {}),
                       doctest::Contains("expected one parameter 'p', got two"), Error);
  CHECK_THROWS_WITH_AS(Adam({{{{"p", p}, {"q", p}}, 1, 0}}, {}),
                       doctest::Contains("expected each parameter once, got 'q' again"), Error);
  const Tensor two = Tensor::zeros({2}), three = Tensor::zeros({3});
  CHECK_THROWS_WITH_AS(ops::adam_steps({{two, three, two, two, {}}}),
                       doctest::Contains("[adam] expected the gradient of shape [2]"), Error);
  CHECK_THROWS_WITH_AS(ops::adam_steps({{two, two, two, Tensor::zeros({2}, DType::f64), {}}}),
                       doctest::Contains("one dtype"), Error);
  ops::AdamStep zeroth;
  zeroth.step = 0;
  CHECK_THROWS_WITH_AS(
      ops::adam_steps({{two, two, Tensor::zeros({2}), Tensor::zeros({2}), zeroth}}),
      doctest::Contains("a step of at least 1, got 0"), Error);
}

}  // namespace frugal::optim

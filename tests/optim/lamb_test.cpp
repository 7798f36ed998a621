
#include <limits>

#include "ops/optimizer/adam.h"
#include "optim/optimizers.h"
#include "tests/optim/samples.h"

namespace frugal::optim {
namespace {

struct LambReference {
  LambOptions o;
  double decay;
  bool adapt;
  std::vector<double> p, m, v;
  int t = 0;
  void step(const std::vector<double>& g, double lr) {
    ++t;
    m.resize(p.size());
    v.resize(p.size());
    std::vector<double> u(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g[i];
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g[i] * g[i];
      u[i] = m[i] / (1 - std::pow(o.beta1, t)) /
                 (std::sqrt(v[i] / (1 - std::pow(o.beta2, t))) + o.eps) +
             decay * p[i];
    }
    const double ratio = adapt && norm(p) > 0 && norm(u) > 0 ? norm(p) / norm(u) : 1;
    for (size_t i = 0; i < p.size(); ++i) p[i] -= lr * ratio * u[i];
  }
};

}  // namespace

TEST_CASE("LAMB's first step moves a parameter by the rate times its norm, by hand") {
  // u = g / (|g| + eps) with eps far below |g|: signs. |p| = 5, |u| = sqrt 2.
  Variable p = Variable::parameter(Tensor::from<double>({3, -4}, {2}));
  p.set_grad(Tensor::from<double>({10, 20}, {2}));
  LambOptions options;
  options.adapt_one_dimensional = true;
  Lamb lamb(group(p), options);
  lamb.step(0.01);
  CHECK(p.value().item(0) == doctest::Approx(3 - 0.01 * 5 / std::sqrt(2.0)).epsilon(1e-6));
  CHECK(p.value().item(1) == doctest::Approx(-4 - 0.01 * 5 / std::sqrt(2.0)).epsilon(1e-6));
}

TEST_CASE("LAMB follows a plain reference over 20 steps") {
  for (const DType dtype : {DType::f64, DType::f32})
    for (const double decay : {0.0, 0.1})
      for (const bool always : {false, true})
        for (const Shape& shape : {Shape{3}, Shape{10007}, Shape{101, 7}}) {
          CAPTURE(shape.str());
          CAPTURE(decay);
          Variable p = Variable::parameter(normals(shape, 1, dtype));
          LambOptions options;
          options.adapt_one_dimensional = always;
          Lamb lamb(group(p, decay), options);
          const bool adapt = always || shape.dim() > 1;
          LambReference reference{options, decay, adapt, p.value().to_vector(), {}, {}};
          CHECK(error_of_steps(lamb, p, reference) < (dtype == DType::f32 ? 2e-6 : 1e-12));
        }
}

TEST_CASE("LAMB without weight decay: a matrix is scaled by its norm, a vector is Adam's") {
  for (const Shape& shape : {Shape{12}, Shape{4, 3}}) {
    Variable p = Variable::parameter(normals(shape, 1, DType::f64));
    Variable q = Variable::parameter(ops::clone(p.value()));
    Lamb lamb(group(p), {});
    Adam adam(group(q), {});
    const std::vector<double> scaled = run_steps(lamb, p, 0, 3, 0.01);
    const std::vector<double> plain = run_steps(adam, q, 0, 3, 0.01);
    double apart = 0;
    for (size_t i = 0; i < scaled.size(); ++i)
      apart = std::max(apart, std::abs(scaled[i] - plain[i]));
    if (shape.dim() == 1)
      CHECK(apart < 1e-14);
    else
      CHECK(apart > 1e-3);
  }
}

TEST_CASE("LAMB: norms that are zero or not finite give the ratio 1") {
  Variable zero = Variable::parameter(Tensor::zeros({2, 1}, DType::f64));
  zero.set_grad(Tensor::full({2, 1}, 1, DType::f64));
  Lamb lamb(group(zero, 0.1), {});
  lamb.step(0.1);
  CHECK(zero.value().item() == doctest::Approx(-0.1).epsilon(1e-5));
  // Nothing to do: |u| = 0.
  Variable still = Variable::parameter(Tensor::full({2}, 3, DType::f64));
  still.set_grad(Tensor::zeros({2}, DType::f64));
  LambOptions options;
  options.adapt_one_dimensional = true;
  Lamb other(group(still), options);
  other.step(0.1);
  CHECK(still.value().item() == 3);
  // One bad element makes no other one infinite.
  Variable p = Variable::parameter(Tensor::full({2, 1}, 1, DType::f64));
  p.set_grad(Tensor::from<double>({1, std::numeric_limits<double>::quiet_NaN()}, {2, 1}));
  Lamb third(group(p, 0.1), {});
  third.step(0.1);
  CHECK(std::isfinite(p.value().item(0)));
  CHECK(std::isnan(p.value().item(1)));
}

TEST_CASE("LAMB: the same bits for every thread count, and after a restart") {
  const int64_t n = 50001;
  std::vector<double> expected;
  for (const int threads : {1, 2, 3}) {
    const Threads scope(threads);
    Variable p = Variable::parameter(normals({1, n}, 1, DType::f32));
    Lamb lamb(group(p, 0.01), {});
    const std::vector<double> half = run_steps(lamb, p, 0, 2, 0.01);
    Variable q = Variable::parameter(ops::clone(p.value()));
    Lamb resumed(group(q, 0.01), {});
    resumed.load_state(lamb.state());
    const std::vector<double> got = run_steps(lamb, p, 2, 4, 0.01);
    CHECK(run_steps(resumed, q, 2, 4, 0.01) == got);
    CHECK(half != got);
    if (threads == 1) expected = got;
    CHECK(got == expected);
  }
}

TEST_CASE("LAMB allocates nothing of a parameter's size except its state") {
  const int64_t n = 1 << 16;
  Variable p = Variable::parameter(normals({n}, 1, DType::f32));
  p.set_grad(normals({n}, 2, DType::f32));
  Lamb lamb(group(p, 0.01), {});
  lamb.step(0.01);
  allocator(kCpu).reset_peak();
  const int64_t before = allocator(kCpu).report().live_total;
  lamb.step(0.01);
  CHECK(allocator(kCpu).report().peak_total == before);
}

TEST_CASE("LAMB refuses impossible options") {
  LambOptions options;
  options.beta2 = 1;
  CHECK_THROWS_WITH_AS(Lamb({}, options), doctest::Contains("[lamb] expected betas"), Error);
  options = {};
  options.eps = 0;
  CHECK_THROWS_WITH_AS(Lamb({}, options), doctest::Contains("[lamb] expected an eps"), Error);
  const Tensor two = Tensor::zeros({2});
  CHECK_THROWS_WITH_AS(ops::lamb_steps({{two, Tensor::zeros({1}), two, two, {}, true}}),
                       doctest::Contains("[lamb] expected the gradient of shape [2]"), Error);
}

}  // namespace frugal::optim

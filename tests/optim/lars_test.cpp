
#include <limits>

#include "ops/optimizer/lars.h"
#include "optim/optimizers.h"
#include "tests/optim/samples.h"

namespace frugal::optim {
namespace {

// Algorithm 1 of the paper, literally.
struct LarsReference {
  LarsOptions o;
  double decay;
  bool adapt;
  std::vector<double> p, v;
  void step(const std::vector<double>& g, double gamma) {
    v.resize(p.size());
    const double lambda = adapt ? o.trust * norm(p) / (norm(g) + decay * norm(p)) : 1;
    for (size_t i = 0; i < p.size(); ++i) {
      v[i] = o.momentum * v[i] + gamma * lambda * (g[i] + decay * p[i]);
      p[i] -= v[i];
    }
  }
};

Variable matrix(const std::vector<double>& values) {
  return Variable::parameter(
      Tensor::from<double>(values, {1, static_cast<int64_t>(values.size())}));
}

}  // namespace

TEST_CASE("LARS moves a parameter by rate * trust * |w| along the gradient, by hand") {
  // |w| = 5, |g| = 10: lambda = 0.01 * 5 / 10.
  Variable w = matrix({3, -4});
  w.set_grad(Tensor::from<double>({6, 8}, {1, 2}));
  Lars lars(group(w), {.trust = 0.01});
  lars.step(2);
  CHECK(w.value().item(0) == doctest::Approx(3 - 2 * 0.005 * 6));
  CHECK(w.value().item(1) == doctest::Approx(-4 - 2 * 0.005 * 8));
}

TEST_CASE("LARS follows the paper's algorithm over 20 steps, with a rate that changes") {
  for (const DType dtype : {DType::f64, DType::f32})
    for (const double decay : {0.0, 0.1})
      for (const bool always : {false, true})
        for (const Shape& shape : {Shape{3}, Shape{7, 1001}, Shape{2, 3, 3, 5}}) {
          CAPTURE(shape.str());
          CAPTURE(decay);
          Variable w = Variable::parameter(normals(shape, 1, dtype));
          const LarsOptions options{.trust = 0.02, .adapt_one_dimensional = always};
          Lars lars(group(w, decay), options);
          LarsReference reference{
              options, decay, always || shape.dim() > 1, w.value().to_vector(), {}};
          CHECK(error_of_steps(lars, w, reference, [](int t) { return 0.5 / (1 + t); }) <
                (dtype == DType::f32 ? 2e-6 : 1e-12));
        }
}

TEST_CASE("LARS: norms that are zero or not finite give the rate as it is") {
  Variable zero = matrix({0, 0});
  zero.set_grad(Tensor::full({1, 2}, 1, DType::f64));
  Lars(group(zero, 0.1)).step(0.1);
  CHECK(zero.value().item() == doctest::Approx(-0.1));
  Variable still = matrix({3, 3});  // the decay alone moves it
  still.set_grad(Tensor::zeros({1, 2}, DType::f64));
  Lars(group(still, 0.1)).step(0.1);
  CHECK(still.value().item() == doctest::Approx(3 - 0.1 * 0.1 * 3));
  Variable w = matrix({1, 1});
  w.set_grad(Tensor::from<double>({1, std::numeric_limits<double>::quiet_NaN()}, {1, 2}));
  Lars(group(w, 0.1)).step(0.1);
  CHECK(std::isfinite(w.value().item(0)));
  CHECK(std::isnan(w.value().item(1)));
}

TEST_CASE("LARS: the same bits for every thread count, and after a restart") {
  const int64_t n = 50001;
  std::vector<double> expected;
  for (const int threads : {1, 2, 3}) {
    const Threads scope(threads);
    Variable p = Variable::parameter(normals({n}, 1, DType::f32));
    const LarsOptions options{.adapt_one_dimensional = true};
    Lars lars(group(p, 0.01), options);
    const std::vector<double> half = run_steps(lars, p, 0, 2, 0.01);
    Variable q = Variable::parameter(ops::clone(p.value()));
    Lars resumed(group(q, 0.01), options);
    resumed.load_state(lars.state());
    const std::vector<double> got = run_steps(lars, p, 2, 4, 0.01);
    CHECK(run_steps(resumed, q, 2, 4, 0.01) == got);
    CHECK(half != got);
    if (threads == 1) expected = got;
    CHECK(got == expected);
  }
}

TEST_CASE("LARS refuses impossible options") {
  CHECK_THROWS_WITH_AS(Lars(std::vector<ParameterGroup>{}, {.momentum = 1}),
                       doctest::Contains("[lars] expected a momentum in [0, 1)"), Error);
  CHECK_THROWS_WITH_AS(Lars(std::vector<ParameterGroup>{}, {.trust = 0}),
                       doctest::Contains("[lars] expected a trust above 0"), Error);
  const Tensor two = Tensor::zeros({2});
  CHECK_THROWS_WITH_AS(ops::lars_steps({{two, Tensor::zeros({1}), two, {}}}),
                       doctest::Contains("[lars] expected the gradient of shape [2]"), Error);
  CHECK_THROWS_WITH_AS(ops::lars_steps({{two, two, Tensor::zeros({1}), {}}}),
                       doctest::Contains("[lars] expected the velocity of shape [2]"), Error);
}

}  // namespace frugal::optim

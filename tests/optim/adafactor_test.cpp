
#include "ops/optimizer/adafactor.h"
#include "optim/optimizers.h"
#include "tests/optim/samples.h"

namespace frugal::optim {
namespace {

double rms(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// As the paper writes it: sums over rows and columns, R C / (1 R).
struct AdafactorReference {
  AdafactorOptions o;
  double decay;
  size_t rows, cols;  // rows 0: not factored
  std::vector<double> p, r, c;
  int t = 0;
  void step(const std::vector<double>& g, double lr) {
    const double beta = 1 - std::pow(++t, -o.decay_rate);
    r.resize(rows);
    c.resize(cols);
    std::vector<double> row(rows), column(cols), u(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      const double square = g[i] * g[i] + 1e-30;
      if (rows > 0) row[i / cols] += square;
      column[i % cols] += square;
    }
    double total = 0;
    for (size_t i = 0; i < rows; ++i) total += r[i] = beta * r[i] + (1 - beta) * row[i];
    for (size_t j = 0; j < cols; ++j) c[j] = beta * c[j] + (1 - beta) * column[j];
    for (size_t i = 0; i < p.size(); ++i)
      u[i] = g[i] / std::sqrt(rows > 0 ? r[i / cols] * c[i % cols] / total : c[i]);
    const double limit = std::max(1.0, rms(u) / o.clip);
    const double scale = o.scale_parameter ? std::max(1e-3, rms(p)) : 1;
    for (size_t i = 0; i < p.size(); ++i)
      p[i] = (1 - lr * decay) * p[i] - lr * scale * u[i] / limit;
  }
};

}  // namespace

TEST_CASE("Adafactor's first step, by hand") {
  // Squares [[1, 4], [4, 16]] are of rank one, so that u is the signs; rms(p) = 2.
  Variable p = Variable::parameter(Tensor::full({2, 2}, 2, DType::f64));
  p.set_grad(Tensor::from<double>({1, -2, 2, -4}, {2, 2}));
  Adafactor adafactor(group(p, 0.5), {});
  adafactor.step(0.1);
  CHECK(p.value().item(0) == doctest::Approx(2 - 0.1 * 0.5 * 2 - 0.1 * 2));
  CHECK(p.value().item(3) == doctest::Approx(2 - 0.1 * 0.5 * 2 + 0.1 * 2));
}

TEST_CASE("Adafactor follows a plain reference over 20 steps") {
  for (const DType dtype : {DType::f64, DType::f32})
    for (const bool scaled : {true, false})
      for (const Shape& shape :
           {Shape{1}, Shape{37}, Shape{5, 1}, Shape{70, 130}, Shape{4, 3, 3, 2}}) {
        CAPTURE(shape.str());
        Variable p = Variable::parameter(normals(shape, 1, dtype, 0.1));
        AdafactorOptions options;
        options.scale_parameter = scaled;
        Adafactor adafactor(group(p, 0.1), options);
        const auto rows = static_cast<size_t>(shape.dim() > 1 ? shape[0] : 0);
        const size_t cols = static_cast<size_t>(shape.numel()) / std::max<size_t>(rows, 1);
        AdafactorReference reference{options, 0.1, rows, cols, p.value().to_vector(), {}, {}};
        CHECK(error_of_steps(adafactor, p, reference) < (dtype == DType::f32 ? 1e-5 : 1e-11));
      }
}

TEST_CASE("Adafactor: next to no state, the same bits for every thread count and after a restart") {
  const Shape shape{300, 257};
  std::vector<double> expected;
  for (const int threads : {1, 2, 3}) {
    const Threads scope(threads);
    const int64_t before = optimizer_bytes();
    Variable p = Variable::parameter(normals(shape, 1, DType::f32));
    Adafactor adafactor(group(p, 0.01), {});
    run_steps(adafactor, p, 0, 2, 0.01);
    CHECK(optimizer_bytes() - before == 1216 + 1088);  // 4 (300 + 257), each rounded up to 64
    Variable q = Variable::parameter(ops::clone(p.value()));
    Adafactor resumed(group(q, 0.01), {});
    resumed.load_state(adafactor.state());
    const std::vector<double> got = run_steps(adafactor, p, 2, 4, 0.01);
    CHECK(run_steps(resumed, q, 2, 4, 0.01) == got);
    if (threads == 1) expected = got;
    CHECK(got == expected);
  }
}

TEST_CASE("Adafactor: missing gradients and empty parameters are fine, NaN stays visible") {
  Variable p = Variable::parameter(Tensor::full({2, 2}, 1));
  p.set_grad(Tensor::zeros({2, 2}));
  Adafactor still(group(p), {});
  still.step(0.1);
  CHECK(p.value().to_vector() == std::vector<double>(4, 1));
  Tensor g = Tensor::full({2, 2}, 1);
  g.mut<float>()[1] = NAN;
  p.set_grad(g);
  still.step(0.1);
  CHECK(std::isnan(p.value().item(1)));
  Variable none = Variable::parameter(Tensor::zeros({0, 3}));
  none.set_grad(Tensor::zeros({0, 3}));
  Adafactor(group(none), {}).step(0.1);
  CHECK(none.value().numel() == 0);
}

TEST_CASE("Adafactor refuses impossible options and tensors") {
  AdafactorOptions options;
  options.clip = 0;
  CHECK_THROWS_WITH_AS(Adafactor({}, options), doctest::Contains("[adafactor] expected a clip"),
                       Error);
  options = {};
  options.decay_rate = 0;
  CHECK_THROWS_WITH_AS(Adafactor({}, options), doctest::Contains("a decay_rate above 0"), Error);
  const Tensor x = Tensor::zeros({2, 3}), two = Tensor::zeros({2}), three = Tensor::zeros({3});
  const auto refused = [](const Tensor& p, const Tensor& g, const Tensor& r, const Tensor& c,
                          int64_t t, const char* message) {
    ops::AdafactorStep step;
    step.step = t;
    CHECK_THROWS_WITH_AS(ops::adafactor_steps({{p, g, r, c, step}}), doctest::Contains(message),
                         Error);
  };
  refused(x, two, two, three, 1, "[adafactor] expected the gradient of shape [2, 3]");
  refused(x, x, three, three, 1, "the rows of shape [2]");
  refused(x, x, two, two, 1, "the columns of shape [3]");
  refused(x, x, {}, three, 1, "the second moment of shape [2, 3]");
  refused(two, two, two, two, 1, "at least 2 axes");
  refused(x, x, two, three, 0, "a step of at least 1, got 0");
}

}  // namespace frugal::optim

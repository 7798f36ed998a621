// What GCNII may have beside its layers, against its formula with dense matrices in f64.
#include "tests/models/gnn_samples.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::models::gnn;

namespace {

// Over the nodes, with weight 1 and bias 0.
Matrix normalized(Matrix x) {
  const auto n = static_cast<double>(x.rows);
  for (int64_t j = 0; j < x.cols; ++j) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < x.rows; ++i) mean += x(i, j) / n;
    for (int64_t i = 0; i < x.rows; ++i) variance += (x(i, j) - mean) * (x(i, j) - mean) / n;
    for (int64_t i = 0; i < x.rows; ++i) x(i, j) = (x(i, j) - mean) / std::sqrt(variance + 1e-5);
  }
  return x;
}

Matrix expected(Module& net, const GcniiOptions& o) {
  const auto p = parameters_of(net);
  const Matrix first =
      relu_of(plus(product(Matrix{features()}, transposed(p("lins.0.weight"))), p("lins.0.bias")));
  const bool cat = o.jk == JumpingKnowledge::cat;
  Matrix x = first, most(kNodes, o.hidden), all(kNodes, o.hidden * o.layers);
  for (int64_t l = 0; l < o.layers; ++l) {
    const double beta = std::log(o.theta / static_cast<double>(l + 1) + 1);
    const Matrix h = plus(
        map(product(gcn_matrix(), x), [&](double v) { return (1 - o.alpha) * v; }), first, o.alpha);
    const Matrix mixed = product(h, p("convs." + std::to_string(l) + ".weight1"));
    Matrix y = plus(map(h, [&](double v) { return (1 - beta) * v; }), mixed, beta);
    if (o.batch_norm) y = normalized(y);
    if (o.residual) y = plus(y, x);
    x = relu_of(y);
    for (int64_t i = 0; i < kNodes; ++i)
      for (int64_t j = 0; j < o.hidden; ++j) {
        most(i, j) = std::max(most(i, j), x(i, j));
        all(i, l * o.hidden + j) = x(i, j);
      }
  }
  const Matrix& joined = cat ? all : o.jk == JumpingKnowledge::max ? most : x;
  return plus(product(joined, transposed(p("lins.1.weight"))), p("lins.1.bias"));
}

}  // namespace

TEST_CASE("gcnii with norms, shortcuts and jumping knowledge is what the formula says") {
  for (const bool norm : {false, true})
    for (const bool residual : {false, true})
      for (const auto jk : {JumpingKnowledge::none, JumpingKnowledge::cat, JumpingKnowledge::max}) {
        CAPTURE(norm);
        CAPTURE(residual);
        CAPTURE(static_cast<int>(jk));
        Init init;
        auto options = options_of<GcniiOptions>(3);
        options.batch_norm = norm;
        options.residual = residual;
        options.jk = jk;
        Gcnii net(init, options);
        CHECK(names_of(net).contains("norms.2.module.weight") == norm);
        to_dtype(net, DType::f64);
        CHECK(distance(run(net, features(), context_of(edge_index())), expected(net, options)) <
              1e-6);
      }
}

TEST_CASE("gcnii drops features as it drops the rest") {
  Init init;
  auto options = options_of<GcniiOptions>(2);
  options.input_dropout = 0.5;
  CHECK_THROWS_WITH_AS(
      Gcnii(init, options),
      "[gcnii] expected no input_dropout beside dropout, which features share, got 0.5", Error);
}

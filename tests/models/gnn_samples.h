// Graphs, features and networks that the tests of graph networks share, and dense matrices in f64.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/state.h"
#include "models/zoo/gat.h"
#include "models/zoo/gcn.h"
#include "models/zoo/gcnii.h"
#include "models/zoo/sage.h"
#include "ops/dense/copy.h"

namespace frugal::models::gnn {

struct Matrix {
  int64_t rows, cols;
  std::vector<double> v;
  Matrix(int64_t r, int64_t c) : rows(r), cols(c), v(static_cast<size_t>(r * c)) {}
  explicit Matrix(const Tensor& t)
      : rows(t.dim() == 2 ? t.size(0) : 1), cols(t.size(-1)), v(t.to_vector()) {}
  double& operator()(int64_t i, int64_t j) { return v[static_cast<size_t>(i * cols + j)]; }
  double operator()(int64_t i, int64_t j) const { return v[static_cast<size_t>(i * cols + j)]; }
};

inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.cols; ++j)
      for (int64_t k = 0; k < a.cols; ++k) c(i, j) += a(i, k) * b(k, j);
  return c;
}
inline Matrix transposed(const Matrix& a) {
  Matrix c(a.cols, a.rows);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.cols; ++j) c(j, i) = a(i, j);
  return c;
}
inline Matrix map(Matrix a, const std::function<double(double)>& f) {
  for (double& x : a.v) x = f(x);
  return a;
}
inline Matrix plus(Matrix a, const Matrix& b, double factor = 1) {  // b: of a's shape, or one row
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.cols; ++j) a(i, j) += factor * b(b.rows == 1 ? 0 : i, j);
  return a;
}
inline Matrix relu_of(const Matrix& a) {
  return map(a, [](double x) { return x > 0 ? x : 0; });
}
inline Matrix elu_of(const Matrix& a) {
  return map(a, [](double x) { return x > 0 ? x : std::expm1(x); });
}

inline double distance(const Tensor& a, const Matrix& b) {
  const std::vector<double> x = a.to_vector();
  REQUIRE(x.size() == b.v.size());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::abs(x[i] - b.v[i]));
  return worst;
}

inline constexpr int64_t kNodes = 7, kFeatures = 5, kClasses = 3;
// Node 6 has no edges; 1 -> 1 is a loop, 2 -> 3 stands twice.
inline const std::vector<int64_t> kFrom = {0, 1, 2, 1, 3, 2, 2, 4, 5, 0};
inline const std::vector<int64_t> kTo = {1, 0, 0, 1, 4, 3, 3, 5, 0, 5};

inline Tensor edge_index(const std::vector<int64_t>& order = {}) {  // node v becomes order[v]
  CategoryScope scope(Category::input);
  std::vector<int64_t> both;
  for (const auto* ends : {&kFrom, &kTo})
    for (const int64_t v : *ends) both.push_back(order.empty() ? v : order[static_cast<size_t>(v)]);
  return Tensor::from(both, {2, static_cast<int64_t>(kFrom.size())});
}

// a(i, j) edges from j to i.
inline Matrix adjacency(bool loops) {
  Matrix a(kNodes, kNodes);
  for (size_t e = 0; e < kFrom.size(); ++e)
    if (!loops || kFrom[e] != kTo[e]) a(kTo[e], kFrom[e]) += 1;
  for (int64_t v = 0; loops && v < kNodes; ++v) a(v, v) = 1;
  return a;
}

inline Matrix gcn_matrix() {
  const Matrix a = adjacency(true);
  Matrix n(kNodes, kNodes);
  std::vector<double> degree(kNodes);
  for (int64_t i = 0; i < kNodes; ++i)
    for (int64_t j = 0; j < kNodes; ++j) degree[static_cast<size_t>(i)] += a(i, j);
  for (int64_t i = 0; i < kNodes; ++i)
    for (int64_t j = 0; j < kNodes; ++j)
      n(i, j) =
          a(i, j) / std::sqrt(degree[static_cast<size_t>(i)] * degree[static_cast<size_t>(j)]);
  return n;
}

inline Matrix mean_matrix() {
  Matrix a = adjacency(false);
  for (int64_t i = 0; i < kNodes; ++i) {
    double degree = 0;
    for (int64_t j = 0; j < kNodes; ++j) degree += a(i, j);
    for (int64_t j = 0; j < kNodes && degree > 0; ++j) a(i, j) /= degree;
  }
  return a;
}

inline Tensor features(DType dtype = DType::f64, bool binary = false) {
  CategoryScope scope(Category::input);
  const Tensor x = Tensor::empty({kNodes, kFeatures}, DType::f64);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double v = static_cast<double>(frugal::normal({5, 6}, static_cast<uint64_t>(i)));
    x.mut<double>()[i] = binary ? (v > 0.3 ? 1 : 0) : v;
  }
  return ops::cast(x, dtype);
}

template <class Options>
Options options_of(int64_t layers) {
  Options o;
  o.in_features = kFeatures;
  o.hidden = 4;
  o.num_classes = kClasses;
  o.layers = layers;
  o.dropout = 0;
  return o;
}

inline std::function<Matrix(const std::string&)> parameters_of(Module& m) {
  return [&m](const std::string& name) {
    for (const auto& p : m.parameters())
      if (p.name == name) return Matrix(p.parameter->value());
    FAIL("no parameter " << name);
    return Matrix(0, 0);
  };
}

inline std::set<std::string> names_of(Module& m) {
  std::set<std::string> names;
  for (const auto& p : m.parameters()) names.insert(p.name);
  for (const auto& b : m.buffers()) names.insert(b.name);
  return names;
}

inline Context context_of(const Tensor& edges, Rng* rng = nullptr, bool training = true) {
  Context context;
  context.training = training;
  context.rng = rng;
  context.extras = {{"edge_index", edges}};
  return context;
}

inline Tensor run(Module& m, const Tensor& x, Context context) {
  return m.forward(Variable(x), context).value();
}

// Biases that are not 0.
inline void shift_biases(Module& m) {
  for (const auto& p : m.parameters())
    if (p.name.ends_with("bias"))
      for (int64_t i = 0; i < p.parameter->value().numel(); ++i)
        p.parameter->value().mut<float>()[i] = 0.1F * static_cast<float>(i + 1);
}

using Maker = std::function<std::shared_ptr<Module>()>;

// Each network with everything on; dropout as given.
inline std::vector<std::pair<std::string, Maker>> makers(double p, bool norms = true) {
  const auto common = [=](auto o) {
    o.dropout = o.input_dropout = p;
    o.batch_norm = norms;
    return o;
  };
  return {
      {"gcn",
       [=] {
         Init init;
         auto o = common(options_of<GnnOptions>(3));
         o.residual = true;
         return std::make_shared<Gcn>(init, o);
       }},
      {"gcn, joined",
       [=] {
         Init init;
         auto o = common(options_of<GnnOptions>(3));
         o.jk = JumpingKnowledge::cat;
         return std::make_shared<Gcn>(init, o);
       }},
      {"sage",
       [=] {
         Init init;
         auto o = common(options_of<SageOptions>(2));
         o.jk = JumpingKnowledge::max;
         return std::make_shared<Sage>(init, o);
       }},
      {"gat",
       [=] {
         Init init;
         auto o = common(options_of<GatOptions>(3));
         o.heads = 2;
         o.attention_dropout = p;
         o.residual = true;
         return std::make_shared<Gat>(init, o);
       }},
      {"gcnii",
       [=] {
         Init init;
         auto o = options_of<GcniiOptions>(4);
         o.dropout = p;
         return std::make_shared<Gcnii>(init, o);
       }},
      {"gcnii, joined",
       [=] {
         Init init;
         auto o = options_of<GcniiOptions>(3);
         o.dropout = p;
         o.batch_norm = norms;
         o.residual = true;
         o.jk = JumpingKnowledge::cat;
         return std::make_shared<Gcnii>(init, o);
       }},
  };
}

}  // namespace frugal::models::gnn

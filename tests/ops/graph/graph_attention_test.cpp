#include "ops/graph/graph_attention.h"

#include <doctest/doctest.h>

#include "ops/dense/elu.h"
#include "tests/ops/samples.h"

using namespace frugal;
using namespace frugal::ops;

namespace {

// Random edges; `hub` of them into node 1 and as many out of node 2.
Graph graph_of(int64_t nodes, int64_t edges, int64_t hub) {
  const Tensor index = Tensor::empty({2, edges}, DType::i64);
  for (int64_t e = 0; e < edges; ++e) {
    for (int64_t k = 0; k < 2; ++k)
      index.mut<int64_t>()[k * edges + e] = static_cast<int64_t>(
          uniform_int({4, 4}, static_cast<uint64_t>(2 * e + k), static_cast<uint64_t>(nodes)));
    if (e < hub) index.mut<int64_t>()[edges + e] = 1;
    if (e >= edges - hub) index.mut<int64_t>()[e] = 2;
  }
  GraphOptions options;
  options.self_loops = true;
  return make_graph(index, nodes, options);
}

struct Inputs {
  Tensor h, a_src, a_dst, dy;
};
Inputs inputs_of(int64_t nodes, int64_t heads, int64_t width, DType dtype) {
  return {normals({nodes, heads, width}, 1, dtype), normals({nodes, heads}, 2, dtype),
          normals({nodes, heads}, 3, dtype), normals({nodes, heads, width}, 4, dtype)};
}

std::vector<Tensor> all_of(const Graph& g, const Inputs& in, double dropout) {
  const GraphAttentionSettings settings{0.2, dropout, {6, 7}};
  const GraphAttentionGradients d =
      graph_attention_backward(g, in.dy, in.h, in.a_src, in.a_dst, settings);
  return {graph_attention(g, in.h, in.a_src, in.a_dst, settings), d.h, d.a_src, d.a_dst};
}

}  // namespace

TEST_CASE("attention by hand: a softmax of leaky scores, edge by edge, with its dropout") {
  const Graph g = graph_of(9, 40, 0);
  for (const double p : {0.0, 0.4}) {
    const Inputs in = inputs_of(9, 3, 5, DType::f64);
    std::vector<double> y(9 * 15, 0.0);
    const auto* ptr = g.edges.by_row.row_ptr.data<int64_t>();
    const auto* col = g.edges.by_row.col.data<int32_t>();
    for (int64_t i = 0; i < 9; ++i)
      for (int64_t k = 0; k < 3; ++k) {
        std::vector<double> weight;
        double total = 0;
        for (int64_t e = ptr[i]; e < ptr[i + 1]; ++e) {
          const double z = in.a_src.item(col[e] * 3 + k) + in.a_dst.item(i * 3 + k);
          weight.push_back(std::exp(z > 0 ? z : 0.2 * z));
          total += weight.back();
        }
        for (int64_t e = ptr[i]; e < ptr[i + 1]; ++e) {
          const bool kept =
              static_cast<double>(uniform({6, 7}, static_cast<uint64_t>(e * 3 + k))) >= p;
          const double c = kept ? weight[static_cast<size_t>(e - ptr[i])] / total / (1 - p) : 0;
          for (int64_t f = 0; f < 5; ++f)
            y[static_cast<size_t>(i * 15 + k * 5 + f)] += c * in.h.item(col[e] * 15 + k * 5 + f);
        }
      }
    CHECK(error(all_of(g, in, p)[0], y) < 1e-12);
  }
}

TEST_CASE("f32 follows f64, with nodes of thousands of edges in and out") {
  const Graph g = graph_of(600, 20000, 6000);
  REQUIRE(g.edges.by_row.split.long_rows.size() == 1);
  REQUIRE(g.edges.by_col.split.long_rows.size() == 1);
  const struct { int64_t heads, width; } shapes[] = {{8, 8}, {1, 7}, {3, 33}};
  for (const auto& s : shapes) {
    CAPTURE(s.heads);
    const std::vector<Tensor> fine = all_of(g, inputs_of(600, s.heads, s.width, DType::f64), 0.5);
    const std::vector<Tensor> coarse = all_of(g, inputs_of(600, s.heads, s.width, DType::f32), 0.5);
    for (size_t i = 0; i < fine.size(); ++i) CHECK(error(coarse[i], fine[i].to_vector()) < 2e-4);
  }
}

TEST_CASE("attention has the same bits for every number of threads") {
  const Graph g = graph_of(600, 20000, 6000);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Inputs in = inputs_of(600, 4, 8, dtype);
    std::vector<Tensor> one;
    {
      ThreadsScope threads(1);
      one = all_of(g, in, 0.5);
      one.push_back(head_scores_backward_weight(in.a_src, in.h));
    }
    for (const int n : {2, 5}) {
      ThreadsScope threads(n);
      std::vector<Tensor> many = all_of(g, in, 0.5);
      many.push_back(head_scores_backward_weight(in.a_src, in.h));
      for (size_t i = 0; i < one.size(); ++i) CHECK(same_bits(one[i], many[i]));
    }
  }
}

TEST_CASE("large scores do not overflow, and NaN stays where it reaches") {
  const Tensor index = Tensor::from<int64_t>({0, 1, 2, 1, 1, 2}, {2, 3});
  const Graph g = make_graph(index, 3);  // 0 -> 1, 1 -> 1, 2 -> 2
  const Tensor h = Tensor::from<float>({1, 2, 3}, {3, 1, 1});
  const Tensor huge = Tensor::from<float>({1e30F, 0, 0}, {3, 1}), zero = Tensor::zeros({3, 1});
  CHECK(error(graph_attention(g, h, huge, zero, {}), {0, 1, 3}) == 0);
  const Tensor broken = Tensor::from<float>({static_cast<float>(kNan), 0, 0}, {3, 1});
  CHECK(error(graph_attention(g, h, broken, zero, {}), {0, kNan, 3}) == 0);
}

TEST_CASE("scores of heads are their inner products") {
  const Tensor h = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  const Tensor w = Tensor::from<float>({1, 10, 100, 1000}, {1, 2, 2});
  CHECK(head_scores(h, w).to_vector() == std::vector<double>{21, 4300, 65, 8700});
  const Tensor ds = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  CHECK(head_scores_backward_input(ds, w).to_vector() ==
        std::vector<double>{1, 10, 200, 2000, 3, 30, 400, 4000});
  CHECK(head_scores_backward_weight(ds, h).to_vector() == std::vector<double>{16, 20, 34, 40});
  CHECK_THROWS_WITH_AS(head_scores_backward_weight(w, h),
                       doctest::Contains("[head_scores backward] expected ds of shape [2, 2]"),
                       Error);
}

TEST_CASE("elu is x above 0 and exp(x) - 1 below, in every layout of masks") {
  for (const Shape& shape : {Shape{16, 33}, Shape{3, 5}, Shape{1000, 3}, Shape{0, 4}, Shape{}}) {
    CAPTURE(shape.str());
    const Tensor x = normals(shape, 3), dy = normals(shape, 4);
    const EluOutput out = elu(x, true);
    std::vector<double> y = x.to_vector(), dx = dy.to_vector();
    for (size_t i = 0; i < y.size(); ++i) {
      if (y[i] > 0) continue;
      dx[i] *= std::exp(y[i]);
      y[i] = std::expm1(y[i]);
    }
    CHECK(error(out.y, y) < 1e-6);
    CHECK(error(elu_backward(dy, out.y, out.mask), dx) < 1e-6);
    CHECK(same_bits(elu(x, false).y, out.y));
    ThreadsScope threads(3);
    CHECK(same_bits(elu(x, true).mask, out.mask));
  }
  const Tensor odd = Tensor::from<float>(
      {static_cast<float>(kNan), static_cast<float>(kInf), static_cast<float>(-kInf), 0}, {4});
  CHECK(error(elu(odd, false).y, {kNan, kInf, -1, 0}) < 1e-6);
  CHECK_THROWS_WITH_AS(elu_backward(odd, odd, Tensor::zeros({2}, DType::u8)),
                       doctest::Contains("[elu backward] expected the mask of shape"), Error);
}

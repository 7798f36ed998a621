// Sparse products and graph attention on CUDA beside the CPU's, where the op table does not reach:
// hubs that are split into pieces, wide rows, many heads, ties and NaN.
#include "ops/graph/graph.h"

#include <limits>

#include "ops/graph/graph_attention.h"
#include "ops/graph/spmm.h"
#include "tests/cuda/compare.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

using gpu::rounded, gpu::there;

// 700 edges into node 3 and 400 from node 5, others at random; the last node has none.
Graph hub_graph(EdgeNorm norm = EdgeNorm::symmetric) {
  constexpr int64_t kNodes = 90, kIn = 700, kOut = 400, kAll = 1500;
  const Tensor index = Tensor::empty({2, kAll}, DType::i64);
  auto *from = index.mut<int64_t>(), *to = from + kAll;
  for (int64_t e = 0; e < kAll; ++e) {
    const auto any = [&](uint64_t stream) {
      return static_cast<int64_t>(uniform_int({1, stream}, static_cast<uint64_t>(e), kNodes - 1));
    };
    from[e] = e >= kIn && e < kIn + kOut ? 5 : any(1);
    to[e] = e < kIn ? 3 : any(2);
  }
  return make_graph(index, kNodes, {.norm = norm});
}

void check_error(const Tensor& got, const Tensor& expected, DType dtype) {
  CHECK(error(got, expected.to_vector()) < gpu::tolerance(dtype));
}

}  // namespace

TEST_CASE("graphs move to the GPU and back") {
  if (!gpu::available()) return;
  const Graph graph = hub_graph(), back = to_device(to_device(graph, gpu::kCuda), kCpu);
  CHECK(same_bits(back.edges.by_col.row_ptr, graph.edges.by_col.row_ptr));
  CHECK(same_bits(back.edges.by_row.col, graph.edges.by_row.col));
  CHECK(same_bits(back.edges.by_row.value, graph.edges.by_row.value));
  CHECK(same_bits(back.edges.position, graph.edges.position));
  CHECK(back.edges.by_row.split.tasks.size() == graph.edges.by_row.split.tasks.size());
  const RowSplit split = to_device(graph, gpu::kCuda).edges.by_row.split;
  CHECK(split.longest == graph.edges.by_row.split.longest);
  CHECK(split.pieces == (split.longest + RowSplit::kWarpPiece - 1) / RowSplit::kWarpPiece);
  CHECK(to_device(graph, kMeta).edges.by_row.col.device() == kMeta);
}

TEST_CASE("graphs and sparse matrices of tensors on the GPU are there") {
  if (!gpu::available()) return;
  const Tensor index = Tensor::from<int64_t>({0, 2, 1, 2, 1, 1}, {2, 3});
  const Tensor weight = Tensor::from<float>({1, 2, 4}, {3});
  const auto graph = [&](auto move) {
    return make_graph(move(index), 3, {.norm = EdgeNorm::mean, .edge_weight = move(weight)});
  };
  const Csr expected = graph([](const Tensor& x) { return x; }).edges.by_row;
  const Csr got = graph([](const Tensor& x) { return there(x); }).edges.by_row;
  CHECK(got.col.device() == gpu::kCuda);
  CHECK(same_bits(to_device(got.col, kCpu), expected.col));
  CHECK(same_bits(to_device(got.value, kCpu), expected.value));
  const SparseMatrix sparse =
      make_sparse(there(Tensor::from<int64_t>({0, 1, 3}, {3})),
                  there(Tensor::from<int32_t>({2, 0, 1}, {3})), there(weight), 3);
  CHECK(sparse.position.device() == gpu::kCuda);
  CHECK(sparse.by_col.value.to_vector() == std::vector<double>{2, 4, 1});
  const Csr groups = group_by("test", there(Tensor::from<int64_t>({1, 0, 1}, {3})), 2);
  CHECK(groups.col.device() == gpu::kCuda);
  CHECK(groups.col.to_vector() == std::vector<double>{1, 0, 2});
}

TEST_CASE("spmm on CUDA: hubs in pieces, narrow, odd and wide rows") {
  if (!gpu::available()) return;
  const Graph graph = hub_graph(), on_gpu = to_device(graph, gpu::kCuda);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t width : {1, 7, 16, 300}) {
      CAPTURE(width);
      const Tensor x = rounded({90, width}, 1), bias = rounded({width}, 2);
      SpmmOptions options{
          .mean = width == 16, .factor = 0.5, .bias = bias, .addend = x, .addend_factor = 2};
      const Tensor expected = spmm(graph.edges.by_row, x, options);
      options.bias = there(bias), options.addend = there(x, dtype);
      check_error(spmm(on_gpu.edges.by_row, there(x, dtype), options), expected, dtype);
      SpmmOptions transposed{.entry_counts = graph.edges.by_row.row_ptr};
      const Tensor back = spmm(graph.edges.by_col, x, transposed);
      transposed.entry_counts = on_gpu.edges.by_row.row_ptr;
      check_error(spmm(on_gpu.edges.by_col, there(x, dtype), transposed), back, dtype);
    }
}

TEST_CASE("spmm_max on CUDA: the same entries as on the CPU") {
  if (!gpu::available()) return;
  const Graph graph = hub_graph(), on_gpu = to_device(graph, gpu::kCuda);
  for (const int64_t width : {3, 72}) {
    Tensor x = rounded({90, width}, 3);
    for (int64_t i = 0; i < x.numel(); i += 3) x.mut<float>()[i] = 2;  // ties
    x.mut<float>()[5 * width + 1] = std::numeric_limits<float>::quiet_NaN();
    x.mut<float>()[6 * width + 2] = -std::numeric_limits<float>::infinity();
    const RowMax expected = spmm_max(graph.edges.by_row, x);
    const Tensor dy = rounded({90, width}, 4);
    const Tensor dx = spmm_max_backward(graph.edges, dy, expected.index);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const RowMax got = spmm_max(on_gpu.edges.by_row, there(x, dtype));
      CHECK(same_bits(to_device(got.index, kCpu), expected.index));
      CHECK(error(got.y, expected.y.to_vector()) == 0);
      check_error(spmm_max_backward(on_gpu.edges, there(dy, dtype), got.index), dx, dtype);
    }
  }
}

TEST_CASE("dropout of entries on CUDA draws the CPU's bits") {
  if (!gpu::available()) return;
  const Graph graph = hub_graph(), on_gpu = to_device(graph, gpu::kCuda);
  for (const double p : {0.0, 0.3, 1.0})
    CHECK(same_bits(to_device(dropout_entries(on_gpu.edges.by_row, p, {3, 4}), kCpu),
                    dropout_entries(graph.edges.by_row, p, {3, 4})));
}

TEST_CASE("graph attention on CUDA: hubs in pieces, one head to 128, odd and wide ones") {
  if (!gpu::available()) return;
  const Graph graph = hub_graph(EdgeNorm::none), on_gpu = to_device(graph, gpu::kCuda);
  struct Heads {
    int64_t heads, width;
    double dropout;
  };
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Heads& z : {Heads{1, 7, 0}, {8, 8, 0.4}, {3, 128, 0.2}, {40, 3, 0.3}, {128, 1, 0}}) {
      CAPTURE(z.heads);
      CAPTURE(name_of(dtype));
      const GraphAttentionSettings settings{0.2, z.dropout, {9, 2}};
      const Tensor h = rounded({90, z.heads, z.width}, 1), dy = rounded(h.shape(), 2),
                   src = rounded({90, z.heads}, 3), dst = rounded({90, z.heads}, 4);
      check_error(
          graph_attention(on_gpu, there(h, dtype), there(src, dtype), there(dst, dtype), settings),
          graph_attention(graph, h, src, dst, settings), dtype);
      const GraphAttentionGradients expected =
          graph_attention_backward(graph, dy, h, src, dst, settings);
      const GraphAttentionGradients got =
          graph_attention_backward(on_gpu, there(dy, dtype), there(h, dtype), there(src, dtype),
                                   there(dst, dtype), settings);
      check_error(got.h, expected.h, dtype);
      check_error(got.a_src, expected.a_src, dtype);
      check_error(got.a_dst, expected.a_dst, dtype);
    }
}

TEST_CASE("head scores on CUDA: weights' gradients over several chunks of nodes") {
  if (!gpu::available()) return;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor h = rounded({700, 3, 20}, 1), weight = rounded({1, 3, 20}, 2),
                 ds = rounded({700, 3}, 3);
    check_error(head_scores(there(h, dtype), there(weight)), head_scores(h, weight), dtype);
    check_error(head_scores_backward_input(there(ds, dtype), there(weight)),
                head_scores_backward_input(ds, weight), dtype);
    const Tensor got = head_scores_backward_weight(there(ds, dtype), there(h, dtype));
    CHECK(got.dtype() == DType::f32);
    check_error(got, head_scores_backward_weight(ds, h), DType::f32);
  }
}

}  // namespace frugal::ops

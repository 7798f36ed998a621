#include "ops/graph/graph_attention.h"

#include <cmath>
#include <cstddef>

#include "core/dtype_switch.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/f32_blocks.h"
#include "ops/graph/graph_attention_loops.h"
#include "ops/graph/graph_tasks.h"
#include "ops/shared_kernels.h"
#include "ops/simd/convert_loops.h"

namespace frugal::ops {
namespace {

constexpr const char* kGraphAttention = "graph_attention";

void check_graph_attention(const Graph& graph, const Tensor& h, const Tensor& a_src,
                           const Tensor& a_dst, const GraphAttentionSettings& settings) {
  check_real(kGraphAttention, "h", h);
  FRUGAL_CHECK(h.dim() == 3 && h.size(0) == graph.nodes,
               "[graph_attention] expected h [{}, heads, F], got {}", graph.nodes, describe(h));
  FRUGAL_CHECK(h.size(1) >= 1 && h.size(1) <= simd::kMaxHeads,
               "[graph_attention] expected 1 to {} heads, got {}", simd::kMaxHeads, h.size(1));
  check_shape(kGraphAttention, "a_src", a_src, {graph.nodes, h.size(1)});
  check_shape(kGraphAttention, "a_dst", a_dst, {graph.nodes, h.size(1)});
  check_same(kGraphAttention, h, {&a_src, &a_dst});
  FRUGAL_CHECK(settings.dropout >= 0 && settings.dropout <= 1,
               "[graph_attention] expected a dropout probability in [0, 1], got {}",
               settings.dropout);
  FRUGAL_CHECK(h.device().type == DeviceType::meta || graph.edges.by_row.col.device() == h.device(),
               "[graph_attention] expected the graph on {}, got one on {}", h.device().str(),
               graph.edges.by_row.col.device().str());
}

template <class T>
simd::GraphAttention<T> view_of(const Csr& walked, const Graph& graph, const Tensor& h,
                                const Tensor& a_src, const Tensor& a_dst,
                                const GraphAttentionSettings& s) {
  simd::GraphAttention<T> a{};
  a.row_ptr = walked.row_ptr.data<int64_t>();
  a.col = walked.col.data<int32_t>();
  a.position = graph.edges.position.data<int32_t>();
  a.heads = h.size(1);
  a.width = h.size(2);
  a.h = h.data<T>();
  a.a_src = a_src.data<T>();
  a.a_dst = a_dst.data<T>();
  a.slope = static_cast<T>(s.slope);
  a.drops = s.dropout > 0;
  a.key = s.key;
  a.bound = static_cast<uint32_t>(std::ceil(s.dropout * 0x1p24));
  a.scale = static_cast<T>(s.dropout < 1 ? 1 / (1 - s.dropout) : 0);
  return a;
}

// Walks the rows of `walked`. entries(row, begin, end, out [width]) takes a row or a piece of it,
// merge(total, part) joins the pieces of a row in order, finish(row, total) ends a row, and
// empty(row) takes a row without entries.
template <class T, class Entries, class Merge, class Finish, class Empty>
void reduce_rows(const Csr& walked, int64_t width, int64_t cost, Entries entries, Merge merge,
                 Finish finish, Empty empty) {
  const auto* ptr = walked.row_ptr.data<int64_t>();
  constexpr DType dtype = std::is_same_v<T, double> ? DType::f64 : DType::f32;
  const Tensor parts = workspace({walked.split.pieces, width}, dtype);
  for_tasks(
      walked.split, cost,
      [&](int64_t first, int64_t last) {
        std::vector<T> total(static_cast<size_t>(width));
        for (int64_t row = first; row < last; ++row) {
          if (ptr[row] == ptr[row + 1]) {
            empty(row);
            continue;
          }
          entries(row, ptr[row], ptr[row + 1], total.data());
          finish(row, total.data());
        }
      },
      [&](int64_t row, int64_t begin, int64_t end, int64_t piece) {
        entries(row, begin, end, parts.mut<T>() + piece * width);
      },
      [&](int64_t row, int64_t first, int64_t pieces) {
        T* total = parts.mut<T>() + first * width;
        for (int64_t p = 1; p < pieces; ++p) merge(total, total + p * width);
        finish(row, total);
      });
}

// log of the sum of exp(logit) over the edges into each node: [V, heads].
template <class T>
Tensor log_sums(const Csr& walked, const simd::GraphAttention<T>& a, int64_t nodes, DType dtype) {
  const Tensor lse = workspace({nodes, a.heads}, dtype);
  T* out = lse.mut<T>();
  const int64_t heads = a.heads;
  reduce_rows<T>(
      walked, 2 * heads, 4 * heads,
      [&](int64_t row, int64_t begin, int64_t end, T* sums) {
        simd::attention_sums(a, row, begin, end, sums);
      },
      [&](T* total, const T* part) {
        for (int64_t k = 0; k < heads; ++k) {
          const T largest = std::max(total[k], part[k]);
          total[heads + k] = total[heads + k] * std::exp(total[k] - largest) +
                             part[heads + k] * std::exp(part[k] - largest);
          total[k] = largest;
        }
      },
      [&](int64_t row, const T* total) {
        for (int64_t k = 0; k < heads; ++k)
          out[row * heads + k] = total[k] + std::log(total[heads + k]);
      },
      [&](int64_t row) { std::fill_n(out + row * heads, heads, T{0}); });
  return lse;
}

// Writes n values to `out`, of dtype T or bf16, from place `at` on.
template <class T>
void store(const T* values, int64_t n, const Tensor& out, int64_t at) {
  if constexpr (std::is_same_v<T, float>)
    if (out.dtype() == DType::bf16) return simd::narrow(values, out.mut<BFloat16>() + at, n);
  std::copy_n(values, n, out.mut<T>() + at);
}

// Writes n zeros in the same way. The bits of 0 are 0 in each dtype.
void store_zeros(int64_t n, const Tensor& out, int64_t at) {
  const auto size = static_cast<int64_t>(size_of(out.dtype()));
  std::fill_n(static_cast<std::byte*>(out.raw()) + at * size, n * size, std::byte{0});
}

// y may be bf16 where T is float.
template <class T>
void attend_edges(const Graph& graph, const Tensor& h, const Tensor& a_src, const Tensor& a_dst,
                  const GraphAttentionSettings& settings, const Tensor& y) {
  const Csr& in = graph.edges.by_row;
  auto a = view_of<T>(in, graph, h, a_src, a_dst, settings);
  const Tensor lse = log_sums(in, a, graph.nodes, h.dtype());
  a.lse = lse.data<T>();
  const int64_t width = a.heads * a.width;
  const auto add = [width](T* total, const T* part) {
    for (int64_t f = 0; f < width; ++f) total[f] += part[f];
  };
  reduce_rows<T>(
      in, width, width,
      [&](int64_t row, int64_t begin, int64_t end, T* sum) {
        simd::attention_values(a, row, begin, end, sum);
      },
      add, [&](int64_t row, const T* total) { store(total, width, y, row * width); },
      [&](int64_t row) { store_zeros(width, y, row * width); });
}

// `out` may be bf16 where T is float.
template <class T>
void attend_edges_backward(const Graph& graph, const Tensor& dy, const Tensor& h,
                           const Tensor& a_src, const Tensor& a_dst,
                           const GraphAttentionSettings& settings,
                           const GraphAttentionGradients& out) {
  const Csr &in = graph.edges.by_row, &from = graph.edges.by_col;
  auto a = view_of<T>(in, graph, h, a_src, a_dst, settings);
  const Tensor lse = log_sums(in, a, graph.nodes, h.dtype());
  const Tensor mean = workspace({graph.nodes, a.heads}, h.dtype());
  a.lse = lse.data<T>();
  a.dy = dy.data<T>();
  const int64_t heads = a.heads, width = heads * a.width;
  const auto adder = [](int64_t n) {
    return [n](T* total, const T* part) {
      for (int64_t f = 0; f < n; ++f) total[f] += part[f];
    };
  };
  reduce_rows<T>(
      in, 3 * heads, width,
      [&](int64_t row, int64_t begin, int64_t end, T* sums) {
        simd::attention_target(a, row, begin, end, sums);
      },
      adder(3 * heads),
      [&](int64_t row, const T* total) {
        T of_target[simd::kMaxHeads];
        for (int64_t k = 0; k < heads; ++k) {
          mean.mut<T>()[row * heads + k] = total[k];
          of_target[k] = total[heads + k] - total[k] * total[2 * heads + k];
        }
        store(of_target, heads, out.a_dst, row * heads);
      },
      [&](int64_t row) {
        std::fill_n(mean.mut<T>() + row * heads, heads, T{0});
        store_zeros(heads, out.a_dst, row * heads);
      });
  a.row_ptr = from.row_ptr.data<int64_t>();
  a.col = from.col.data<int32_t>();
  a.mean = mean.data<T>();
  reduce_rows<T>(
      from, width + heads, 2 * width,
      [&](int64_t row, int64_t begin, int64_t end, T* sums) {
        simd::attention_source(a, row, begin, end, sums);
      },
      adder(width + heads),
      [&](int64_t row, const T* total) {
        store(total, width, out.h, row * width);
        store(total + width, heads, out.a_src, row * heads);
      },
      [&](int64_t row) {
        store_zeros(width, out.h, row * width);
        store_zeros(heads, out.a_src, row * heads);
      });
}

constexpr int64_t kHeadScoreRows = 1024;  // rows in a chunk of a weight's gradient
int64_t score_chunks(int64_t nodes) { return (nodes + kHeadScoreRows - 1) / kHeadScoreRows; }

void check_scores(const Tensor& h, const Tensor& weight) {
  check_real("head_scores", "h", h);
  check_dim("head_scores", "h", h, 3);
  check_shape("head_scores", "weight", weight, {1, h.size(1), h.size(2)});
  check_beside("head_scores", h, {&weight});
}

}  // namespace

void graph_attention_kernel(Cpu, const Graph& graph, const Tensor& h, const Tensor& a_src,
                            const Tensor& a_dst, const GraphAttentionSettings& settings,
                            const Tensor& y) {
  if (h.dtype() == DType::bf16) {
    const InF32 wide;
    return attend_edges<float>(graph, wide.read(h), wide.read(a_src), wide.read(a_dst), settings,
                               y);
  }
  with_real(h.dtype(),
            [&](auto zero) { attend_edges<decltype(zero)>(graph, h, a_src, a_dst, settings, y); });
}

Tensor graph_attention(const Graph& graph, const Tensor& h, const Tensor& a_src,
                       const Tensor& a_dst, const GraphAttentionSettings& settings) {
  check_graph_attention(graph, h, a_src, a_dst, settings);
  const Tensor in = contiguous(h), src = contiguous(a_src), dst = contiguous(a_dst);
  Tensor y = Tensor::empty(h.shape(), h.dtype(), h.device());
  count_in_f32(h, {&in, &src, &dst}, {}, {src.shape()});
  dispatch(h.device(), [&](auto backend) {
    graph_attention_kernel(backend, graph, in, src, dst, settings, y);
  });
  return y;
}

void graph_attention_backward_kernel(Cpu, const Graph& graph, const Tensor& dy, const Tensor& h,
                                     const Tensor& a_src, const Tensor& a_dst,
                                     const GraphAttentionSettings& settings,
                                     const GraphAttentionGradients& out) {
  if (h.dtype() == DType::bf16) {
    const InF32 wide;
    return attend_edges_backward<float>(graph, wide.read(dy), wide.read(h), wide.read(a_src),
                                        wide.read(a_dst), settings, out);
  }
  with_real(h.dtype(), [&](auto zero) {
    attend_edges_backward<decltype(zero)>(graph, dy, h, a_src, a_dst, settings, out);
  });
}

GraphAttentionGradients graph_attention_backward(const Graph& graph, const Tensor& dy,
                                                 const Tensor& h, const Tensor& a_src,
                                                 const Tensor& a_dst,
                                                 const GraphAttentionSettings& settings) {
  check_graph_attention(graph, h, a_src, a_dst, settings);
  check_shape("graph_attention backward", "dy", dy, h.shape());
  check_same("graph_attention backward", h, {&dy});
  const Tensor gradient = contiguous(dy), in = contiguous(h);
  const Tensor src = contiguous(a_src), dst = contiguous(a_dst);
  GraphAttentionGradients out{Tensor::empty(h.shape(), h.dtype(), h.device()),
                              Tensor::empty(a_src.shape(), h.dtype(), h.device()),
                              Tensor::empty(a_dst.shape(), h.dtype(), h.device())};
  count_in_f32(h, {&gradient, &in, &src, &dst}, {}, {src.shape(), src.shape()});
  dispatch(h.device(), [&](auto backend) {
    graph_attention_backward_kernel(backend, graph, gradient, in, src, dst, settings, out);
  });
  return out;
}

void head_scores_kernel(Cpu, const Tensor& h, const Tensor& weight, const Tensor& s) {
  if (h.dtype() == DType::bf16) {
    InF32 wide;
    head_scores_kernel(Cpu{}, wide.read(h), weight, wide.write(s));
    return wide.finish();
  }
  const int64_t heads = h.size(1), width = h.size(2);
  with_real(h.dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(0, h.size(0), kHeadScoreRows, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * heads; i < end * heads; ++i) {
        const T* x = h.data<T>() + i * width;
        const T* w = weight.data<T>() + i % heads * width;
        T sum{0};
#pragma omp simd reduction(+ : sum)
        for (int64_t f = 0; f < width; ++f) sum += x[f] * w[f];
        s.mut<T>()[i] = sum;
      }
    });
  });
}

Tensor head_scores(const Tensor& h, const Tensor& weight) {
  check_scores(h, weight);
  const Tensor in = contiguous(h), w = contiguous(weight);
  Tensor s = Tensor::empty({h.size(0), h.size(1)}, h.dtype(), h.device());
  count_in_f32(h, {&in}, {&s}, {});
  dispatch(h.device(), [&](auto backend) { head_scores_kernel(backend, in, w, s); });
  return s;
}

void head_scores_backward_input_kernel(Cpu, const Tensor& ds, const Tensor& weight,
                                       const Tensor& dh) {
  if (ds.dtype() == DType::bf16) {
    InF32 wide;
    head_scores_backward_input_kernel(Cpu{}, wide.read(ds), weight, wide.write(dh));
    return wide.finish();
  }
  const int64_t heads = dh.size(1), width = dh.size(2);
  with_real(ds.dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(0, dh.size(0), kHeadScoreRows, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * heads; i < end * heads; ++i) {
        const T* w = weight.data<T>() + i % heads * width;
        const T factor = ds.data<T>()[i];
        T* out = dh.mut<T>() + i * width;
        for (int64_t f = 0; f < width; ++f) out[f] = factor * w[f];
      }
    });
  });
}

Tensor head_scores_backward_input(const Tensor& ds, const Tensor& weight) {
  check_dim("head_scores backward", "ds", ds, 2);
  const Tensor gradient = contiguous(ds), w = contiguous(weight);
  Tensor dh = Tensor::empty({ds.size(0), weight.size(1), weight.size(2)}, ds.dtype(), ds.device());
  count_in_f32(ds, {&gradient}, {&dh}, {});
  dispatch(ds.device(),
           [&](auto backend) { head_scores_backward_input_kernel(backend, gradient, w, dh); });
  return dh;
}

void head_scores_backward_weight_kernel(Cpu, const Tensor& ds, const Tensor& h,
                                        const Tensor& dweight) {
  if (h.dtype() == DType::bf16) {
    InF32 wide;
    head_scores_backward_weight_kernel(Cpu{}, wide.read(ds), wide.read(h), dweight);
    return wide.finish();
  }
  const int64_t nodes = h.size(0), heads = h.size(1), width = h.size(2), all = heads * width;
  const int64_t chunks = score_chunks(nodes);
  with_real(h.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor parts = workspace({chunks, all}, h.dtype());
    parallel_for(0, chunks, 1, [&](int64_t first, int64_t last) {
      for (int64_t c = first; c < last; ++c) {
        T* out = parts.mut<T>() + c * all;
        std::fill_n(out, all, T{0});
        for (int64_t v = c * kHeadScoreRows; v < std::min(nodes, (c + 1) * kHeadScoreRows); ++v)
          for (int64_t k = 0; k < heads; ++k) {
            const T factor = ds.data<T>()[v * heads + k];
            const T* x = h.data<T>() + v * all + k * width;
            for (int64_t f = 0; f < width; ++f) out[k * width + f] += factor * x[f];
          }
      }
    });
    std::fill_n(dweight.mut<T>(), all, T{0});
    for (int64_t c = 0; c < chunks; ++c)
      for (int64_t f = 0; f < all; ++f) dweight.mut<T>()[f] += parts.data<T>()[c * all + f];
  });
}

Tensor head_scores_backward_weight(const Tensor& ds, const Tensor& h) {
  check_shape("head_scores backward", "ds", ds, {h.size(0), h.size(1)});
  const Tensor gradient = contiguous(ds), in = contiguous(h);
  const DType sums = dtype_beside(h);
  Tensor dweight = Tensor::empty({1, h.size(1), h.size(2)}, sums, h.device());
  count_in_f32(h, {&gradient, &in}, {}, {{score_chunks(h.size(0)), h.size(1) * h.size(2)}});
  dispatch(h.device(), [&](auto backend) {
    head_scores_backward_weight_kernel(backend, gradient, in, dweight);
  });
  return dweight;
}

}  // namespace frugal::ops

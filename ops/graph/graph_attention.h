// Attention over the edges into each node; no tensor has one row for each edge.
// Nodes are f32 (SIMD), f64 or bf16. Beside bf16, parameters and their gradients are f32.
// Ref: Velickovic et al. 2018, equations 3 to 6.
#pragma once
#include "core/rng.h"
#include "ops/graph/graph.h"

namespace frugal::ops {

struct GraphAttentionSettings {
  double slope = 0.2;  // slope of leaky_relu below 0
  double dropout = 0;  // probability that a coefficient is dropped
  RngKey key{};
};

// y[i, k] = sum over edges j -> i of c_e h[j, k], where c_e = softmax, over the edges into i, of
// leaky_relu(a_src[j, k] + a_dst[i, k], slope). Dropout of the coefficients: c_e is kept if
// uniform(key, e * heads + k) >= dropout, with e counted in edges.by_row, and then multiplied by 1
// / (1 - dropout). Edge weights are ignored. A node without edges gets 0.
// h [V, heads, F], a_src and a_dst [V, heads] -> [V, heads, F].  Errors: extents that differ; more
// than 128 heads; a probability outside [0, 1].
Tensor graph_attention(const Graph& graph, const Tensor& h, const Tensor& a_src,
                       const Tensor& a_dst, const GraphAttentionSettings& settings);
void graph_attention_kernel(Cpu, const Graph& graph, const Tensor& h, const Tensor& a_src,
                            const Tensor& a_dst, const GraphAttentionSettings& settings,
                            const Tensor& y);
void graph_attention_kernel(Cuda, const Graph& graph, const Tensor& h, const Tensor& a_src,
                            const Tensor& a_dst, const GraphAttentionSettings& settings,
                            const Tensor& y);

struct GraphAttentionGradients {
  Tensor h, a_src, a_dst;
};
GraphAttentionGradients graph_attention_backward(const Graph& graph, const Tensor& dy,
                                                 const Tensor& h, const Tensor& a_src,
                                                 const Tensor& a_dst,
                                                 const GraphAttentionSettings& settings);
void graph_attention_backward_kernel(Cpu, const Graph& graph, const Tensor& dy, const Tensor& h,
                                     const Tensor& a_src, const Tensor& a_dst,
                                     const GraphAttentionSettings& settings,
                                     const GraphAttentionGradients& out);
void graph_attention_backward_kernel(Cuda, const Graph& graph, const Tensor& dy, const Tensor& h,
                                     const Tensor& a_src, const Tensor& a_dst,
                                     const GraphAttentionSettings& settings,
                                     const GraphAttentionGradients& out);

// s[v, k] = <h[v, k], weight[k]>: h [V, heads, F], weight [1, heads, F] -> [V, heads].
Tensor head_scores(const Tensor& h, const Tensor& weight);
void head_scores_kernel(Cpu, const Tensor& h, const Tensor& weight, const Tensor& s);
void head_scores_kernel(Cuda, const Tensor& h, const Tensor& weight, const Tensor& s);
// ds [V, heads] -> dh [V, heads, F] and dweight [1, heads, F].
Tensor head_scores_backward_input(const Tensor& ds, const Tensor& weight);
Tensor head_scores_backward_weight(const Tensor& ds, const Tensor& h);
void head_scores_backward_input_kernel(Cpu, const Tensor& ds, const Tensor& weight,
                                       const Tensor& dh);
void head_scores_backward_input_kernel(Cuda, const Tensor& ds, const Tensor& weight,
                                       const Tensor& dh);
void head_scores_backward_weight_kernel(Cpu, const Tensor& ds, const Tensor& h,
                                        const Tensor& dweight);
void head_scores_backward_weight_kernel(Cuda, const Tensor& ds, const Tensor& h,
                                        const Tensor& dweight);

}  // namespace frugal::ops

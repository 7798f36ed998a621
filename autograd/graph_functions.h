// The differentiable functions of graph networks. Nodes are rows: x [V, F]. f32 and f64; each
// function's formula, saved bytes and recipe stand in its .cpp (autograd/functions/). Graphs and
// sparse matrices are constants: a node of the autograd graph holds a pointer to them.
#pragma once
#include <memory>

#include "autograd/variable.h"
#include "core/rng.h"
#include "ops/graph/graph.h"

namespace frugal {

using GraphPtr = std::shared_ptr<const ops::Graph>;
using SparsePtr = std::shared_ptr<const ops::SparseMatrix>;

// Sums (mean, max) over the edges into each node: x [V, F] -> [V, F]; 0 for nodes without edges.
// y[i] = factor sum_{j -> i} value(j, i) x[j] + addend_factor addend[i] + bias
// (functions/spmm.cpp). The mean divides the sum by the number of edges. The max ignores the values
// of edges. Saves: nothing; max: one index an element, of 1 byte if no node has more than 256 edges
// into it, else of 4. Recipes: none, because a rebuilt output would cost a whole product.
struct SpmmTerms {
  double factor = 1;
  Variable bias = {};    // [F]
  Variable addend = {};  // [V, F]
  double addend_factor = 1;
};
// On the CPU, y is written over a large x that is moved in and whose bytes nobody else holds. The
// backward pass writes dx over dy likewise.
Variable spmm(const GraphPtr& graph, Variable x);
Variable spmm(const GraphPtr& graph, Variable x, const SpmmTerms& terms);
Variable neighbour_mean(const GraphPtr& graph, Variable x);
Variable neighbour_mean(const GraphPtr& graph, Variable x, const SpmmTerms& terms);
Variable neighbour_max(const GraphPtr& graph, const Variable& x);

// x [V, F] sparse and constant, weight [O, F], bias [O] or undefined -> x weight^T + bias [V, O];
// no dense x is made. With dropout, each entry e of x is kept and scaled by 1 / (1 - dropout) where
// uniform(key, e) >= dropout.  Saves: the key. Recipe: the same product again, exact, where rows of
// x have few entries (up to 64 on average).
Variable sparse_linear(const SparsePtr& x, const Variable& weight, const Variable& bias = {},
                       double dropout = 0, RngKey key = {});

// linear() and dropout() (autograd/functions.h) of an x that is moved in. If nobody else holds its
// bytes, also because x is packed or will be rebuilt, they are written over with y: by linear() on
// the CPU, where x is large, y has its shape and a policy packs in slices; by dropout() always.
Variable linear_over(Variable x, const Variable& weight, const Variable& bias = {});
Variable dropout_over(Variable x, double p, RngKey key);

// Rows by index (functions/gather.cpp): x [V, F], index [E] i64 -> [E, F].  Saves: index.
Variable gather_rows(const Variable& x, const Tensor& index);
// x [E, F], index [E] i64 in [0, rows) -> [rows, F]; a row that no index names gets 0.  Saves:
// index; max: one index of 4 bytes an element.
Variable segment_sum(const Variable& x, const Tensor& index, int64_t rows);
Variable segment_mean(const Variable& x, const Tensor& index, int64_t rows);
Variable segment_max(const Variable& x, const Tensor& index, int64_t rows);
// Softmax of each column over the elements of equal index: [E, F] -> [E, F].
// Saves: y, index; under a lossy policy y^2, too.
Variable segment_softmax(const Variable& x, const Tensor& index, int64_t rows);

// Graph attention (functions/graph_attention.cpp): h [V, heads, F], a_src and a_dst [V, heads] ->
// y[i] = sum_{j -> i} softmax_j(leaky_relu(a_src[j] + a_dst[i], slope)) h[j], with dropout of the
// coefficients. No tensor with a row for each edge is made.  Saves: h, without loss where heads * F
// is at most 16; a_src and a_dst, without loss, because the coefficients are not linear in them.
// Ref: Velickovic et al. 2018, eq. 3 to 6.
struct GraphAttentionOptions {
  double slope = 0.2;
  double dropout = 0;
  RngKey key{};
};
Variable graph_attention(const GraphPtr& graph, const Variable& h, const Variable& a_src,
                         const Variable& a_dst, const GraphAttentionOptions& options = {});
// s[v, k] = <h[v, k], weight[k]>: h [V, heads, F], weight [1, heads, F] -> [V, heads].
// Saves: h, weight.
Variable head_scores(const Variable& h, const Variable& weight);

// (1 - beta) x + beta x weight: x [V, C], weight [C, C] (functions/identity_linear.cpp), in one
// product.  Saves: x, weight.  Ref: Chen et al. 2020, equation 5.
Variable identity_linear(const Variable& x, const Variable& weight, double beta);

// Activations that share what they save with the op that consumes them (functions/elu.cpp).
// x where x > 0, else exp(x) - 1.  Saves: y and its sign, 1 bit an element, which the codes of y
// may carry. Recipe: y itself.
Variable elu(const Variable& x);
// dropout(relu(x)): 0 where x <= 0 or uniform(key, i) < p, else x / (1 - p).  Saves: a mask of the
// elements that are not 0, 1 bit each, which the codes of the output may carry. Recipe: linear,
// where x has one.
Variable relu_dropout(const Variable& x, double p, RngKey key);

}  // namespace frugal

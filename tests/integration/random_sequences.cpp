// Steps of random graphs that see tokens or nodes in their rows.
#include <cmath>

#include "autograd/adapter_functions.h"
#include "autograd/graph_functions.h"
#include "autograd/packed_functions.h"
#include "autograd/transformer_functions.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/packed_matrix.h"
#include "ops/graph/graph.h"
#include "tests/integration/random_builder.h"

namespace frugal {
namespace {

using Builder = GraphBuilder;

Tensor integers(Builder& b, const Shape& shape, int64_t below) {
  const CategoryScope scope(Category::input);
  const Tensor all = Tensor::empty(shape, DType::i64, b.device());
  for (int64_t i = 0; i < all.numel(); ++i) {
    const int64_t value = b.pick(0, below - 1);
    if (b.device().type != DeviceType::meta) all.mut<int64_t>()[i] = value;
  }
  return all;
}

// x as nodes: [V, F] with at most 64 nodes; undefined: too many.
Variable as_nodes(const Variable& x) {
  const int64_t nodes = x.value().numel() / x.size(-1);
  return nodes == 0 || nodes > 64 ? Variable() : reshape(x, {nodes, x.size(-1)});
}

GraphPtr edges_between(Builder& b, int64_t nodes, ops::EdgeNorm norm) {
  const Tensor edges = integers(b, {2, 2 * nodes}, nodes);
  ops::GraphOptions options;
  options.norm = norm;
  return std::make_shared<ops::Graph>(ops::make_graph(edges, nodes, options));
}

// x as sequences [N, T, H], H even and at most 16 wide.
bool is_sequence(const Variable& x) {
  return x.value().dim() == 3 && x.size(2) % 2 == 0 && x.size(2) <= 16 && x.size(1) <= 32 &&
         x.value().numel() > 0;
}
// Others become some.
Variable as_sequence(const Variable& x) {
  const int64_t n = x.value().numel();
  if (is_sequence(x)) return x;
  return n % 8 != 0 || n > 512 || n == 0 ? Variable() : reshape(x, {1, n / 8, 8});
}

Variable like(const Variable& y, const Variable& x) { return reshape(y, x.shape()); }

// What adapters and packed weights compute: one of three functions.
Variable beside_frozen_weights(Builder& b, const Variable& x) {
  const int64_t in = x.size(-1);
  if (x.value().numel() == 0 || in > 64) return Variable();
  const double limit = 1 / std::sqrt(static_cast<double>(in));
  const int64_t kind = b.pick(0, 2);
  if (kind == 0 && b.device().type != DeviceType::cuda) {
    constexpr ops::MatrixFormat kFormats[] = {ops::MatrixFormat::bf16, ops::MatrixFormat::int8,
                                              ops::MatrixFormat::nf4};
    const int64_t out = b.pick(2, 8);
    const Tensor weight = ops::cast(b.constant({out, in}, limit), DType::f32);
    return packed_linear(x, ops::pack_matrix(weight, kFormats[b.pick(0, 2)]),
                         b.maybe_parameter({out}));
  }
  if (kind == 1) {
    const Tensor norm = ops::affine(b.constant({in}, 0.25), 1, 1);
    return scale_to_magnitude(x, b.parameter({in}), norm, b.maybe_parameter({in}));
  }
  LowRankOptions options{.scale = 0.5};
  if (b.chance(50)) {
    options.dropout = 0.25;
    options.key = b.dropout_key();
  }
  return add_low_rank(tanh(x), x, b.parameter({2, in}, limit), b.parameter({in, 2}), options);
}

const Choice kChoices[] = {
    {beside_frozen_weights, 2},
    {[](Builder& b, const Variable& x) {
       const Gate kind = b.chance(50) ? Gate::silu : b.chance(50) ? Gate::gelu : Gate::gelu_tanh;
       return gated(x, tanh(b.partner(x, false).variable), kind);
     },
     0},
    {[](Builder& b, const Variable& x) {
       const Shape width{x.size(-1)};
       return x.size(-1) < 2 ? Variable()
                             : layer_norm(x, b.maybe_parameter(width), b.maybe_parameter(width));
     },
     -4},
    {[](Builder& b, const Variable& x) {
       const Shape width{x.size(-1)};
       return x.size(-1) < 2
                  ? Variable()
                  : layer_norm_relu(x, b.maybe_parameter(width), b.maybe_parameter(width));
     },
     -4},
    {[](Builder& b, const Variable& x) {
       return rms_norm(x, b.maybe_parameter({x.size(-1)}), 0.1);
     },
     -4},
    {[](Builder& b, const Variable& x) {
       const int64_t c = x.size(-1), groups = c % 2 == 0 ? 2 : 1;
       if (x.value().dim() < 2 || x.value().numel() / x.size(0) / groups < 2) return Variable();
       return group_norm(x, groups, b.maybe_parameter({c}), b.maybe_parameter({c}), 0.1);
     },
     -4},
    {[](Builder& b, const Variable& x) {
       const int64_t in = x.size(-1), out = b.chance(50) ? in : b.pick(2, 8);
       if (in > 64) return Variable();
       const Variable weight = b.parameter({out, in}, 1 / std::sqrt(static_cast<double>(in)));
       return linear_gelu(x, weight, b.maybe_parameter({out}),
                          b.chance(50) ? Gelu::exact : Gelu::tanh);
     },
     1},
    {[](Builder& b, const Variable& x) {
       const int64_t in = x.size(-1), out = b.chance(50) ? in : b.pick(2, 8);
       if (in > 64) return Variable();
       const Variable weight = b.parameter({out, in}, 1 / std::sqrt(static_cast<double>(in)));
       return linear_relu(x, weight, b.maybe_parameter({out}));
     },
     1},
    // A lookup beside x: ids are no function of it.
    {[](Builder& b, const Variable& x) {
       if (x.value().dim() < 2) return Variable();
       Shape rows = x.shape();
       rows = Shape(std::span<const int64_t>(rows.begin(), static_cast<size_t>(rows.dim() - 1)));
       const Tensor ids = integers(b, rows, 5);
       return add(x, embedding(ids, b.parameter({5, x.size(-1)})));
     },
     1},
    {[](Builder& b, const Variable& x) {
       const Variable tokens = as_sequence(x);
       if (!tokens.defined()) return Variable();
       const int64_t n = tokens.size(0), t = tokens.size(1), h = tokens.size(2);
       const Variable q = reshape(tanh(tokens), {n, t, 2, h / 2});
       const Variable k = h % 4 == 0 ? rotary_embedding(q) : q;
       AttentionOptions options;
       options.causal = b.chance(50);
       if (b.chance(50)) {
         options.dropout = 0.25;
         options.key = b.dropout_key();
       }
       const Variable bias = b.chance(30) ? b.parameter({2, t, t}) : Variable();
       const Variable v = reshape(tokens, {n, t, 2, h / 2});
       return like(scaled_dot_product_attention(q, k, v, {}, bias, options), x);
     },
     1},
    {[](Builder& b, const Variable& x) {
       const Variable tokens = as_sequence(x);
       if (!tokens.defined()) return Variable();
       const int64_t n = tokens.size(0), t = tokens.size(1), h = tokens.size(2);
       const Variable weight = b.parameter({3 * h, h}, 1 / std::sqrt(static_cast<double>(h)));
       const Variable qkv = linear(tanh(tokens), weight);
       return like(qkv_attention(reshape(qkv, {n, t, 6, h / 2})), x);
     },
     -2},
    {[](Builder& b, const Variable& x) {
       const Variable tokens = as_sequence(x);
       if (!tokens.defined()) return Variable();
       const int64_t h = tokens.size(2), k = b.pick(2, 6);
       return conv1d(tokens, b.parameter({k, 3, h}, 0.5), b.maybe_parameter({k}), b.pick(1, 2), 1);
     },
     2},
    {[](Builder& b, const Variable& x) {
       const Variable nodes = as_nodes(x);
       if (!nodes.defined()) return Variable();
       const GraphPtr graph = edges_between(b, nodes.size(0), ops::EdgeNorm::symmetric);
       if (b.chance(50)) return like(spmm(graph, nodes), x);
       SpmmTerms terms;
       terms.bias = b.maybe_parameter({nodes.size(1)});
       terms.addend = nodes;
       terms.addend_factor = 0.5;
       return like(spmm(graph, nodes, terms), x);
     },
     2},
    {[](Builder& b, const Variable& x) {
       const Variable nodes = as_nodes(x);
       if (!nodes.defined()) return Variable();
       return like(neighbour_mean(edges_between(b, nodes.size(0), ops::EdgeNorm::none), nodes), x);
     },
     0},
    {[](Builder& b, const Variable& x) {
       const Variable nodes = as_nodes(x);
       if (!nodes.defined()) return Variable();
       return like(neighbour_max(edges_between(b, nodes.size(0), ops::EdgeNorm::none), nodes), x);
     },
     0},
    {[](Builder& b, const Variable& x) {
       const Variable nodes = as_nodes(x);
       if (!nodes.defined()) return Variable();
       const int64_t v = nodes.size(0), features = 5;
       const Tensor row_ptr = integers(b, {v + 1}, 1);
       if (b.device().type != DeviceType::meta)
         for (int64_t i = 0; i <= v; ++i) row_ptr.mut<int64_t>()[i] = 2 * i;
       const auto sparse = std::make_shared<ops::SparseMatrix>(
           ops::make_sparse(row_ptr, integers(b, {2 * v}, features), {}, features));
       const Variable weight = b.parameter({nodes.size(1), features}, 0.5);
       return like(add(nodes, sparse_linear(sparse, weight)), x);
     },
     1},
    {[](Builder& b, const Variable& x) {
       const Variable nodes = as_nodes(x);
       if (!nodes.defined() || nodes.size(1) > 32) return Variable();
       const int64_t c = nodes.size(1);
       return like(identity_linear(nodes, b.parameter({c, c}, 0.5), 0.25), x);
     },
     1},
    {[](Builder& b, const Variable& x) {
       const Variable nodes = as_nodes(x);
       if (!nodes.defined()) return Variable();
       const int64_t v = nodes.size(0);
       const Tensor to = integers(b, {2 * v}, v);
       const Variable edges = gather_rows(nodes, integers(b, {2 * v}, v));
       switch (b.pick(0, 4)) {
         case 0:
           return like(segment_sum(edges, to, v), x);
         case 1:
           return like(segment_mean(edges, to, v), x);
         case 2:
           return like(segment_max(edges, to, v), x);
         default:
           return like(segment_sum(mul(edges, segment_softmax(edges, to, v)), to, v), x);
       }
     },
     3},
    {[](Builder& b, const Variable& x) {
       const Variable nodes = as_nodes(x);
       if (!nodes.defined() || nodes.size(1) % 2 != 0) return Variable();
       const int64_t v = nodes.size(0), f = nodes.size(1) / 2;
       const Variable h = reshape(nodes, {v, 2, f});
       const Variable from = head_scores(tanh(h), b.parameter({1, 2, f}));
       const Variable to = head_scores(tanh(h), b.parameter({1, 2, f}));
       GraphAttentionOptions options;
       if (b.chance(50)) {
         options.dropout = 0.25;
         options.key = b.dropout_key();
       }
       return like(graph_attention(edges_between(b, v, ops::EdgeNorm::none), h, from, to, options),
                   x);
     },
     1},
    {[](Builder&, const Variable& x) { return elu(x); }, 0},
    {[](Builder& b, const Variable& x) { return relu_dropout(x, 0.25, b.dropout_key()); }, 1},
};

}  // namespace

std::span<const Choice> sequence_choices() { return kChoices; }

}  // namespace frugal

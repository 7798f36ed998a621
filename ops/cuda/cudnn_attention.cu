#include "ops/cuda/cudnn_attention.h"

#include <limits>

#include "ops/cuda/cudnn_graphs.h"
#include "ops/precision.h"

namespace frugal::ops::cudnn {
namespace {

enum Id : int64_t {
  kQ = 1,
  kK,
  kV,
  kY,
  kLse,
  kScale,
  kHidden,
  kHiddenKeys,
  kDy,
  kDelta,
  kOne,
  kSumOfDq,
  kDq,
  kDk,
  kDv,
  kFirstBetween
};
using Dims = std::vector<int64_t>;

bool is_aligned(const void* data, const Shape& strides) {
  for (int axis = 0; axis < 3; ++axis)
    if (strides[axis] % 8 != 0) return false;
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

// What the graphs of both passes are made of. All values between operations are f32, except the
// operands of products that come from there.
class Builder {
 public:
  // hidden_rows: rows of what hides keys, 1 or T.
  Builder(const Attention& p, int64_t hidden_rows) : p_(p), hidden_rows_(hidden_rows) {}

 protected:
  // [N, heads, T or S, D]
  const Descriptor& data(int64_t id, int64_t rows, const Shape& strides) {
    return data(id, {p_.n, p_.heads, rows, p_.d}, {strides[0], strides[2], strides[1], strides[3]});
  }
  // [N, heads, D, S], which is how cuDNN's engines want keys.
  const Descriptor& transposed(int64_t id, const Shape& strides) {
    return data(id, {p_.n, p_.heads, p_.d, p_.s}, {strides[0], strides[2], strides[3], strides[1]});
  }
  // f32 [N, heads, T, 1]
  const Descriptor& of_rows(int64_t id) {
    Operand x;
    x.id = id;
    x.dims = {p_.n, p_.heads, p_.t, 1};
    x.strides = {p_.heads * p_.t, p_.t, 1, 1};
    return graph_.tensor(x);
  }
  const Descriptor& number(int64_t id) {
    Operand x;
    x.id = id;
    x.dims = x.strides = {1, 1, 1, 1};
    x.alignment = 4;
    x.is_by_value = true;
    return graph_.tensor(x);
  }
  const Descriptor& between(Dims dims, Dims strides, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    Operand x;
    x.id = next_++;
    x.type = type;
    x.dims = std::move(dims);
    x.strides = std::move(strides);
    x.is_virtual = true;
    return graph_.tensor(x);
  }
  const Descriptor& between(int64_t columns, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return between({p_.n, p_.heads, p_.t, columns},
                   {p_.heads * p_.t * columns, p_.t * columns, columns, 1}, type);
  }
  const Descriptor& scores() { return between(p_.s); }

  void multiply(const Descriptor& a, const Descriptor& b, const Descriptor& c) {
    Descriptor& how = graph_.part(CUDNN_BACKEND_MATMUL_DESCRIPTOR, "matmul")
                          .set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT)
                          .finalize();
    graph_.add(graph_.part(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "matmul operation")
                   .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
                   .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
                   .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c)
                   .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how));
  }
  void reduce(cudnnReduceTensorOp_t with, const Descriptor& x, const Descriptor& y) {
    Descriptor& how = graph_.part(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "reduction")
                          .set(CUDNN_ATTR_REDUCTION_OPERATOR, with)
                          .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
                          .finalize();
    graph_.add(graph_.part(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "reduction operation")
                   .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
                   .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y)
                   .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how));
  }
  // y is the memory of x, seen with other dimensions.
  void reshape(const Descriptor& x, const Descriptor& y) {
    graph_.add(graph_.part(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "reshape operation")
                   .set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x)
                   .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y));
  }
  const Descriptor& pointwise(cudnnPointwiseMode_t mode, const Descriptor& x,
                              const Descriptor* b = nullptr) {
    const Descriptor& y = scores();
    graph_.pointwise(mode, x, b, y);
    return y;
  }

  // The scores of all pairs, without those that nobody sees.
  const Descriptor& seen_scores(const Descriptor& q, const Descriptor& keys) {
    const Descriptor& products = scores();
    multiply(q, keys, products);
    const Descriptor* x = &pointwise(CUDNN_POINTWISE_MUL, products, &number(kScale));
    if (p_.hides) {
      Operand hidden;
      hidden.id = kHiddenKeys;
      hidden.dims = {p_.n, 1, hidden_rows_, p_.s};
      hidden.strides = {hidden_rows_ * p_.s, hidden_rows_ * p_.s, p_.s, 1};
      hidden.alignment = 4;
      x = &pointwise(CUDNN_POINTWISE_ADD, *x, &graph_.tensor(hidden));
    }
    return *x;
  }
  // x where the query may see the key (its position is not below the key's), else kHidden.
  const Descriptor& hide_later(const Descriptor& x) {
    if (!p_.causal) return x;
    const Descriptor &query = positions(x, 2), &key = positions(x, 3);
    const Descriptor &sees = between(p_.s, CUDNN_DATA_BOOLEAN), &seen = scores();
    graph_.add(masking(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, query)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, key)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, sees));
    graph_.add(masking(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, number(kHidden))
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, sees)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, seen));
    return seen;
  }

  const Attention& p_;
  int64_t hidden_rows_;
  Graph graph_;

 private:
  const Descriptor& data(int64_t id, Dims dims, Dims strides) {
    Operand x;
    x.id = id;
    x.type = CUDNN_DATA_BFLOAT16;
    x.dims = std::move(dims);
    x.strides = std::move(strides);
    return graph_.tensor(x);
  }
  Descriptor& masking(cudnnPointwiseMode_t mode, cudnnDataType_t computed, int64_t axis = -1) {
    Descriptor& how = graph_.part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "mask")
                          .set(CUDNN_ATTR_POINTWISE_MODE, mode)
                          .set(CUDNN_ATTR_POINTWISE_MATH_PREC, computed);
    if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
    return graph_.part(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "mask operation")
        .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how.finalize());
  }
  const Descriptor& positions(const Descriptor& like, int64_t axis) {
    const Descriptor& at = between(p_.s, CUDNN_DATA_INT32);
    graph_.add(masking(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, like)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at));
    return at;
  }

  int64_t next_ = kFirstBetween;
};

// The graph that cuDNN's attention engines know: product, scale, mask, softmax with the logarithm
// of its sums, product.
class Forward : Builder {
 public:
  explicit Forward(const Attention& p) : Builder(p, 1) {}
  Graph build() {
    const Descriptor &q = data(kQ, p_.t, p_.q), &keys = transposed(kK, p_.k);
    const Descriptor &values = data(kV, p_.s, p_.v), &y = data(kY, p_.t, p_.y);
    const Descriptor& lse = of_rows(kLse);
    const Descriptor& seen = hide_later(seen_scores(q, keys));
    const Descriptor &most = between(1), &sum = between(1), &logarithm = between(1);
    reduce(CUDNN_REDUCE_TENSOR_MAX, seen, most);
    const Descriptor& powers =
        pointwise(CUDNN_POINTWISE_EXP, pointwise(CUDNN_POINTWISE_SUB, seen, &most));
    reduce(CUDNN_REDUCE_TENSOR_ADD, powers, sum);
    graph_.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, logarithm);
    graph_.pointwise(CUDNN_POINTWISE_ADD, most, &logarithm, lse);
    const Descriptor& probabilities = between(p_.s, CUDNN_DATA_BFLOAT16);
    graph_.pointwise(CUDNN_POINTWISE_DIV, powers, &sum, probabilities);
    multiply(probabilities, values, y);
    return std::move(graph_);
  }
};

// The graph of the backward pass that the engines know: delta = <dy, y>; P = exp(scores - lse);
// dv = P^T dy; the gradient of the scores, P (dy v^T - delta) scale; dk and dq. An engine adds
// parts of dq in any order (`adds_anyhow`), or keeps the gradient of the scores in its workspace.
//
// What hides keys has a row for each query here. On an H100, the engines of cuDNN 9.19 took one row
// for all queries, too, and left it out: hidden keys had gradients.
class Backward : Builder {
 public:
  explicit Backward(const Attention& p) : Builder(p, p.t) {}
  Graph build(bool adds_anyhow) {
    const Descriptor &q = data(kQ, p_.t, p_.q), &keys = transposed(kK, p_.k);
    const Descriptor &values = transposed(kV, p_.v), &y = data(kY, p_.t, p_.y);
    const Descriptor &dy = data(kDy, p_.t, p_.dy), &lse = of_rows(kLse), &delta = of_rows(kDelta);
    const Descriptor &terms = between(p_.d), &sums = between(1);
    graph_.pointwise(CUDNN_POINTWISE_MUL, dy, &y, terms);
    reduce(CUDNN_REDUCE_TENSOR_ADD, terms, sums);
    graph_.pointwise(CUDNN_POINTWISE_MUL, sums, &number(kOne), delta);

    const Descriptor& below = pointwise(CUDNN_POINTWISE_SUB, seen_scores(q, keys), &lse);
    const Descriptor& probabilities = pointwise(CUDNN_POINTWISE_EXP, hide_later(below));
    multiply(turned(probabilities), dy, data(kDv, p_.s, p_.dv));

    const Descriptor& products = scores();
    multiply(dy, values, products);
    const Descriptor& centered = pointwise(CUDNN_POINTWISE_SUB, products, &delta);
    const Descriptor& weighted = pointwise(CUDNN_POINTWISE_MUL, centered, &probabilities);
    const Descriptor& gradient = pointwise(CUDNN_POINTWISE_MUL, weighted, &number(kScale));
    multiply(turned(gradient), q, data(kDk, p_.s, p_.dk));

    const Descriptor& rows = between({p_.n, p_.heads, p_.s, p_.d},
                                     {p_.k[0], p_.k[2], p_.k[1], p_.k[3]}, CUDNN_DATA_BFLOAT16);
    reshape(keys, rows);
    const Descriptor& dq = data(kDq, p_.t, p_.dq);
    if (!adds_anyhow) {
      multiply(gradient, rows, dq);
      return std::move(graph_);
    }
    Operand sum;
    sum.id = kSumOfDq;
    sum.dims = {p_.n, p_.heads, p_.t, p_.d};
    sum.strides = {p_.heads * p_.t * p_.d, p_.t * p_.d, p_.d, 1};
    const Descriptor& sum_of_dq = graph_.tensor(sum);
    multiply(gradient, rows, sum_of_dq);
    graph_.pointwise(CUDNN_POINTWISE_IDENTITY, sum_of_dq, nullptr, dq);
    return std::move(graph_);
  }

 private:
  // [N, heads, S, T] in bf16
  const Descriptor& turned(const Descriptor& x) {
    const Descriptor& y =
        between({p_.n, p_.heads, p_.s, p_.t}, {p_.heads * p_.t * p_.s, p_.t * p_.s, 1, p_.s},
                CUDNN_DATA_BFLOAT16);
    reshape(x, y);
    return y;
  }
};

int64_t most_workspace() { return library_workspace(convolution_workspace(), false); }

std::string key_of(const char* pass, const Attention& p) {
  return fmt::format("{}{}{} {} {} {} {} {} q {} k {} v {} y {}{}", pass, p.causal ? " causal" : "",
                     p.hides ? " padded" : "", p.n, p.t, p.s, p.heads, p.d, p.q, p.k, p.v, p.y,
                     deterministic() ? "" : " any order");
}

constexpr float kLowest = std::numeric_limits<float>::lowest(), kUnit = 1;

std::vector<Binding> bindings_of(const Attention& p, const AttentionData& data) {
  std::vector<Binding> all{{kQ, data.q}, {kK, data.k},     {kV, data.v},
                           {kY, data.y}, {kLse, data.lse}, {kScale, &p.scale}};
  if (p.causal) all.push_back({kHidden, &kLowest});
  if (p.hides) all.push_back({kHiddenKeys, data.hidden});
  return all;
}

bool is_aligned(const Attention& p, const AttentionData& data) {
  return is_aligned(data.q, p.q) && is_aligned(data.k, p.k) && is_aligned(data.v, p.v) &&
         is_aligned(data.y, p.y);
}

}  // namespace

Graph attention_graph(const Attention& p) { return Forward(p).build(); }
Graph attention_backward_graph(const Attention& p, bool adds_anyhow) {
  return Backward(p).build(adds_anyhow);
}

bool attend(const Attention& p, const AttentionData& data) {
  if (!is_aligned(p, data)) return false;
  return run(
      key_of("attention", p), {false, most_workspace()}, [&] { return attention_graph(p); },
      bindings_of(p, data));
}

bool attend_backward(const Attention& p, const AttentionGradientData& data) {
  if (!is_aligned(p, data.forward) || !is_aligned(data.dy, p.dy) || !is_aligned(data.dq, p.dq) ||
      !is_aligned(data.dk, p.dk) || !is_aligned(data.dv, p.dv))
    return false;
  const bool adds_anyhow = !deterministic();
  std::vector<Binding> bindings = bindings_of(p, data.forward);
  for (const Binding& binding :
       {Binding{kDy, data.dy}, Binding{kDelta, data.delta}, Binding{kOne, &kUnit},
        Binding{kDq, data.dq}, Binding{kDk, data.dk}, Binding{kDv, data.dv}})
    bindings.push_back(binding);
  if (adds_anyhow) bindings.push_back({kSumOfDq, data.sum_of_dq});
  return run(
      fmt::format("{} dq {} dk {} dv {} dy {}", key_of("attention backward", p), p.dq, p.dk, p.dv,
                  p.dy),
      {false, most_workspace()}, [&] { return attention_backward_graph(p, adds_anyhow); },
      bindings);
}

}  // namespace frugal::ops::cudnn

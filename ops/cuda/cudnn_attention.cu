#include "ops/cuda/cudnn_attention.h"

#include <limits>

#include "ops/cuda/cudnn_graph.h"
#include "ops/precision.h"

namespace frugal::ops::cudnn {
namespace {

enum Id : int64_t { kQ = 1, kK, kV, kY, kLse, kScale, kHidden, kFirstBetween };

bool is_aligned(const void* data, const Shape& strides) {
  for (int axis = 0; axis < 3; ++axis)
    if (strides[axis] % 8 != 0) return false;
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

// The graph that cuDNN's attention engines know: product, scale, mask, softmax with the logarithm
// of its sums, product. All values in between are f32, except the probabilities.
class Builder {
 public:
  explicit Builder(const Attention& p) : p_(p) {}

  Graph build() {
    const Descriptor& q = data(kQ, {p_.n, p_.heads, p_.t, p_.d}, heads_first(p_.q));
    const Shape& k = p_.k;  // transposed
    const Descriptor& keys = data(kK, {p_.n, p_.heads, p_.d, p_.s}, {k[0], k[2], k[3], k[1]});
    const Descriptor& values = data(kV, {p_.n, p_.heads, p_.s, p_.d}, heads_first(p_.v));
    const Descriptor& y = data(kY, {p_.n, p_.heads, p_.t, p_.d}, heads_first(p_.y));
    Operand rows;
    rows.id = kLse;
    rows.dims = {p_.n, p_.heads, p_.t, 1};
    rows.strides = {p_.heads * p_.t, p_.t, 1, 1};
    const Descriptor& lse = graph_.tensor(rows);

    const Descriptor &products = scores(), &scaled = scores();
    multiply(q, keys, products);
    graph_.pointwise(CUDNN_POINTWISE_MUL, products, &number(kScale), scaled);
    const Descriptor& seen = p_.causal ? hide_later(scaled) : scaled;
    const Descriptor &most = between(1), &below = scores(), &powers = scores();
    const Descriptor &sum = between(1), &logarithm = between(1);
    reduce(CUDNN_REDUCE_TENSOR_MAX, seen, most);
    graph_.pointwise(CUDNN_POINTWISE_SUB, seen, &most, below);
    graph_.pointwise(CUDNN_POINTWISE_EXP, below, nullptr, powers);
    reduce(CUDNN_REDUCE_TENSOR_ADD, powers, sum);
    graph_.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, logarithm);
    graph_.pointwise(CUDNN_POINTWISE_ADD, most, &logarithm, lse);
    const Descriptor& probabilities = between(p_.s, CUDNN_DATA_BFLOAT16);
    graph_.pointwise(CUDNN_POINTWISE_DIV, powers, &sum, probabilities);
    multiply(probabilities, values, y);
    return std::move(graph_);
  }

 private:
  static std::vector<int64_t> heads_first(const Shape& strides) {
    return {strides[0], strides[2], strides[1], strides[3]};
  }
  const Descriptor& data(int64_t id, std::vector<int64_t> dims, std::vector<int64_t> strides) {
    Operand x;
    x.id = id;
    x.type = CUDNN_DATA_BFLOAT16;
    x.dims = std::move(dims);
    x.strides = std::move(strides);
    return graph_.tensor(x);
  }
  const Descriptor& between(int64_t columns, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    Operand x;
    x.id = next_++;
    x.type = type;
    x.dims = {p_.n, p_.heads, p_.t, columns};
    x.strides = {p_.heads * p_.t * columns, p_.t * columns, columns, 1};
    x.is_virtual = true;
    return graph_.tensor(x);
  }
  const Descriptor& scores() { return between(p_.s); }
  const Descriptor& number(int64_t id) {
    Operand x;
    x.id = id;
    x.dims = x.strides = {1, 1, 1, 1};
    x.alignment = 4;
    x.is_by_value = true;
    return graph_.tensor(x);
  }

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
  Descriptor& pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t computed, int64_t axis = -1) {
    Descriptor& how = graph_.part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "mask")
                          .set(CUDNN_ATTR_POINTWISE_MODE, mode)
                          .set(CUDNN_ATTR_POINTWISE_MATH_PREC, computed);
    if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
    return graph_.part(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "mask operation")
        .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how.finalize());
  }
  const Descriptor& positions(const Descriptor& like, int64_t axis) {
    const Descriptor& at = between(p_.s, CUDNN_DATA_INT32);
    graph_.add(pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, like)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at));
    return at;
  }
  // x where the query may see the key (its position is not below the key's), else kHidden.
  const Descriptor& hide_later(const Descriptor& x) {
    const Descriptor &query = positions(x, 2), &key = positions(x, 3);
    const Descriptor &sees = between(p_.s, CUDNN_DATA_BOOLEAN), &seen = scores();
    graph_.add(pointwise(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, query)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, key)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, sees));
    graph_.add(pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, number(kHidden))
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, sees)
                   .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, seen));
    return seen;
  }

  const Attention& p_;
  Graph graph_;
  int64_t next_ = kFirstBetween;
};

}  // namespace

bool attend(const Attention& p, const AttentionData& data) {
  if (!is_aligned(data.q, p.q) || !is_aligned(data.k, p.k) || !is_aligned(data.v, p.v) ||
      !is_aligned(data.y, p.y))
    return false;
  const std::string key = fmt::format("attention{} {} {} {} {} {} q {} k {} v {} y {}{}",
                                      p.causal ? " causal" : "", p.n, p.t, p.s, p.heads, p.d, p.q,
                                      p.k, p.v, p.y, deterministic() ? "" : " any order");
  const float hidden = std::numeric_limits<float>::lowest();
  std::vector<Binding> bindings{{kQ, data.q}, {kK, data.k},     {kV, data.v},
                                {kY, data.y}, {kLse, data.lse}, {kScale, &p.scale}};
  if (p.causal) bindings.push_back({kHidden, &hidden});
  return run(
      key, {false, library_workspace(convolution_workspace(), false)},
      [&] { return Builder(p).build(); }, bindings);
}

}  // namespace frugal::ops::cudnn

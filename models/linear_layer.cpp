#include <algorithm>
#include <cmath>

#include "autograd/adapter_functions.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "models/layers.h"
#include "models/matrix_weight.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/matmul.h"
#include "ops/dense/reduce.h"

namespace frugal::models {
namespace {

constexpr const char* kLowRankA = "lora_A.weight";
constexpr const char* kLowRankB = "lora_B.weight";
constexpr const char* kMagnitudeVector = "lora_magnitude_vector";

// The rows from `begin` to before `end` of weight + scale b a.
Tensor adapted_rows(const MatrixWeight& weight, const LinearLayer::Adapter& adapter, int64_t begin,
                    int64_t end) {
  const Tensor more = ops::matmul(adapter.b.value().slice(0, begin, end), adapter.a.value());
  return ops::add(weight.rows(begin, end, more.dtype()), ops::affine(more, adapter.scale, 0));
}

// Calls f(begin, end) for rows of a weight [rows, columns] that take a few MiB at once.
template <class F>
void for_rows(const MatrixWeight& matrix, F f) {
  constexpr int64_t kElements = int64_t{1} << 20;
  const int64_t rows = matrix.out(), step = std::max<int64_t>(1, kElements / matrix.in());
  for (int64_t begin = 0; begin < rows; begin += step) f(begin, std::min(begin + step, rows));
}

}  // namespace

LinearLayer::LinearLayer(Tensor weight, Layout layout)
    : weight_(register_matrix("weight", std::move(weight), layout)) {}

const Variable& LinearLayer::weight() const { return weight_->variable(); }

void LinearLayer::set_bias(Tensor bias) { bias_ = register_parameter("bias", std::move(bias)); }

Variable LinearLayer::forward(Variable x, Context& context) {
  Variable y = linear(x, *weight_, bias_);
  if (adapter_ == nullptr) return y;
  LowRankOptions options{.scale = adapter_->scale};
  if (adapter_->dropout > 0 && context.training) {
    FRUGAL_CHECK(context.rng != nullptr, "[dropout] expected a random stream, got none");
    options.dropout = adapter_->dropout;
    options.key = context.rng->next();
  }
  y = add_low_rank(std::move(y), x, adapter_->a, adapter_->b, options);
  x = {};
  if (!adapter_->magnitude.defined()) return y;
  return scale_to_magnitude(y, adapter_->magnitude, adapted_norms(), bias_);
}

void LinearLayer::add_adapter(Init& init, const AdapterOptions& options) {
  FRUGAL_CHECK(adapter_ == nullptr, "[adapter] expected a layer without an adapter, got one with");
  const int64_t in = weight_->in(), out = weight_->out(), rank = options.rank;
  const auto of_weight = [&](const Tensor& values) {
    const CategoryScope scope(Category::parameter);
    return ops::cast(values, weight_->dtype());
  };
  auto adapter = std::make_unique<Adapter>();
  adapter->scale = options.scale;
  adapter->dropout = options.dropout;
  adapter->a = register_parameter(
      kLowRankA, of_weight(uniform(init, {rank, in}, 1 / std::sqrt(static_cast<double>(in)))));
  adapter->b = register_parameter(kLowRankB, of_weight(constant(init, {out, rank}, 0)));
  if (options.magnitude)
    adapter->magnitude = register_parameter(kMagnitudeVector, of_weight(constant(init, {out}, 1)));
  adapter_ = std::move(adapter);
  // A weight that is drawn later has no lengths yet (models/pack.h).
  if (weight_->packed.defined() || weight_->whole.device() == init.device) reset_magnitude();
}

Tensor LinearLayer::adapted_norms() const {
  const MatrixWeight& weight = *weight_;
  const Tensor& like = adapter_->a.value();
  Tensor norms = [&] {
    const CategoryScope scope(Category::workspace);
    return Tensor::empty({weight.out()}, like.dtype(), like.device());
  }();
  for_rows(weight, [&](int64_t begin, int64_t end) {
    const CategoryScope scope(Category::workspace);
    const Tensor rows = adapted_rows(weight, *adapter_, begin, end);
    ops::copy_into(norms.slice(0, begin, end),
                   ops::unary(ops::Unary::sqrt, ops::sum(ops::mul(rows, rows), {1})));
  });
  return norms;
}

void LinearLayer::reset_magnitude() {
  if (adapter_ == nullptr || !adapter_->magnitude.defined()) return;
  ops::copy_into(adapter_->magnitude.value(), adapted_norms());
  adapter_->magnitude.value().bump_version();
}

void LinearLayer::merge_adapter() {
  FRUGAL_CHECK(adapter_ != nullptr, "[adapter] expected a layer with an adapter, got one without");
  const Tensor weight = weight_->variable().value();
  Tensor lengths;  // by how much rows become longer
  if (adapter_->magnitude.defined())
    lengths = ops::div(adapter_->magnitude.value(), adapted_norms()).view({weight.size(0), 1});
  for_rows(*weight_, [&](int64_t begin, int64_t end) {
    Tensor rows = adapted_rows(*weight_, *adapter_, begin, end);
    if (lengths.defined()) rows = ops::mul(rows, lengths.slice(0, begin, end));
    ops::copy_into(weight.slice(0, begin, end), rows);
  });
  weight.bump_version();
  for (const char* name : {kLowRankA, kLowRankB, kMagnitudeVector}) remove_parameter(name);
  adapter_ = nullptr;
}

}  // namespace frugal::models

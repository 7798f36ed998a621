#include "autograd/contrastive_functions.h"

#include <algorithm>

#include "autograd/record.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/inplace.h"
#include "ops/dense/matmul.h"
#include "ops/dense/operators.h"
#include "ops/dense/reduce.h"
#include "ops/loss/binary_cross_entropy.h"
#include "ops/loss/cross_entropy.h"

namespace frugal {
namespace {

// Added to squared norms. The inverse of a row's norm is |x| / (|x|^2 + kTiny), which is 0 for a
// row of zeros. Such a row has no direction, so it gets no gradient. With 1 / max(|x|, kTiny) its
// gradient would be the largest (findings/torch_normalize_zero.sh).
constexpr double kTiny = 1e-12;

Tensor row_dot(const Tensor& a, const Tensor& b) { return ops::sum(a * b, {1}, true); }  // [N, 1]
Tensor inverse_norms(const Tensor& x) {                                                  // [N, 1]
  const Tensor squares = row_dot(x, x);
  return ops::unary(ops::Unary::sqrt, squares) / (squares + kTiny);
}

// The losses are computed in this dtype.
DType computed_in(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

// The loss as a function of x alone. Backward scales what is kept. All gradients of the step are
// made of it, so its noise would reach every parameter. It is kept without loss, because a row for
// each sample is little beside what the network before it saves.
Variable record_loss(const char* op, const Variable& x, Tensor loss, const Tensor& gradient) {
  return record(op, {x}, std::move(loss), {save_exact(gradient)}, [](const Backward& b) {
    const bool mine = b.slot(0).is_sole_owner();
    const Tensor dx = mine ? b.saved(0) : ops::clone(b.saved(0));
    ops::scale_inplace(dx, b.dy());
    return Grads{dx};
  });
}

// A constant beside x has its dtype, or f32 beside bf16.
void check_constant(const char* op, const Tensor& x, const char* what, const Tensor& other) {
  ops::check_defined(op, what, other);
  FRUGAL_CHECK(other.device() == x.device() &&
                   (other.dtype() == x.dtype() || other.dtype() == computed_in(x.dtype())),
               "[{}] expected {} of dtype {} on {}, got {}", op, what, name_of(x.dtype()),
               x.device().str(), describe(other));
}

void check_rows(const char* op, const Tensor& x, const char* what, const Tensor& other) {
  ops::check_real(op, "x", x);
  ops::check_dim(op, "x", x, 2);
  FRUGAL_CHECK(x.size(0) > 0 && x.size(1) > 0, "[{}] expected at least one row and column, got {}",
               op, x.shape());
  ops::check_shape(op, what, other, x.shape());
  check_constant(op, x, what, other);
}

}  // namespace

Tensor unit_rows(const Tensor& x) {
  ops::check_dim("unit_rows", "x", x, 2);
  const DType dtype = computed_in(x.dtype());
  const Tensor wide = ops::cast(x, dtype);
  return ops::cast(wide * inverse_norms(wide), x.dtype());
}

// With u = x / |x| and v = target / |target|: loss = -mean(u.v),
// dx = -1 / (N |x|) (v - (u.v) u). The gradient is not linear in x, so it is made here.
Variable negative_cosine(const Variable& x, const Tensor& target) {
  constexpr const char* kOp = "negative_cosine";
  check_rows(kOp, x.value(), "the target", target);
  const CategoryScope scope(Category::workspace);
  const DType dtype = computed_in(x.dtype());
  const Tensor rows = ops::cast(x.value(), dtype), others = ops::cast(target, dtype);
  const Tensor inverse = inverse_norms(rows), of_target = inverse_norms(others);
  const Tensor cosine = row_dot(rows, others) * inverse * of_target;
  const auto n = static_cast<double>(x.size(0));
  Tensor loss = ops::mean(cosine) * -1.0;
  if (!recording({x})) return Variable(std::move(loss));
  Tensor gradient;
  {
    const Tensor toward = others * (inverse * of_target * (-1 / n));
    const Tensor back = rows * (cosine * inverse * inverse * (1 / n));
    const CategoryScope kept(Category::activation);
    gradient = ops::cast(toward + back, x.dtype());
  }
  return record_loss(kOp, x, std::move(loss), gradient);
}

// With u = x / |x|, p_i = u_i.key_i / t and n_ij = u_i.queue_j / t the loss of row i is
//   log(e^p + sum_j e^n_j) - p = -log sigmoid(p - lse(n)),
// and with g = sigmoid(p - lse(n)) - 1 its gradient is du = g / t (key - softmax(n) queue).
// So one [rows, K] tensor is enough: the products, over which their softmax is written.
InfoNce info_nce(const Variable& x, const Tensor& keys, const Tensor& queue, double temperature,
                 int64_t rows_at_once) {
  constexpr const char* kOp = "info_nce";
  check_rows(kOp, x.value(), "the keys", keys);
  ops::check_dim(kOp, "the queue", queue, 2);
  check_constant(kOp, x.value(), "the queue", queue);
  FRUGAL_CHECK(queue.size(0) > 0 && queue.size(1) == x.size(1),
               "[{}] expected a queue of at least one row of {} values, got {}", kOp, x.size(1),
               queue.shape());
  FRUGAL_CHECK(temperature > 0, "[{}] expected a temperature above 0, got {}", kOp, temperature);
  FRUGAL_CHECK(rows_at_once >= 1, "[{}] expected at least one row at once, got {}", kOp,
               rows_at_once);
  const CategoryScope scope(Category::workspace);
  const DType dtype = computed_in(x.dtype());
  const bool wanted = recording({x});
  const Tensor rows = ops::cast(x.value(), dtype), own = ops::cast(keys, dtype),
               others = ops::contiguous(ops::cast(queue, dtype));
  const Tensor inverse = inverse_norms(rows), unit = rows * inverse;
  const int64_t count = rows.size(0);
  InfoNce out;
  out.margin = Tensor::empty({count}, dtype, x.device());
  Tensor gradient, loss;
  if (wanted) {
    const CategoryScope kept(Category::activation);
    gradient = Tensor::empty(rows.shape(), x.dtype(), x.device());
  }
  for (int64_t begin = 0; begin < count; begin += rows_at_once) {
    const int64_t end = std::min(count, begin + rows_at_once);
    const Tensor u = unit.slice(0, begin, end), key = own.slice(0, begin, end);
    const Tensor positive = row_dot(u, key) * (1 / temperature);  // [rows, 1]
    const Tensor products = ops::linear(u, others, {});           // [rows, K]
    ops::scale_inplace(products, 1 / temperature);
    ops::copy_into(out.margin.slice(0, begin, end).view({end - begin, 1}),
                   (positive - ops::max(products, 1, true).values) * temperature);
    const Tensor lse =
        ops::cross_entropy(products, Tensor::zeros({end - begin}, DType::i64, x.device())).lse;
    BinaryCrossEntropyOptions summed;
    summed.sum = true;
    const Tensor ahead = positive - lse.view({end - begin, 1});
    const ops::BinaryCrossEntropyResult part =
        ops::binary_cross_entropy(ahead, Tensor::ones(ahead.shape(), dtype, x.device()), summed);
    if (loss.defined())
      ops::accumulate(loss, part.loss);
    else
      loss = part.loss;
    if (!wanted) continue;
    const Tensor shares = ops::cross_entropy_probabilities(products, lse, true);
    const Tensor du = (key - ops::matmul(shares, others)) *
                      (part.gradient * (1 / (temperature * static_cast<double>(count))));
    const Tensor dx = (du - u * row_dot(u, du)) * inverse.slice(0, begin, end);
    ops::copy_into(gradient.slice(0, begin, end), dx);
  }
  loss = loss * (1 / static_cast<double>(count));
  out.loss = wanted ? record_loss(kOp, x, std::move(loss), gradient) : Variable(std::move(loss));
  return out;
}

}  // namespace frugal

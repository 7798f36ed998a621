#include <algorithm>
#include <limits>

#include "autograd/functions.h"
#include "autograd/record.h"
#include "core/integers.h"
#include "ops/checks.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/inplace.h"
#include "ops/dense/matmul.h"
#include "ops/dense/reduce.h"
#include "ops/loss/cross_entropy.h"

namespace frugal {
namespace {

// The loss and its gradients, added over rows that come in parts.
class Sums {
 public:
  // Makes only the gradients that are wanted.
  Sums(const Variable& rows, const Variable& weight, const Variable& bias,
       const CrossEntropyOptions& options, double soft_cap)
      : soft_cap_(soft_cap),
        x_(rows.value()),
        weight_(weight.value()),
        bias_(bias.defined() ? bias.value() : Tensor()),
        options_(options),
        of_x_(recording({rows})),
        of_weight_(recording({weight})),
        of_bias_(bias.defined() && recording({bias})) {
    options_.sum = true;
    prepare();
    x_ = ops::contiguous(x_).view({x_.numel() / x_.size(-1), x_.size(-1)});
    if (of_x_) dx = Tensor::empty(x_.shape(), x_.dtype(), x_.device());
    const CategoryScope scope(Category::workspace);
    top = Tensor::empty({x_.size(0)}, DType::i64, x_.device());
  }

  void add(const Tensor& target, int64_t begin, int64_t end) {
    const Tensor x = x_.slice(0, begin, end), at = target.slice(0, begin, end);
    const CategoryScope scope(Category::workspace);
    Tensor logits = ops::linear(x, weight_, bias_), shares;  // shares of the cap
    if (soft_cap_ > 0) {
      shares = ops::unary(ops::Unary::tanh, ops::affine(logits, 1 / soft_cap_, 0));
      logits = ops::affine(shares, soft_cap_, 0);
    }
    const ops::CrossEntropyResult part = ops::cross_entropy(logits, at, options_, {}, true);
    ops::copy_into(top.slice(0, begin, end), part.top);
    accumulate(loss, part.loss);
    accumulate(counted, ops::cast(part.counted, part.loss.dtype()));
    if (!of_x_ && !of_weight_ && !of_bias_) return;
    const Tensor one = Tensor::full({}, 1, part.loss.dtype(), x.device());
    Tensor dy = ops::cross_entropy_backward(one, logits, at, part.lse, options_, {}, true);
    if (soft_cap_ > 0) dy = ops::unary_backward(ops::Unary::tanh, dy, shares);
    if (of_x_) ops::copy_into(dx.slice(0, begin, end), ops::linear_backward_input(dy, weight_));
    const CategoryScope gradients(Category::gradient);
    if (of_weight_ && dweight.defined())
      ops::add_linear_backward_weight(dweight, dy, x);
    else if (of_weight_)
      dweight = ops::linear_backward_weight(dy, x);
    if (of_bias_) accumulate(dbias, ops::linear_backward_bias(dy));
  }

  // Gradients of the weight and of the bias have the rows that they were given with.
  void drop_padding() {
    if (dweight.defined()) dweight = dweight.slice(0, 0, classes_);
    if (dbias.defined()) dbias = dbias.slice(0, 0, classes_);
  }

  Tensor top, loss, counted, dx, dweight, dbias;

 private:
  // Beside bf16 rows, the parameters are cast to bf16 once and not again for each part. There the
  // rows of logits get a length that is a multiple of kAligned, which fast products and loads of 16
  // bytes need. The classes that are added have logits of -inf, so their probabilities are 0.
  // Label smoothing would count them, so it gets no such classes. A cap would make them finite.
  void prepare() {
    constexpr int64_t kAligned = 8;
    classes_ = weight_.size(0);
    if (x_.dtype() != DType::bf16) return;
    const CategoryScope scope(Category::workspace);
    const int64_t padded = options_.label_smoothing == 0 && soft_cap_ == 0
                               ? ceil_div(classes_, kAligned) * kAligned
                               : classes_;
    if (padded == classes_) {
      weight_ = ops::cast(weight_, DType::bf16);
      if (bias_.defined()) bias_ = ops::cast(bias_, DType::bf16);
      return;
    }
    const Device device = x_.device();
    const auto extend = [&](const Tensor& rows, Shape shape, double value) {
      shape[0] = padded;
      const Tensor out = Tensor::empty(shape, DType::bf16, device);
      if (rows.defined())
        ops::copy_into(out.slice(0, 0, classes_), rows);
      else
        ops::fill(out.slice(0, 0, classes_), 0);
      ops::fill(out.slice(0, classes_, padded), value);
      return out;
    };
    weight_ = extend(weight_, weight_.shape(), 0);
    bias_ = extend(bias_, {classes_}, -std::numeric_limits<double>::infinity());
  }

  static void accumulate(Tensor& sum, Tensor term) {
    if (sum.defined())
      ops::accumulate(sum, term);
    else
      sum = std::move(term);
  }

  double soft_cap_;
  Tensor x_, weight_, bias_;
  int64_t classes_ = 0;
  CrossEntropyOptions options_;
  bool of_x_, of_weight_, of_bias_;
};

}  // namespace

// Every gradient is d(loss)/d(logits) of a part times what made its logits. They are linear in dy,
// so they are made together with the loss, while the logits exist, and the backward pass only
// scales them.
LinearCrossEntropy linear_cross_entropy(const Variable& x, const Variable& weight,
                                        const Variable& bias, const Tensor& target,
                                        const CrossEntropyOptions& options, int64_t rows_at_once,
                                        double soft_cap) {
  constexpr const char* kOp = "linear_cross_entropy";
  ops::check_dim(kOp, "weight", weight.value(), 2);
  ops::check_real(kOp, "x", x.value());
  const int64_t rows = target.numel(), features = weight.size(1);
  FRUGAL_CHECK(
      rows_at_once >= 1 && rows > 0 && x.size(-1) == features &&
          x.value().numel() == rows * features,
      "[{}] expected x [..., {}] for weight {} with a row for each of {} targets, at least "
      "one, and at least one row at once, got {} and {}",
      kOp, features, weight.shape(), rows, x.shape(), rows_at_once);
  FRUGAL_CHECK(soft_cap >= 0, "[{}] expected a soft cap above 0, or 0, got {}", kOp, soft_cap);
  Sums sums(x, weight, bias, options, soft_cap);
  const Tensor at = ops::contiguous(target).view({rows});
  for (int64_t begin = 0; begin < rows; begin += rows_at_once)
    sums.add(at, begin, std::min(rows, begin + rows_at_once));
  sums.drop_padding();
  Tensor loss = sums.loss, divisor;
  if (!options.sum) {
    divisor = ops::clamp(sums.counted, 1, std::numeric_limits<double>::infinity(), false).y;
    loss = ops::div(sums.loss, sums.counted);
  }
  Variable out = record(
      kOp, {x, weight, bias}, std::move(loss),
      {save_whole(sums.dx), save_whole(sums.dweight), save_whole(sums.dbias), save_whole(divisor)},
      [shape = x.shape()](const Backward& b) {
        const Tensor factor = b.keeps(3) ? ops::div(b.dy(), b.saved(3)) : b.dy();
        Grads grads(3);
        for (int i = 0; i < 3; ++i) {
          if (!b.needs(i)) continue;
          const bool mine = b.slot(i).is_sole_owner();
          const Tensor sum = mine ? b.saved(i) : ops::clone(b.saved(i));
          ops::scale_inplace(sum, factor);
          grads[static_cast<size_t>(i)] = i == 0 ? sum.view(shape) : sum;
        }
        return grads;
      });
  return {std::move(out), std::move(sums.top)};
}

}  // namespace frugal

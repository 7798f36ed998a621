// What norms of rows (layer, RMS and group norm) keep for backward.
//
// The gradient is divided by the deviation of each row. The groups of a codec run over many rows of
// one channel, so the step of a group follows from its largest row. In a row that is a thousand
// times smaller, errors of that step would be divided by a deviation that is a thousand times
// smaller, and drown the gradient. So a norm keeps rows that are normalized already: all rows then
// have one size, and the error of a row's gradient is in proportion to the gradient.
#pragma once
#include <algorithm>

#include "autograd/node.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/inplace.h"
#include "ops/dense/reduce.h"
#include "ops/sequence/layer_norm.h"

namespace frugal {

// Shall a norm of x keep normalized rows? Not where x itself costs nothing, because it is part of
// the batch, a weight, or can be rebuilt, nor where nothing is lost.
inline bool keeps_normalized_rows(const Variables& inputs, const Variable& x) {
  if (!recording(inputs) || !saves_may_be_lossy() || x.is_held()) return false;
  if (x.value().storage()->category() == Category::input) return false;
  return x.producer() == nullptr || !x.producer()->has_recipe();
}

// How errors of normalized rows reach the gradients.
constexpr Use of_normalized_rows(Use use) {
  use.mean = -1;
  use.gain = 0;
  return use;
}

// How a norm holds the rows that it keeps.
//   plain:      x as it came
//   centred:    (x - mean) invstd
//   uncentred:  x invstd, of rms_norm
enum class NormRows { plain, centred, uncentred };

// The moments of the rows that are held. invstd: of x.
inline ops::RowMoments moments_of(const Tensor& mean, const Tensor& invstd, NormRows rows) {
  if (rows == NormRows::plain) return {mean, invstd};
  return ops::normalized_moments(invstd, rows == NormRows::centred);
}

// RowMoments::gain of held rows, each normalized over `n` elements, by the variance of their codes.
// Undefined where nobody knows the variance. All rows have one size, so the variances of a channel
// differ little, and those of a few items tell their mean.
inline Tensor gain_of(const SavedTensor& rows, int64_t n) {
  constexpr int64_t kItems = 4;
  if (rows.quality() == Rebuilt::exact || rows.shape().dim() < 2 || rows.shape().numel() == 0)
    return {};
  const int64_t items = rows.shape()[0], picked = std::min(items, kItems);
  CategoryScope scope(Category::workspace);
  Tensor sum;
  for (int64_t k = 0; k < picked; ++k) {
    const int64_t at = (2 * k + 1) * items / (2 * picked);
    PackedPass pass{PackedPass::Variance{}};
    pass.rows = {at, at + 1, items};
    const Tensor variance = run_over(rows, pass);
    if (!variance.defined()) return {};
    const int64_t channels = variance.shape().back();
    const Tensor each = variance.view({variance.numel() / channels, channels});
    const Tensor mean =
        ops::mean(each.dtype() == DType::f64 ? each : ops::cast(each, DType::f32), {0});
    if (sum.defined())
      ops::accumulate(sum, mean);
    else
      sum = mean;
  }
  return ops::affine(sum, 1 / static_cast<double>(picked * n), 1);
}

// Keeps x as slot 0 of `op` now, and forgets x, so that its bytes may be written over.
inline Save keep_now(const char* op, Save x) {
  x.kept = keep(op, 0, x);
  x.value = {};
  return x;
}

// Is y of the rounded normalized rows as good as y of x? Not in 16 bits, where it is rounded twice.
inline bool may_scale_rounded(DType dtype) { return size_of(dtype) >= 4; }

}  // namespace frugal

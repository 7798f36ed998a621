// The losses of self-supervised learning. Each compares rows that are trained with rows that are
// not: targets, keys and queues are constants. f32, bf16 and f64, which CUDA has not. Beside bf16
// rows constants may be f32, and everything is computed in f32. Formulas and saved bytes stand in
// autograd/functions/contrastive.cpp.
#pragma once
#include <cstdint>

#include "autograd/variable.h"

namespace frugal {

// x and target [N, D] -> scalar: the mean over the rows of -cos(x, target). A row of
// zeros counts as cosine 0 and gets no gradient.
// Saves: d(loss)/d(x), without loss.
// Errors: other shapes or dtypes, no rows.
// Ref: Chen & He 2021 (SimSiam), equation 1; Grill et al. 2020 (BYOL), whose loss of a row is
// 2 - 2 cos.
Variable negative_cosine(const Variable& x, const Tensor& target);

struct InfoNce {
  Variable loss;
  Tensor margin;  // [N]: by how much a row is more like its own key than like the next best one
};
// x [N, D], keys [N, D], queue [K, D] -> the mean over the rows of the cross-entropy that tells
// the row's own key from those of the queue:
//   -log(e^(x.key / t) / (e^(x.key / t) + sum_j e^(x.queue_j / t)))    t = temperature
// Rows of x are divided by their 2-norm first; keys and queue are taken as they are, and hold unit
// rows as a rule. `rows_at_once` rows of the products with the queue exist at a time.
// Saves: d(loss)/d(x), which the forward pass makes, without loss; neither keys nor queue, so the
// queue may be written as soon as this returns.
// Errors: other shapes, no rows, an empty queue, a temperature that is not above 0.
// Ref: van den Oord et al. 2018, equation 4; He et al. 2020 (MoCo), equation 1.
InfoNce info_nce(const Variable& x, const Tensor& keys, const Tensor& queue, double temperature,
                 int64_t rows_at_once = 256);

// Rows of x [N, D] divided by their 2-norms; a row of zeros stays. No gradient: for keys and
// features.
Tensor unit_rows(const Tensor& x);

}  // namespace frugal

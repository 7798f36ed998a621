// The update of Adafactor, which keeps the second moments of a matrix as one row and one column.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace frugal::ops {

struct AdafactorStep {
  double lr = 1e-2;
  double decay_rate = 0.8;    // beta2 of step t is 1 - t^-decay_rate
  double floor = 1e-30;       // added to squared gradients
  double clip = 1;            // the largest allowed root mean square of a direction
  double least_scale = 1e-3;  // with scale_parameter: the smallest root mean square of a parameter
                              // that counts
  bool scale_parameter = true;
  double weight_decay = 0;
  int64_t step = 1;  // steps of this parameter, counted from 1
};

struct AdafactorUpdate {
  Tensor parameter, gradient, r, c;
  AdafactorStep step;
};

// Works in place. G^2 + floor is averaged over rows and columns, with the parameter seen as
// [size(0), rest]:
//   r = beta2 r + (1 - beta2) row means;  c = beta2 c + (1 - beta2) column means
//   u = g / sqrt(r c / mean r);  u /= max(1, rms(u) / clip)
//   p -= lr decay p;  p -= lr (scale_parameter ? max(least_scale, rms(p)) : 1) u
// rms(p) is that of p before this step. parameter, gradient: f32 or f64, at least 2 axes; r
// [size(0)] and c [rest] have the parameter's dtype. If r is undefined, c has the parameter's shape
// and holds all second moments. All tensors except the gradient are contiguous. On CUDA only f32,
// and all updates take five launches. Versions rise.
// Errors: shapes, dtypes or devices that differ, step < 1; then nothing is changed.
// Ref: Shazeer & Stern 2018, algorithms 4 and 5, without momentum.
void adafactor_steps(const std::vector<AdafactorUpdate>& updates);
void adafactor_steps_kernel(Cpu, const std::vector<AdafactorUpdate>& updates);
void adafactor_steps_kernel(Cuda, const std::vector<AdafactorUpdate>& updates);

}  // namespace frugal::ops

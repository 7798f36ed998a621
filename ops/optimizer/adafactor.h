// The update of Adafactor: second moments of matrices as a row and a column.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace frugal::ops {

struct AdafactorStep {
  double lr = 1e-2;
  double decay_rate = 0.8;    // beta2 of step t is 1 - t^-decay_rate
  double floor = 1e-30;       // added to squares
  double clip = 1;            // the largest root mean square of a direction
  double least_scale = 1e-3;  // of a parameter's root mean square, where steps scale with it
  bool scale_parameter = true;
  double weight_decay = 0;
  int64_t step = 1;  // of this parameter, from 1
};

struct AdafactorUpdate {
  Tensor parameter, gradient, r, c;
  AdafactorStep step;
};

// In place, with G^2 + floor averaged over rows and columns of the parameter as [size(0), rest]:
//   r = beta2 r + (1 - beta2) row means;  c = beta2 c + (1 - beta2) column means
//   u = g / sqrt(r c / mean r);  u /= max(1, rms(u) / clip)
//   p -= lr decay p;  p -= lr (scale_parameter ? max(least_scale, rms(p)) : 1) u
// (rms(p) before this step.) parameter, gradient: f32 or f64, at least 2 axes; r [size(0)], c
// [rest], like the parameter. Or with an undefined r: c like the
// parameter, all its second moments. All but the gradient contiguous; f32 alone on CUDA, where all
// updates are five launches. Bumps versions.
// Errors: shapes, dtypes or devices differ, step < 1; nothing is changed then.
// Ref: Shazeer & Stern 2018, algorithms 4 and 5, without momentum.
void adafactor_steps(const std::vector<AdafactorUpdate>& updates);
void adafactor_steps_kernel(Cpu, const std::vector<AdafactorUpdate>& updates);
void adafactor_steps_kernel(Cuda, const std::vector<AdafactorUpdate>& updates);

}  // namespace frugal::ops

// The fused updates of Adam, AdamW and LAMB: one pass over parameter, gradient and two moments.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace frugal::ops {

struct AdamStep {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;  // true: AdamW; false: Adam, where the decay is a part of the gradient
  int64_t step = 1;       // steps of this parameter, counted from 1; corrects the bias of the
                          // moments
};

struct AdamUpdate {
  Tensor parameter, gradient, m, v;
  AdamStep step;
};

// Works in place, in the order of PyTorch:
//   decoupled: p -= lr decay p, else g += decay p
//   m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2
//   p -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// parameter, gradient, m, v: equal shapes and dtypes, f32 or f64; all except the gradient are
// contiguous. On CUDA only f32, and all updates take one launch. The versions of written tensors
// rise.
// Errors: shapes, dtypes or devices that differ, step < 1; then nothing is changed.
// Ref: Kingma & Ba 2015; Loshchilov & Hutter 2019.
void adam_steps(const std::vector<AdamUpdate>& updates);
void adam_steps_kernel(Cpu, const std::vector<AdamUpdate>& updates);
void adam_steps_kernel(Cuda, const std::vector<AdamUpdate>& updates);

// The moments are those of Adam. With u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) +
// decay p,
//   p -= lr r u,  r = |p| / |u| if `adapt` is set and both norms are above 0 and finite, else 1
// Norms are added in f64 over chunks of fixed size. `decoupled` is ignored. Allocates no tensor of
// the parameter's size. On CUDA all updates take three launches.
// Ref: You et al. 2020 (LAMB), algorithm 2, with the identity as phi.
struct LambUpdate {
  Tensor parameter, gradient, m, v;
  AdamStep step;
  bool adapt = false;
};
void lamb_steps(const std::vector<LambUpdate>& updates);
void lamb_steps_kernel(Cpu, const std::vector<LambUpdate>& updates);
void lamb_steps_kernel(Cuda, const std::vector<LambUpdate>& updates);

struct Average {
  Tensor average, value;
};
// average += share (value - average) in place, for each pair. Equal shapes and dtypes; averages are
// contiguous; f32 or f64, on CUDA f32 and one launch. Errors: shapes, dtypes or devices that
// differ.
void average_into(const std::vector<Average>& averages, double share);
void average_into_kernel(Cpu, const std::vector<Average>& averages, double share);
void average_into_kernel(Cuda, const std::vector<Average>& averages, double share);

}  // namespace frugal::ops

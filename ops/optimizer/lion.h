// The fused update of Lion, in one pass over parameter, gradient and momentum, which may have 8
// bits (ops/optimizer/blockwise.h).
#pragma once
#include <vector>

#include "ops/optimizer/blockwise.h"

namespace frugal::ops {

struct LionStep {
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
};

// Works in place:
//   p -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay p)
//   m = beta2 m + (1 - beta2) g
// The sign of 0 and of NaN is 0. parameter, gradient, m: equal shapes, f32 or f64; all except the
// gradient are contiguous. On CUDA only f32, with the bits of the CPU, and all updates take one
// launch. The versions of parameters and momenta rise.
// Errors: shapes, dtypes or devices that differ; then nothing is changed.
// Ref: Chen et al. 2023 (Symbolic discovery of optimization algorithms), program 1.
struct LionUpdate {
  Tensor parameter, gradient, m;
  LionStep step;
};
void lion_steps(const std::vector<LionUpdate>& updates);
void lion_steps_kernel(Cpu, const std::vector<LionUpdate>& updates);
void lion_steps_kernel(Cuda, const std::vector<LionUpdate>& updates);

// The update with m in 8 bits, in the map with signs, one block at a time. m rounds stochastically,
// drawn from `key`, as the velocity of sgd8bit_steps() does.
struct Lion8bitUpdate {
  Tensor parameter, gradient;
  BlockwiseState m;
  LionStep step;
  RngKey key;
};
void lion8bit_steps(const std::vector<Lion8bitUpdate>& updates);
void lion8bit_steps_kernel(Cpu, const std::vector<Lion8bitUpdate>& updates);
void lion8bit_steps_kernel(Cuda, const std::vector<Lion8bitUpdate>& updates);

// The factors of a step, in the dtype of the parameter.
template <class T>
struct LionFactors {
  T lr, decay, beta1, rest1, beta2, rest2;
  static LionFactors of(const LionStep& s) {
    return {static_cast<T>(s.lr),    static_cast<T>(s.weight_decay),
            static_cast<T>(s.beta1), static_cast<T>(1 - s.beta1),
            static_cast<T>(s.beta2), static_cast<T>(1 - s.beta2)};
  }
};

}  // namespace frugal::ops

// The loop of SGD with momentum over a range, and its factors. Internal to the kernels of
// ops/optimizer/sgd.h and sgd8bit.h.
#pragma once
#include <cstdint>

#include "ops/optimizer/sgd.h"

namespace frugal::ops {

// p -= lr (of_total t + of_velocity v), where t = g + decay p and v is the new velocity.
template <class T>
struct SgdFactors {
  T lr, decay, momentum, of_total, of_velocity;

  static SgdFactors of(const SgdStep& step) {
    const T momentum = static_cast<T>(step.momentum);
    return {static_cast<T>(step.lr), static_cast<T>(step.weight_decay), momentum,
            step.nesterov ? T{1} : T{0}, step.nesterov ? momentum : T{1}};
  }
};

// Updates p and v [n] in place.
template <class T>
void sgd_loop(T* __restrict p, const T* __restrict g, T* __restrict v, int64_t n,
              const SgdFactors<T>& f) {
  for (int64_t i = 0; i < n; ++i) {
    const T total = g[i] + f.decay * p[i];
    v[i] = f.momentum * v[i] + total;
    p[i] -= f.lr * (f.of_total * total + f.of_velocity * v[i]);
  }
}

}  // namespace frugal::ops

// The loops of Adam and LAMB over a range. f64: plain loops. f32: compiled once per instruction set
// and chosen at run time (see ops/simd/simd_loops.h). The result of an element does not depend on
// its place.
#pragma once
#include <cmath>
#include <cstdint>

#include "ops/optimizer/adam.h"

namespace frugal::ops {

// The factors of an AdamStep, computed in f64.
template <class T>
struct AdamFactors {
  T rest1, beta2, rest2;  // rest1, rest2: 1 - beta1, 1 - beta2
  T correction;           // 1 / sqrt(1 - beta2^t)
  T eps, rate;            // rate: lr / (1 - beta1^t); LAMB: 1 / (1 - beta1^t)
  T keep, decay;          // keep: 1 - lr decay; decay: the factor of p that is added to the
                          // gradient (LAMB: to u)

  static AdamFactors of(const AdamStep& s) {
    return make(s, s.lr, s.decoupled ? 1 - s.lr * s.weight_decay : 1,
                s.decoupled ? 0 : s.weight_decay);
  }
  static AdamFactors of_lamb(const AdamStep& s) { return make(s, 1, 1, s.weight_decay); }

 private:
  static AdamFactors make(const AdamStep& s, double lr, double keep, double decay) {
    const auto t = static_cast<double>(s.step);
    return {static_cast<T>(1 - s.beta1), static_cast<T>(s.beta2),
            static_cast<T>(1 - s.beta2), static_cast<T>(1 / std::sqrt(1 - std::pow(s.beta2, t))),
            static_cast<T>(s.eps),       static_cast<T>(lr / (1 - std::pow(s.beta1, t))),
            static_cast<T>(keep),        static_cast<T>(decay)};
  }
};

struct SquaredNorms {
  double parameter = 0, update = 0;
};

// Updates p, m, v [n] in place.
void adam_loop(double* p, const double* g, double* m, double* v, int64_t n,
               const AdamFactors<double>& f);
void adam_loop(float* p, const float* g, float* m, float* v, int64_t n,
               const AdamFactors<float>& f);

// Updates m and v in place and returns |p|^2 and |u|^2. n is the length of one chunk, because f32
// sums must stay short.
SquaredNorms lamb_moments_loop(const double* p, const double* g, double* m, double* v, int64_t n,
                               const AdamFactors<double>& f);
SquaredNorms lamb_moments_loop(const float* p, const float* g, float* m, float* v, int64_t n,
                               const AdamFactors<float>& f);
// p -= scale u, with u made from m, v and p again.
void lamb_update_loop(double* p, const double* m, const double* v, int64_t n, double scale,
                      const AdamFactors<double>& f);
void lamb_update_loop(float* p, const float* m, const float* v, int64_t n, float scale,
                      const AdamFactors<float>& f);

}  // namespace frugal::ops

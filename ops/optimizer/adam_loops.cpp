#include "ops/optimizer/adam_loops.h"

#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/optimizer/adam_loops.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Factors = AdamFactors<float>;

// Calls f(d, i) for whole vectors, then for single elements. f must not add a product with a plain
// sum: compilers fuse the two only in whole vectors, so results would depend on an element's place.
template <class F>
HWY_INLINE void for_elements(int64_t n, F f) {
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 1> one;
  int64_t i = 0;
  for (const auto step = static_cast<int64_t>(hn::Lanes(wide)); i + step <= n; i += step)
    f(wide, i);
  for (; i < n; ++i) f(one, i);
}

template <class D, class V>
HWY_INLINE V new_m(D d, V g, V m, const Factors& f) {
  return hn::MulAdd(hn::Set(d, f.rest1), hn::Sub(g, m), m);
}
template <class D, class V>
HWY_INLINE V new_v(D d, V g, V v, const Factors& f) {
  return hn::MulAdd(hn::Mul(hn::Set(d, f.rest2), g), g, hn::Mul(hn::Set(d, f.beta2), v));
}
// rate m / (sqrt(v) correction + eps)
template <class D, class V>
HWY_INLINE V direction(D d, V m, V v, const Factors& f) {
  const V root = hn::MulAdd(hn::Sqrt(v), hn::Set(d, f.correction), hn::Set(d, f.eps));
  return hn::Div(hn::Mul(hn::Set(d, f.rate), m), root);
}

HWY_ATTR void Adam(float* HWY_RESTRICT p, const float* HWY_RESTRICT g, float* HWY_RESTRICT m,
                   float* HWY_RESTRICT v, int64_t n, const Factors& f) {
  for_elements(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto value = hn::LoadU(d, p + i);
    const auto total = hn::MulAdd(hn::Set(d, f.decay), value, hn::LoadU(d, g + i));
    const auto first = new_m(d, total, hn::LoadU(d, m + i), f);
    const auto second = new_v(d, total, hn::LoadU(d, v + i), f);
    hn::StoreU(first, d, m + i);
    hn::StoreU(second, d, v + i);
    hn::StoreU(hn::MulSub(hn::Set(d, f.keep), value, direction(d, first, second, f)), d, p + i);
  });
}

HWY_ATTR SquaredNorms LambMoments(const float* HWY_RESTRICT p, const float* HWY_RESTRICT g,
                                  float* HWY_RESTRICT m, float* HWY_RESTRICT v, int64_t n,
                                  const Factors& f) {
  const hn::ScalableTag<float> wide;
  auto of_p = hn::Zero(wide), of_u = hn::Zero(wide);
  const auto step = [&](auto d, int64_t i, auto& sum_p, auto& sum_u) HWY_ATTR {
    const auto gradient = hn::LoadU(d, g + i), value = hn::LoadU(d, p + i);
    const auto first = new_m(d, gradient, hn::LoadU(d, m + i), f);
    const auto second = new_v(d, gradient, hn::LoadU(d, v + i), f);
    hn::StoreU(first, d, m + i);
    hn::StoreU(second, d, v + i);
    const auto u = hn::MulAdd(hn::Set(d, f.decay), value, direction(d, first, second, f));
    sum_p = hn::MulAdd(value, value, sum_p);
    sum_u = hn::MulAdd(u, u, sum_u);
  };
  int64_t i = 0;
  const auto lanes = static_cast<int64_t>(hn::Lanes(wide));
  for (; i + lanes <= n; i += lanes) step(wide, i, of_p, of_u);
  SquaredNorms norms{static_cast<double>(hn::GetLane(hn::SumOfLanes(wide, of_p))),
                     static_cast<double>(hn::GetLane(hn::SumOfLanes(wide, of_u)))};
  const hn::CappedTag<float, 1> one;
  for (; i < n; ++i) {
    auto last_p = hn::Zero(one), last_u = hn::Zero(one);
    step(one, i, last_p, last_u);
    norms.parameter += static_cast<double>(hn::GetLane(last_p));
    norms.update += static_cast<double>(hn::GetLane(last_u));
  }
  return norms;
}

HWY_ATTR void LambUpdate(float* HWY_RESTRICT p, const float* HWY_RESTRICT m,
                         const float* HWY_RESTRICT v, int64_t n, float scale, const Factors& f) {
  for_elements(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto value = hn::LoadU(d, p + i);
    const auto u = hn::MulAdd(hn::Set(d, f.decay), value,
                              direction(d, hn::LoadU(d, m + i), hn::LoadU(d, v + i), f));
    hn::StoreU(hn::NegMulAdd(hn::Set(d, scale), u, value), d, p + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops {
namespace simd {
HWY_EXPORT(Adam);
HWY_EXPORT(LambMoments);
HWY_EXPORT(LambUpdate);
}  // namespace simd

void adam_loop(float* p, const float* g, float* m, float* v, int64_t n,
               const AdamFactors<float>& f) {
  using namespace simd;
  HWY_DYNAMIC_DISPATCH(Adam)(p, g, m, v, n, f);
}
SquaredNorms lamb_moments_loop(const float* p, const float* g, float* m, float* v, int64_t n,
                               const AdamFactors<float>& f) {
  using namespace simd;
  return HWY_DYNAMIC_DISPATCH(LambMoments)(p, g, m, v, n, f);
}
void lamb_update_loop(float* p, const float* m, const float* v, int64_t n, float scale,
                      const AdamFactors<float>& f) {
  using namespace simd;
  HWY_DYNAMIC_DISPATCH(LambUpdate)(p, m, v, n, scale, f);
}

namespace {

void moments(double g, double& m, double& v, const AdamFactors<double>& f) {
  m += f.rest1 * (g - m);
  v = f.beta2 * v + f.rest2 * g * g;
}
double direction(double m, double v, const AdamFactors<double>& f) {
  return f.rate * m / (std::sqrt(v) * f.correction + f.eps);
}

}  // namespace

void adam_loop(double* p, const double* g, double* m, double* v, int64_t n,
               const AdamFactors<double>& f) {
  for (int64_t i = 0; i < n; ++i) {
    moments(g[i] + f.decay * p[i], m[i], v[i], f);
    p[i] = f.keep * p[i] - direction(m[i], v[i], f);
  }
}

SquaredNorms lamb_moments_loop(const double* p, const double* g, double* m, double* v, int64_t n,
                               const AdamFactors<double>& f) {
  SquaredNorms norms;
  for (int64_t i = 0; i < n; ++i) {
    moments(g[i], m[i], v[i], f);
    const double u = direction(m[i], v[i], f) + f.decay * p[i];
    norms.parameter += p[i] * p[i];
    norms.update += u * u;
  }
  return norms;
}

void lamb_update_loop(double* p, const double* m, const double* v, int64_t n, double scale,
                      const AdamFactors<double>& f) {
  for (int64_t i = 0; i < n; ++i) p[i] -= scale * (direction(m[i], v[i], f) + f.decay * p[i]);
}

}  // namespace frugal::ops
#endif

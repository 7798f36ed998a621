#include "ops/simd/convert_loops.h"

#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/simd/convert_loops.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "ops/simd/storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

template <class From, class To>
HWY_INLINE void Convert(const From* from, To* to, int64_t n) {
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 1> one;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  int64_t i = 0;
  for (; i + step <= n; i += step) store(wide, load(wide, from + i), to + i);
  for (; i < n; ++i) store(one, load(one, from + i), to + i);
}

void Widen(const BFloat16* from, float* to, int64_t n) { Convert(from, to, n); }
void Narrow(const float* from, BFloat16* to, int64_t n) { Convert(from, to, n); }

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);

void widen(const BFloat16* from, float* to, int64_t n) { HWY_DYNAMIC_DISPATCH(Widen)(from, to, n); }
void narrow(const float* from, BFloat16* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Narrow)(from, to, n);
}

}  // namespace frugal::ops::simd
#endif

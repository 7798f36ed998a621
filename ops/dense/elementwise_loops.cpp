#include "ops/dense/elementwise_loops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/vector_targets.h"
#include "ops/simd/independent.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/dense/elementwise_loops.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/random/philox-inl.h"

// Plain loops over the functors: the compiler vectorises them for the target of each pass.
HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class F>
HWY_ATTR void BinaryRows(F f, const float* a, const float* b, float* y, const Operands& o) {
  for (int64_t row = 0; row < o.rows; ++row) {
    const float* HWY_RESTRICT pa = a + row * o.a_row;
    const float* HWY_RESTRICT pb = b + row * o.b_row;
    float* HWY_RESTRICT py = y + row * o.cols;
    if (o.a_col == 1 && o.b_col == 1) {
      for (int64_t i = 0; i < o.cols; ++i) py[i] = f(pa[i], pb[i]);
    } else if (o.a_col == 1 && o.b_col == 0) {
      const float vb = *pb;
      for (int64_t i = 0; i < o.cols; ++i) py[i] = f(pa[i], vb);
    } else if (o.a_col == 0 && o.b_col == 1) {
      const float va = *pa;
      for (int64_t i = 0; i < o.cols; ++i) py[i] = f(va, pb[i]);
    } else {
      for (int64_t i = 0; i < o.cols; ++i) py[i] = f(pa[i * o.a_col], pb[i * o.b_col]);
    }
  }
}

template <class F>
HWY_ATTR void Map(F f, const float* x, float* y, int64_t n) {
  FRUGAL_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = f.f(x[i]);
}

template <class F>
HWY_ATTR void MapBackward(F f, const float* dy, const float* saved, float* dx, int64_t n) {
  FRUGAL_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) dx[i] = f.df(dy[i], saved[i]);
}

template <class F>
HWY_ATTR void MapEstimate(F f, const float* x, const float* variance, float* y, int64_t n) {
  FRUGAL_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = estimate(f, x[i], variance[i]);
}

template <class F>
HWY_ATTR void MapBackwardEstimate(F f, const float* dy, const float* x, const float* variance,
                                  float* dx, int64_t n) {
  FRUGAL_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) dx[i] = backward_estimate(f, dy[i], x[i], variance[i]);
}

void BinaryOp(Binary op, const float* a, const float* b, float* y, const Operands& layout) {
  with_binary(op, [&](auto f) HWY_ATTR { BinaryRows(f, a, b, y, layout); });
}

void UnaryOp(Unary op, const float* x, float* y, int64_t n) {
  with_unary(op, [&](auto f) HWY_ATTR { Map(f, x, y, n); });
}

void UnaryBackward(Unary op, const float* dy, const float* saved, float* dx, int64_t n) {
  with_unary(op, [&](auto f) HWY_ATTR {
    if constexpr (requires { f.df(0.0f, 0.0f); }) MapBackward(f, dy, saved, dx, n);
  });
}

void UnaryEstimate(Unary op, const float* x, const float* variance, float* y, int64_t n) {
  with_unary(op, [&](auto f) HWY_ATTR {
    if constexpr (is_smooth<decltype(f)>) MapEstimate(f, x, variance, y, n);
  });
}

void UnaryBackwardEstimate(Unary op, const float* dy, const float* x, const float* variance,
                           float* dx, int64_t n) {
  with_unary(op, [&](auto f) HWY_ATTR {
    if constexpr (is_smooth<decltype(f)>) MapBackwardEstimate(f, dy, x, variance, dx, n);
  });
}

void Affine(const float* HWY_RESTRICT x, float factor, float term, float* HWY_RESTRICT y,
            int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor + term;
}

// Words drawn at once: a multiple of the counters that a vector of any width holds.
constexpr int64_t kDrawn = 64;

using frugal::HWY_NAMESPACE::RoundKeys;

// The words of counters [first, first + kDrawn / 4), as philox() of core/rng.h gives them.
HWY_INLINE void DrawWords(RngKey key, [[maybe_unused]] const RoundKeys& keys, uint64_t first,
                          uint64_t (&words)[kDrawn / 2]) {
#if HWY_TARGET == HWY_SCALAR
  for (uint64_t k = 0; k < kDrawn / 4; ++k) {
    const auto drawn = philox(key, first + k);
    std::memcpy(words + 2 * k, drawn.data(), sizeof(drawn));
  }
#else
  namespace lanes_of = frugal::HWY_NAMESPACE;
  const hn::CappedTag<uint64_t, kDrawn / 4> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t at = 0; at < kDrawn / 4; at += lanes) {
    const auto w = lanes_of::PhiloxLanes(d, key, keys, first + static_cast<uint64_t>(at));
    hn::StoreInterleaved2(hn::BitCast(d, lanes_of::SideBySide(d, w.w0, w.w1)),
                          hn::BitCast(d, lanes_of::SideBySide(d, w.w2, w.w3)), d, words + 2 * at);
  }
#endif
}

// y[i] = f(d, i) where element begin + i of the stream is kept, else 0.
template <class F>
HWY_INLINE void KeepDrawn(const Drop& drop, float* y, int64_t begin, int64_t end, F f) {
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(wide));
  const RoundKeys keys(drop.key.seed);
  alignas(64) uint64_t words[kDrawn / 2];
  const auto* drawn = reinterpret_cast<const uint32_t*>(words);
  for (int64_t from = begin - begin % 4; from < end; from += kDrawn) {
    DrawWords(drop.key, keys, static_cast<uint64_t>(from / 4), words);
    const auto keep = [&](auto d, int64_t i) HWY_ATTR {
      const hn::RebindToUnsigned<decltype(d)> du;
      const hn::RebindToSigned<decltype(d)> di;  // 24 bits fit signed comparisons, which every
                                                 // target has
      const auto word =
          hn::BitCast(di, hn::ShiftRight<8>(hn::LoadU(du, drawn + (begin + i - from))));
      const auto stays = hn::Gt(word, hn::Set(di, static_cast<int32_t>(drop.bound) - 1));
      // A dropped infinity or NaN becomes 0.
      hn::StoreU(hn::IfThenElseZero(hn::RebindMask(d, stays), f(d, i)), d, y + i);
    };
    int64_t i = std::max(from, begin) - begin;
    const int64_t last = std::min(from + kDrawn, end) - begin;
    for (; i + lanes <= last; i += lanes) keep(wide, i);
    for (; i < last; ++i) keep(one, i);
  }
}

void Dropout(const float* x, const Drop& drop, float* y, int64_t begin, int64_t end) {
  KeepDrawn(drop, y, begin, end, [&](auto d, int64_t i) HWY_ATTR {
    return hn::Mul(hn::LoadU(d, x + i), hn::Set(d, drop.scale));
  });
}

void DropoutFactors(const Drop& drop, float* to, int64_t begin, int64_t end) {
  KeepDrawn(drop, to, begin, end, [&](auto d, int64_t) HWY_ATTR { return hn::Set(d, drop.scale); });
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(BinaryOp);
HWY_EXPORT(UnaryOp);
HWY_EXPORT(UnaryBackward);
HWY_EXPORT(UnaryEstimate);
HWY_EXPORT(UnaryBackwardEstimate);
HWY_EXPORT(Affine);
HWY_EXPORT(Dropout);
HWY_EXPORT(DropoutFactors);

void binary(Binary op, const float* a, const float* b, float* y, const Operands& layout) {
  HWY_DYNAMIC_DISPATCH(BinaryOp)(op, a, b, y, layout);
}
void unary(Unary op, const float* x, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(UnaryOp)(op, x, y, n);
}
void unary_backward(Unary op, const float* dy, const float* saved, float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(UnaryBackward)(op, dy, saved, dx, n);
}
void unary_estimate(Unary op, const float* x, const float* variance, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(UnaryEstimate)(op, x, variance, y, n);
}
void unary_backward_estimate(Unary op, const float* dy, const float* x, const float* variance,
                             float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(UnaryBackwardEstimate)(op, dy, x, variance, dx, n);
}
void affine(const float* x, float factor, float term, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Affine)(x, factor, term, y, n);
}
Drop drop_of(double p, RngKey key) {
  return {key, static_cast<uint32_t>(std::ceil(p * 0x1p24)),
          p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f};
}
void dropout(const float* x, const Drop& drop, float* y, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Dropout)(x, drop, y, begin, end);
}
void dropout_factors(const Drop& drop, float* to, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(DropoutFactors)(drop, to, begin, end);
}

}  // namespace frugal::ops::simd
#endif

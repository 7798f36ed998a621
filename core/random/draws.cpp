#include "core/random/draws.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numbers>

#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/random/draws.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/random/philox-inl.h"

// This file is compiled without fused products (CMakeLists.txt), so that the bits are the same
// where a machine has no such instruction.
HWY_BEFORE_NAMESPACE();
namespace frugal::HWY_NAMESPACE {

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Polynomial(D d, V x, float last) {
  (void)x;
  return hn::Set(d, last);
}
// c[0] + c[1] x + c[2] x^2 + ...
template <class D, class... Rest, class V = hn::Vec<D>>
HWY_INLINE V Polynomial(D d, V x, float c0, Rest... rest) {
  return hn::Add(hn::Mul(Polynomial(d, x, rest...), x), hn::Set(d, c0));
}

template <class D>
struct Normals {
  hn::Vec<D> first, second;
};

// The two numbers that two words make. The coefficients have the least largest error, found by
// weighted least squares at Chebyshev points.
template <class D, class VU = hn::Vec<hn::RebindToUnsigned<D>>>
HWY_INLINE Normals<D> NormalPair(D d, VU a, VU b) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;

  // u = 2^exponent * fraction with a fraction in [2/3, 4/3). Then log u has no cancellation.
  const auto odd = hn::Or(hn::ShiftRight<1>(a), hn::Set(du, 1u));
  const auto u = hn::BitCast(di, hn::ConvertTo(d, hn::BitCast(di, odd)));
  const auto least = hn::Set(di, std::bit_cast<int32_t>(2.0f / 3));
  const auto raised = hn::ShiftRight<23>(hn::Sub(u, least));
  const auto fraction = hn::BitCast(d, hn::Sub(u, hn::ShiftLeft<23>(raised)));
  const auto exponent = hn::ConvertTo(d, hn::Sub(raised, hn::Set(di, 31)));

  // log(1 + f) = f - f^2 / 2 + f^3 p(f), within 4e-8 of its value
  const auto f = hn::Sub(fraction, hn::Set(d, 1.0f));
  const auto p = Polynomial(d, f, 0.33333266f, -0.250042378f, 0.200079185f, -0.16472325f,
                            0.140423285f, -0.151221904f, 0.138201349f);
  const auto square = hn::Mul(f, f);
  const auto log_fraction =
      hn::Add(f, hn::Sub(hn::Mul(hn::Mul(square, f), p), hn::Mul(hn::Set(d, 0.5f), square)));
  // ln 2 in two parts: the first has few bits, so its product is exact.
  const auto log_u = hn::Add(hn::Mul(exponent, hn::Set(d, 0.693359375f)),
                             hn::Add(hn::Mul(exponent, hn::Set(d, -2.12194440e-4f)), log_fraction));
  // max: rounding could make the logarithm of a u next to 1 positive.
  const auto radius = hn::Sqrt(hn::Max(hn::Mul(hn::Set(d, -2.0f), log_u), hn::Zero(d)));

  // The angle is `quarter` right angles and a rest of at most half a right angle.
  const auto quarter = hn::ShiftRight<30>(hn::Add(b, hn::Set(du, 1u << 29)));
  const auto rest = hn::ConvertTo(d, hn::BitCast(di, hn::Sub(b, hn::ShiftLeft<30>(quarter))));
  const auto x = hn::Mul(rest, hn::Set(d, static_cast<float>(std::numbers::pi * 0x1p-31)));
  const auto s = hn::Mul(x, x);
  // sin x = x + x^3 p(x^2) and cos x = 1 - x^2 / 2 + x^4 p(x^2), within 4e-9
  const auto sine = hn::Add(
      x, hn::Mul(hn::Mul(x, s), Polynomial(d, s, -0.166666549f, 0.00833217814f, -1.95172979e-4f)));
  const auto cosine = hn::Add(
      hn::Sub(hn::Set(d, 1.0f), hn::Mul(hn::Set(d, 0.5f), s)),
      hn::Mul(hn::Mul(s, s), Polynomial(d, s, 0.0416666469f, -0.00138873675f, 2.4438449e-5f)));

  // Odd quarters swap sine and cosine. The signs: cosine + - - +, sine + + - -.
  const auto swap = hn::RebindMask(d, hn::TestBit(quarter, hn::Set(du, 1u)));
  const auto upper_bit = hn::ShiftLeft<30>(hn::And(quarter, hn::Set(du, 2u)));
  const auto lower_bit = hn::ShiftLeft<31>(quarter);
  const auto signed_by = [&](auto value, auto bits) HWY_ATTR {
    return hn::BitCast(d, hn::Xor(hn::BitCast(du, value), bits));
  };
  return {
      hn::Mul(radius, signed_by(hn::IfThenElse(swap, sine, cosine), hn::Xor(upper_bit, lower_bit))),
      hn::Mul(radius, signed_by(hn::IfThenElse(swap, cosine, sine), upper_bit))};
}

// One element, from the words of its counter.
float NormalOf(const uint32_t* words, uint64_t index) {
  const hn::CappedTag<float, 1> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const uint32_t* pair = words + index % 4 / 2 * 2;
  const auto z = NormalPair(d, hn::Set(du, pair[0]), hn::Set(du, pair[1]));
  return hn::GetLane(index % 2 == 0 ? z.first : z.second);
}

constexpr int64_t kDrawn = 64;  // elements drawn at once, a multiple of what two vectors hold

void NormalBlock(RngKey key, [[maybe_unused]] const RoundKeys& keys, uint64_t counter, float factor,
                 float* to) {
#if HWY_TARGET == HWY_SCALAR
  for (uint64_t i = 0; i < kDrawn; ++i) {
    const auto words = philox(key, counter + i / 4);
    to[i] = factor * NormalOf(words.data(), i);
  }
#else
  const hn::CappedTag<uint64_t, kDrawn / 4> d;
  const hn::Repartition<float, decltype(d)> df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t at = 0; at < kDrawn / 4; at += lanes) {
    const auto w = PhiloxLanes(d, key, keys, counter + static_cast<uint64_t>(at));
    const auto z = NormalPair(df, SideBySide(d, w.w0, w.w2), SideBySide(d, w.w1, w.w3));
    const auto scale = hn::Set(df, factor);
    hn::StoreInterleaved2(hn::Mul(z.first, scale), hn::Mul(z.second, scale), df, to + 4 * at);
  }
#endif
}

void UniformBlock(RngKey key, [[maybe_unused]] const RoundKeys& keys, uint64_t counter, float bound,
                  float* to) {
  alignas(64) uint64_t words[kDrawn / 2];
  const auto* drawn = reinterpret_cast<const uint32_t*>(words);
#if HWY_TARGET == HWY_SCALAR
  for (uint64_t k = 0; k < kDrawn / 4; ++k) {
    const auto four = philox(key, counter + k);
    std::memcpy(words + 2 * k, four.data(), sizeof(four));
  }
#else
  const hn::CappedTag<uint64_t, kDrawn / 4> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t at = 0; at < kDrawn / 4; at += lanes) {
    const auto w = PhiloxLanes(d, key, keys, counter + static_cast<uint64_t>(at));
    hn::StoreInterleaved2(hn::BitCast(d, SideBySide(d, w.w0, w.w1)),
                          hn::BitCast(d, SideBySide(d, w.w2, w.w3)), d, words + 2 * at);
  }
#endif
  for (int64_t i = 0; i < kDrawn; ++i) {
    const float u = static_cast<float>(static_cast<int32_t>(drawn[i] >> 8)) * 0x1p-24f;
    to[i] = bound * (2 * u - 1);
  }
}

// Elements [first, first + count) of which block(counter, to) makes kDrawn at once, from the first
// element of a counter.
template <class Block>
HWY_INLINE void Draw(uint64_t first, float* to, int64_t count, Block block) {
  alignas(64) float some[kDrawn];
  for (int64_t at = -static_cast<int64_t>(first % 4); at < count; at += kDrawn) {
    const uint64_t counter = (first + static_cast<uint64_t>(at)) / 4;
    if (at >= 0 && at + kDrawn <= count) {
      block(counter, to + at);
      continue;
    }
    block(counter, some);
    const int64_t begin = std::max<int64_t>(at, 0), end = std::min(at + kDrawn, count);
    std::copy(some + (begin - at), some + (end - at), to + begin);
  }
}

void DrawNormal(RngKey key, uint64_t first, float factor, float* to, int64_t count) {
  const RoundKeys keys(key.seed);
  Draw(first, to, count, [&](uint64_t counter, float* block) HWY_ATTR {
    NormalBlock(key, keys, counter, factor, block);
  });
}

void DrawUniform(RngKey key, uint64_t first, float bound, float* to, int64_t count) {
  const RoundKeys keys(key.seed);
  Draw(first, to, count, [&](uint64_t counter, float* block) HWY_ATTR {
    UniformBlock(key, keys, counter, bound, block);
  });
}

}  // namespace frugal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal {

HWY_EXPORT(DrawNormal);
HWY_EXPORT(DrawUniform);

void draw_normal(RngKey key, uint64_t first, float factor, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(DrawNormal)(key, first, factor, to, count);
}
void draw_uniform(RngKey key, uint64_t first, float bound, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(DrawUniform)(key, first, bound, to, count);
}

float normal(RngKey key, uint64_t index) {
  return HWY_STATIC_DISPATCH(NormalOf)(philox(key, index / 4).data(), index);
}

}  // namespace frugal
#endif

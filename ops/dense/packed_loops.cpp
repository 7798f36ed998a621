#include "ops/dense/packed_loops.h"

#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/dense/packed_loops.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
HWY_ATTR void Nf4Loop(const uint8_t* codes, const float* scales, const float* values,
                      int64_t blocks, float* to) {
  for (int64_t i = 0; i < 32 * blocks; ++i) {
    *to++ = values[codes[i] >> 4] * scales[i / 32];
    *to++ = values[codes[i] & 15] * scales[i / 32];
  }
}
#else
// The 32 codes of 16 bytes, the code in the high half of a byte first.
struct Codes32 {
  hn::Vec<hn::FixedTag<uint8_t, 16> > lower, upper;
};
HWY_ATTR inline Codes32 CodesOf(const uint8_t* bytes) {
  const hn::FixedTag<uint8_t, 16> d8;
  const hn::FixedTag<uint16_t, 8> d16;
  const auto low = hn::Set(d8, 15), both = hn::LoadU(d8, bytes);
  const auto first = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, both))), low);
  const auto second = hn::And(both, low);
  return {hn::InterleaveLower(d8, first, second), hn::InterleaveUpper(d8, first, second)};
}

#if HWY_TARGET <= HWY_AVX2
// Codes are places in one vector of 16 numbers, or in two of 8.
HWY_ATTR void Nf4Loop(const uint8_t* codes, const float* scales, const float* values,
                      int64_t blocks, float* to) {
  const hn::CappedTag<float, 16> df;
  const hn::Rebind<int32_t, decltype(df)> di;
  const hn::Rebind<uint8_t, decltype(df)> db;
  const hn::FixedTag<uint8_t, 16> d8;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(df));
  const auto low_values = hn::LoadU(df, values), high_values = hn::LoadU(df, values + 16 - kLanes);
  HWY_ALIGN uint8_t places[32];
  for (int64_t block = 0; block < blocks; ++block) {
    const auto scale = hn::Set(df, scales[block]);
    for (int half = 0; half < 2; ++half, codes += 16, to += 32) {
      const Codes32 at_once = CodesOf(codes);
      hn::Store(at_once.lower, d8, places);
      hn::Store(at_once.upper, d8, places + 16);
      for (int i = 0; i < 32; i += kLanes) {
        const auto at = hn::PromoteTo(di, hn::LoadU(db, places + i));
        const auto within = hn::IndicesFromVec(df, hn::And(at, hn::Set(di, kLanes - 1)));
        auto value = hn::TableLookupLanes(low_values, within);
        if constexpr (kLanes < 16)
          value = hn::IfThenElse(hn::RebindMask(df, hn::Gt(at, hn::Set(di, kLanes - 1))),
                                 hn::TableLookupLanes(high_values, within), value);
        hn::StoreU(hn::Mul(value, scale), df, to + i);
      }
    }
  }
}
#else
// Byte k of each of the 16 values is looked up in a vector of its own. Then bytes are joined.
void Nf4Loop(const uint8_t* codes, const float* scales, const float* values, int64_t blocks,
             float* to) {
  const hn::FixedTag<uint8_t, 16> d8;
  const hn::FixedTag<uint16_t, 8> d16;
  const hn::FixedTag<float, 4> df;
  HWY_ALIGN uint8_t bytes[4][16];
  for (int i = 0; i < 16; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, values + i, sizeof bits);
    for (int k = 0; k < 4; ++k) bytes[k][i] = static_cast<uint8_t>(bits >> (8 * k));
  }
  const auto b0 = hn::Load(d8, bytes[0]), b1 = hn::Load(d8, bytes[1]), b2 = hn::Load(d8, bytes[2]),
             b3 = hn::Load(d8, bytes[3]);
  for (int64_t block = 0; block < blocks; ++block) {
    const auto scale = hn::Set(df, scales[block]);
    for (int half = 0; half < 2; ++half, codes += 16, to += 32) {
      const Codes32 at_once = CodesOf(codes);
      for (int part = 0; part < 2; ++part) {
        const auto at = part == 0 ? at_once.lower : at_once.upper;
        const auto v0 = hn::TableLookupBytes(b0, at), v1 = hn::TableLookupBytes(b1, at),
                   v2 = hn::TableLookupBytes(b2, at), v3 = hn::TableLookupBytes(b3, at);
        const auto low01 = hn::BitCast(d16, hn::InterleaveLower(d8, v0, v1)),
                   low23 = hn::BitCast(d16, hn::InterleaveLower(d8, v2, v3)),
                   high01 = hn::BitCast(d16, hn::InterleaveUpper(d8, v0, v1)),
                   high23 = hn::BitCast(d16, hn::InterleaveUpper(d8, v2, v3));
        float* const out = to + 16 * part;
        const auto put = [&](auto bits, float* place) HWY_ATTR {
          hn::StoreU(hn::Mul(hn::BitCast(df, bits), scale), df, place);
        };
        put(hn::InterleaveLower(d16, low01, low23), out);
        put(hn::InterleaveUpper(d16, low01, low23), out + 4);
        put(hn::InterleaveLower(d16, high01, high23), out + 8);
        put(hn::InterleaveUpper(d16, high01, high23), out + 12);
      }
    }
  }
}
#endif
#endif

// Plain loops: the compiler vectorises them for the target of each pass.
HWY_ATTR void Int8Loop(const uint8_t* codes, float scale, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(static_cast<int8_t>(codes[i])) * scale;
}

HWY_ATTR void Bf16Loop(const BFloat16* values, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(values[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(Nf4Loop);
HWY_EXPORT(Int8Loop);
HWY_EXPORT(Bf16Loop);

void unpack_nf4(const uint8_t* codes, const float* scales, const float* values, int64_t blocks,
                float* to) {
  HWY_DYNAMIC_DISPATCH(Nf4Loop)(codes, scales, values, blocks, to);
}
void unpack_int8(const uint8_t* codes, float scale, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(Int8Loop)(codes, scale, n, to);
}
void unpack_bf16(const BFloat16* values, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(Bf16Loop)(values, n, to);
}

}  // namespace frugal::ops::simd
#endif

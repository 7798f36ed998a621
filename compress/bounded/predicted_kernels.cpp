#include "compress/bounded/predicted_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/bounded/predicted_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "compress/quantize/dither-inl.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::compress::bounded {
namespace HWY_NAMESPACE {

using namespace compress::HWY_NAMESPACE;  // NOLINT: the vectors of the quantizer

void DitherBytes(const CodeStream& stream, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                 int64_t stride, uint8_t* to) {
  const DU du;
  const D8 d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(du));
  const int64_t block0 = row0 / 8, blocks = (row0 + rows - 1) / 8 - block0 + 1;
  for (int64_t first = 0; first < cols; first += kStrip) {
    const int64_t n = std::min<int64_t>(kStrip, cols - first);
    UnitWords words(stream, col0 + first, static_cast<int>(n), block0, blocks);
    for (int64_t b = 0; b < blocks; ++b) {
      const BlockWords& drawn = words.draw(b);
      for (int64_t r = 0; r < 8; ++r) {
        const int64_t row = (block0 + b) * 8 + r - row0;
        if (row < 0 || row >= rows) continue;
        uint8_t* const out = to + row * stride + first;
        const uint32_t* const from = drawn.rows[r / 4];
        const int shift = static_cast<int>(8 * (r % 4));
        for (int64_t j = 0; j < n; j += lanes) {
          const VU bytes = hn::ShiftRightSame(hn::LoadU(du, from + j), shift);
          hn::StoreU(hn::TruncateTo(d8, bytes), d8, out + j);
        }
      }
    }
  }
}

using D16 = hn::Rebind<int16_t, DF>;
using V16 = hn::Vec<D16>;

HWY_INLINE V16 Bytes(const uint8_t* from) {
  return hn::BitCast(D16(), hn::PromoteTo(hn::RebindToUnsigned<D16>(), hn::LoadU(D8(), from)));
}
HWY_INLINE V16 Load16(const std::vector<int16_t>& from, int64_t j) {
  return hn::LoadU(D16(), from.data() + j);
}
HWY_INLINE VF LoadFloats(const std::vector<float>& from, int64_t j) {
  return hn::LoadU(DF(), from.data() + j);
}
HWY_INLINE void StoreBytes(V16 x, uint8_t* to) {
  hn::StoreU(hn::TruncateTo(D8(), hn::BitCast(hn::RebindToUnsigned<D16>(), x)), D8(), to);
}
HWY_INLINE VF Dithers(V16 h, float offset) {
  const DF d;
  return hn::Add(hn::Mul(hn::ConvertTo(d, hn::PromoteTo(DI(), h)), hn::Set(d, 0x1p-8f)),
                 hn::Set(d, offset));
}
// What a place lies below 16 times its code.
HWY_INLINE V16 BelowCode(const PixelLanes& at, V16 h, int64_t j) {
  return hn::Add(hn::ShiftRight<4>(h), Load16(at.lanes.fraction, j));
}

// Where dither moves the predicted value to, in sixteenths of a code.
HWY_INLINE V16 Target(const PixelLanes& at, V16 below, int64_t j) {
  const D16 d;
  const V16 left = hn::MulFixedPoint15(hn::LoadU(d, at.of.left + j), Load16(at.lanes.left, j));
  const V16 up = hn::MulFixedPoint15(hn::LoadU(d, at.of.up + j), Load16(at.lanes.up, j));
  const V16 corner =
      hn::MulFixedPoint15(hn::LoadU(d, at.of.corner + j), Load16(at.lanes.corner, j));
  const V16 other = hn::SaturatedAdd(corner, hn::Add(below, hn::Set(d, 8)));
  return hn::SaturatedAdd(hn::SaturatedAdd(left, up), other);
}
// Which eighth of a code it is; kUnit: as a context, or in the upper bits of a byte.
template <int kUnit>
HWY_INLINE V16 Phase(V16 target) {
  const V16 eighth = hn::And(target, hn::Set(D16(), 14));
  if constexpr (kUnit == 1) return hn::ShiftRight<1>(eighth);
  return hn::ShiftLeft<kResidualBits - 1>(eighth);
}

template <bool kNarrow>
HWY_INLINE bool CodeRun(const PixelLanes& at, const float* x, int16_t* place, uint8_t* bytes,
                        uint16_t* low) {
  const D16 d;
  const DI di;
  const D8 d8;
  const hn::Rebind<uint16_t, DF> du16;
  // Lanes behind the last one may make it false.
  auto all_good = hn::FirstN(d, hn::Lanes(d));
  for (int64_t j = at.begin; j < at.end; j += static_cast<int64_t>(hn::Lanes(d))) {
    const V16 h = Bytes(at.dither + j), below = BelowCode(at, h, j), target = Target(at, below, j);
    const VF scaled = hn::Mul(hn::LoadU(DF(), x + j), LoadFloats(at.lanes.inverse, j));
    const VF moved = hn::Floor(hn::Add(scaled, Dithers(h, at.offset)));
    const VI q = hn::NearestInt(hn::Sub(moved, LoadFloats(at.lanes.start, j)));
    const VI sixteenths = hn::Sub(hn::ShiftLeft<4>(q), hn::PromoteTo(di, below));
    hn::StoreU(hn::DemoteTo(d, sixteenths), d, place + j);
    const V16 base = hn::ShiftRight<4>(target);
    if constexpr (kNarrow) {
      const V16 half = hn::Set(d, 1 << (kResidualBits - 1));
      const V16 symbol = hn::Add(hn::SaturatedSub(hn::DemoteTo(d, q), base), half);
      const auto good =
          hn::And(hn::Gt(symbol, hn::Zero(d)), hn::Lt(symbol, hn::Set(d, 1 << kResidualBits)));
      StoreBytes(hn::Or(hn::IfThenElseZero(good, symbol), Phase<1 << kResidualBits>(target)),
                 bytes + (j - at.begin));
      all_good = hn::And(all_good, good);
    } else {
      const VI r = hn::Add(hn::Sub(q, hn::PromoteTo(di, base)), hn::Set(di, 128 << at.shift));
      const VI symbol = hn::ShiftRightSame(r, at.shift);
      const auto good = hn::And(hn::Gt(symbol, hn::Zero(di)), hn::Lt(symbol, hn::Set(di, 256)));
      const VI kept = hn::IfThenElseZero(good, symbol);
      hn::StoreU(hn::TruncateTo(d8, hn::BitCast(DU(), kept)), d8, bytes + (j - at.begin));
      if (at.shift > 0) {
        const VI rest = hn::And(r, hn::Set(di, (1 << at.shift) - 1));
        hn::StoreU(hn::TruncateTo(du16, hn::BitCast(DU(), rest)), du16, low + (j - at.begin));
      }
      if (!hn::AllTrue(di, good)) all_good = hn::Lt(h, h);
    }
  }
  return !hn::AllTrue(d, all_good);
}
bool CodeLanes(const PixelLanes& at, const float* x, int16_t* place, uint8_t* bytes,
               uint16_t* low) {
  return at.shift < 0 ? CodeRun<true>(at, x, place, bytes, low)
                      : CodeRun<false>(at, x, place, bytes, low);
}

void Predict(const PixelLanes& at, int16_t* base, uint8_t* contexts) {
  const D16 d;
  for (int64_t j = at.begin; j < at.end; j += static_cast<int64_t>(hn::Lanes(d))) {
    const V16 target = Target(at, BelowCode(at, Bytes(at.dither + j), j), j);
    hn::StoreU(hn::ShiftRight<4>(target), d, base + j);
    StoreBytes(at.shift < 0 ? Phase<1>(target) : hn::Zero(d), contexts + j);
  }
}

template <bool kNarrow>
HWY_INLINE bool RebuildRun(const PixelLanes& at, const int16_t* base, const uint8_t* bytes,
                           const uint16_t* low, int16_t* place, float* x) {
  const D16 d;
  const DI di;
  const DF df;
  auto any_large = hn::Lt(hn::Zero(d), hn::Zero(d));  // as all_good above
  for (int64_t j = at.begin; j < at.end; j += static_cast<int64_t>(hn::Lanes(d))) {
    const V16 h = Bytes(at.dither + j);
    V16 symbol = Bytes(bytes + j);
    VI q = hn::PromoteTo(di, hn::LoadU(d, base + j));
    if constexpr (kNarrow) {
      symbol = hn::And(symbol, hn::Set(d, (1 << kResidualBits) - 1));
      const V16 r = hn::Sub(symbol, hn::Set(d, 1 << (kResidualBits - 1)));
      q = hn::Add(q, hn::PromoteTo(di, r));
    } else {
      VI r = hn::ShiftLeftSame(hn::PromoteTo(di, symbol), at.shift);
      if (at.shift > 0) {
        const hn::Rebind<uint16_t, DF> du16;
        r = hn::Or(r, hn::BitCast(di, hn::PromoteTo(DU(), hn::LoadU(du16, low + j))));
      }
      q = hn::Add(q, hn::Sub(r, hn::Set(di, 128 << at.shift)));
    }
    const VI below = hn::PromoteTo(di, BelowCode(at, h, j));
    hn::StoreU(hn::DemoteTo(d, hn::Sub(hn::ShiftLeft<4>(q), below)), d, place + j);
    const VF code = hn::Add(hn::ConvertTo(df, q), LoadFloats(at.lanes.start, j));
    const VF value = hn::Add(code, hn::Sub(hn::Set(df, 0.5f), Dithers(h, at.offset)));
    hn::StoreU(hn::Mul(value, LoadFloats(at.lanes.step, j)), df, x + j);
    any_large = hn::Or(any_large, hn::Eq(symbol, hn::Zero(d)));
  }
  return !hn::AllFalse(d, any_large);
}
bool Rebuild(const PixelLanes& at, const int16_t* base, const uint8_t* bytes, const uint16_t* low,
             int16_t* place, float* x) {
  return at.shift < 0 ? RebuildRun<true>(at, base, bytes, low, place, x)
                      : RebuildRun<false>(at, base, bytes, low, place, x);
}

// Calls f(first channel, how many) for vectors of channels.
template <class F>
HWY_INLINE void ForChannels(int64_t channels, F&& f) {
  const auto n = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t c = 0;
  for (; c + n <= channels; c += n) f(c, n);
  if (c < channels) f(c, channels - c);
}
HWY_INLINE VF LoadChannels(const float* from, int64_t count) {
  const DF df;
  if (count == static_cast<int64_t>(hn::Lanes(df))) return hn::LoadU(df, from);
  alignas(64) float part[kLanes] = {};
  std::memcpy(part, from, static_cast<size_t>(count) * 4);
  return hn::Load(df, part);
}
HWY_INLINE void AddChannels(VF sum, float* to, int64_t count) {
  const DF df;
  alignas(64) float part[kLanes] = {};
  hn::Store(sum, df, part);
  for (int64_t i = 0; i < count; ++i) to[i] += part[i];
}

void AddValues(const float* x, int64_t pixels, int64_t channels, float* sums) {
  ForChannels(channels, [&](int64_t c, int64_t n) HWY_ATTR {
    VF sum = hn::Zero(DF());
    for (int64_t p = 0; p < pixels; ++p) sum = hn::Add(sum, LoadChannels(x + p * channels + c, n));
    AddChannels(sum, sums + c, n);
  });
}

void AddProducts(const float* x, int64_t height, int64_t width, int64_t channels, const float* mean,
                 Moments& moments) {
  const int64_t row = width * channels, h0 = height > 1 ? 1 : 0, w0 = width > 1 ? 1 : 0;
  ForChannels(channels, [&](int64_t c, int64_t n) HWY_ATTR {
    const DF df;
    const VF m = LoadChannels(mean + c, n);
    VF own = hn::Zero(df), left = own, up = own, corner = own, pair = own;
    for (int64_t h = h0; h < height; ++h) {
      const float* at = x + h * row + c;
      VF before = hn::Sub(LoadChannels(at, n), m), corner_y = hn::Zero(df);
      if (h0 > 0) corner_y = hn::Sub(LoadChannels(at - row, n), m);
      for (int64_t w = w0; w < width; ++w) {
        const VF y = hn::Sub(LoadChannels(at + w * channels, n), m);
        own = hn::Add(own, hn::Mul(y, y));
        if (w0 > 0) left = hn::Add(left, hn::Mul(y, before));
        if (h0 > 0) {
          const VF above = hn::Sub(LoadChannels(at + w * channels - row, n), m);
          up = hn::Add(up, hn::Mul(y, above));
          if (w0 > 0) {
            corner = hn::Add(corner, hn::Mul(y, corner_y));
            pair = hn::Add(pair, hn::Mul(above, before));
          }
          corner_y = above;
        }
        before = y;
      }
    }
    AddChannels(own, moments.own.data() + c, n);
    AddChannels(left, moments.left.data() + c, n);
    AddChannels(up, moments.up.data() + c, n);
    AddChannels(corner, moments.corner.data() + c, n);
    AddChannels(pair, moments.pair.data() + c, n);
  });
  moments.pixels += (height - h0) * (width - w0);
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress::bounded
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::compress::bounded {

HWY_EXPORT(DitherBytes);
HWY_EXPORT(CodeLanes);
HWY_EXPORT(Predict);
HWY_EXPORT(Rebuild);
HWY_EXPORT(AddValues);
HWY_EXPORT(AddProducts);

void dither_bytes(const CodeStream& stream, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                  int64_t stride, uint8_t* to) {
  if (rows > 0) HWY_DYNAMIC_DISPATCH(DitherBytes)(stream, row0, rows, col0, cols, stride, to);
}
bool code_lanes(const PixelLanes& at, const float* x, int16_t* place, uint8_t* bytes,
                uint16_t* low) {
  return HWY_DYNAMIC_DISPATCH(CodeLanes)(at, x, place, bytes, low);
}
void predict_lanes(const PixelLanes& at, int16_t* base, uint8_t* contexts) {
  HWY_DYNAMIC_DISPATCH(Predict)(at, base, contexts);
}
bool rebuild_lanes(const PixelLanes& at, const int16_t* base, const uint8_t* bytes,
                   const uint16_t* low, int16_t* place, float* x) {
  return HWY_DYNAMIC_DISPATCH(Rebuild)(at, base, bytes, low, place, x);
}

namespace {
float dither_of(const PixelLanes& at, int64_t lane) {
  return static_cast<float>(at.dither[lane]) * 0x1p-8f + at.offset;
}
}  // namespace

int32_t code_of(float x, const PixelLanes& at, int64_t lane) {
  const auto j = static_cast<size_t>(lane);
  const float moved = std::floor(x * at.lanes.inverse[j] + dither_of(at, lane));
  return static_cast<int32_t>(moved - at.lanes.start[j]);
}
int16_t place_of(int32_t code, const PixelLanes& at, int64_t lane) {
  const int32_t below = at.lanes.fraction[static_cast<size_t>(lane)] + (at.dither[lane] >> 4);
  return static_cast<int16_t>(std::clamp(16 * code - below, -32768, 32767));
}
float value_of(int32_t code, const PixelLanes& at, int64_t lane) {
  const auto j = static_cast<size_t>(lane);
  const float moved = static_cast<float>(code) + at.lanes.start[j];
  return (moved + (0.5f - dither_of(at, lane))) * at.lanes.step[j];
}

void add_values(const float* x, int64_t pixels, int64_t channels, float* sums) {
  HWY_DYNAMIC_DISPATCH(AddValues)(x, pixels, channels, sums);
}
void add_products(const float* x, int64_t height, int64_t width, int64_t channels,
                  const float* mean, Moments& moments) {
  HWY_DYNAMIC_DISPATCH(AddProducts)(x, height, width, channels, mean, moments);
}

}  // namespace frugal::compress::bounded
#endif

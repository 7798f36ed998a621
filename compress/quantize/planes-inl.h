// Converts codes to the bit planes of group_layout.h and back, a block of 8 rows of one vector of
// columns at a time. Included once for each instruction set.
#if defined(FRUGAL_COMPRESS_PLANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FRUGAL_COMPRESS_PLANES_INL_H
#undef FRUGAL_COMPRESS_PLANES_INL_H
#else
#define FRUGAL_COMPRESS_PLANES_INL_H
#endif

#include <algorithm>

#include "compress/quantize/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {

// Loads one byte for each column of a vector; at the edge as many as exist.
HWY_INLINE VU LoadBytes(const uint8_t* from, int64_t cols) {
  const D8 d8;
  if (cols >= static_cast<int64_t>(hn::Lanes(d8))) return hn::PromoteTo(DU(), hn::LoadU(d8, from));
  uint8_t all[kLanes] = {};
  for (int64_t c = 0; c < cols; ++c) all[c] = from[c];
  return hn::PromoteTo(DU(), hn::LoadU(d8, all));
}
HWY_INLINE void StoreBytes(VU bytes, int64_t cols, uint8_t* to) {
  const D8 d8;
  if (cols >= static_cast<int64_t>(hn::Lanes(d8))) {
    hn::StoreU(hn::TruncateTo(d8, bytes), d8, to);
    return;
  }
  uint8_t all[kLanes];
  hn::StoreU(hn::TruncateTo(d8, bytes), d8, all);
  for (int64_t c = 0; c < cols; ++c) to[c] = all[c];
}

struct BlockShape {
  int64_t block, rows, cols;  // number of the block, rows of the group, columns left
};

// Writes one plane. The codes are shifted by `shift` and masked. With kOnly they are used
// unchanged, and each is 1 too large. kFull: a whole block of 8 rows and a whole vector of columns.
template <int kWidth, bool kOnly, bool kFull>
HWY_INLINE void StorePlane(const VU* codes, int shift, uint8_t* out, int64_t stride,
                           const BlockShape& at) {
  constexpr int per_byte = 8 / kWidth;
  constexpr uint32_t excess = kWidth == 8 ? 1 : kWidth == 4 ? 0x11 : kWidth == 2 ? 0x55 : 0xff;
  const DU du;
  const int64_t byte_rows =
      kFull ? kWidth : (std::min<int64_t>(8, at.rows - at.block * 8) * kWidth + 7) / 8;
  for (int i = 0; i < kWidth; ++i) {
    if (!kFull && i >= byte_rows) return;
    VU sum = hn::Zero(du);
    for (int k = per_byte - 1; k >= 0; --k) {
      VU part = codes[i * per_byte + k];
      if constexpr (!kOnly)
        part = hn::And(hn::ShiftRightSame(part, shift), hn::Set(du, (1u << kWidth) - 1));
      sum = k == per_byte - 1 ? part : hn::Add(hn::ShiftLeft<kWidth % 8>(sum), part);
    }
    // One subtraction for each byte instead of one for each code.
    if constexpr (kOnly) sum = hn::Sub(sum, hn::Set(du, excess));
    StoreBytes(sum, kFull ? kLanes : at.cols, out + i * stride);
  }
}

// Writes plane kPlane of codes of kBits bits, and the planes after it.
template <int kBits, int kPlane, bool kFull>
HWY_INLINE void StorePlanes(const VU* codes, int shift, uint8_t* out, int64_t stride,
                            const BlockShape& at) {
  constexpr Planes planes = planes_of(kBits);
  if constexpr (kPlane < planes.count) {
    constexpr int w = planes.width[kPlane];
    StorePlane<w, false, kFull>(codes, shift, out + at.block * w * stride, stride, at);
    StorePlanes<kBits, kPlane + 1, kFull>(codes, shift + w, out + (at.rows * w + 7) / 8 * stride,
                                          stride, at);
  }
}

// Writes codes that are 1 too large. kBits: 1 to 8, or 0 for any width (layout.bits).
template <int kBits, bool kFull>
HWY_INLINE void StoreCodes(VU* codes, const GroupLayout& layout, uint8_t* out,
                           const BlockShape& at) {
  const int64_t stride = layout.cols;
  if constexpr (kBits != 0 && planes_of(kBits).count > 1) {
    for (int r = 0; r < 8; ++r) codes[r] = hn::Sub(codes[r], hn::Set(DU(), 1u));
    StorePlanes<kBits, 0, kFull>(codes, 0, out, stride, at);
  } else if constexpr (kBits != 0) {
    StorePlane<kBits, true, kFull>(codes, 0, out + at.block * kBits * stride, stride, at);
  } else {
    for (int r = 0; r < 8; ++r) codes[r] = hn::Sub(codes[r], hn::Set(DU(), 1u));
    const Planes planes = planes_of(layout.bits);
    int shift = 0;
    for (int p = 0; p < planes.count; ++p) {
      const int w = planes.width[static_cast<size_t>(p)];
      uint8_t* to = out + at.block * w * stride;
      if (w == 8) StorePlane<8, false, kFull>(codes, shift, to, stride, at);
      if (w == 4) StorePlane<4, false, kFull>(codes, shift, to, stride, at);
      if (w == 2) StorePlane<2, false, kFull>(codes, shift, to, stride, at);
      if (w == 1) StorePlane<1, false, kFull>(codes, shift, to, stride, at);
      shift += w;
      out += (at.rows * w + 7) / 8 * stride;
    }
  }
}

// Gives the codes of as many rows as a byte of a plane holds their bits from kShift on.
template <int kWidth, int kShift, int kPart = 0>
HWY_INLINE void SpreadBytes(VU bytes, VU* codes) {
  constexpr int per_byte = 8 / kWidth, at = kPart * kWidth;
  if constexpr (kPart < per_byte) {
    VU part = bytes;
    if constexpr (at > kShift) part = hn::ShiftRight<at - kShift>(bytes);
    if constexpr (at < kShift) part = hn::ShiftLeft<kShift - at>(bytes);
    constexpr uint32_t mask = ((1u << kWidth) - 1) << kShift;
    // Nothing is left above the last part, nor below it if nothing is below kShift.
    constexpr bool clean = kPart + 1 == per_byte && (kShift == 0 || kPart == 0);
    if constexpr (!clean) part = hn::And(part, hn::Set(DU(), mask));
    codes[kPart] = kShift == 0 ? part : hn::Or(codes[kPart], part);
    SpreadBytes<kWidth, kShift, kPart + 1>(bytes, codes);
  }
}

// Reads plane kPlane of codes of kBits bits, and the planes after it, for a whole block of 8 rows
// and a whole vector of columns. kShift: the bits of the planes before.
template <int kBits, int kPlane = 0, int kShift = 0>
HWY_INLINE void LoadPlanes(const uint8_t* in, int64_t stride, const BlockShape& at, VU* codes) {
  constexpr Planes planes = planes_of(kBits);
  if constexpr (kPlane < planes.count) {
    constexpr int w = planes.width[kPlane];
    const uint8_t* from = in + at.block * w * stride;
    for (int i = 0; i < w; ++i)
      SpreadBytes<w, kShift>(LoadBytes(from + i * stride, kLanes), codes + i * (8 / w));
    LoadPlanes<kBits, kPlane + 1, kShift + w>(in + (at.rows * w + 7) / 8 * stride, stride, at,
                                              codes);
  }
}

template <int kWidth>
HWY_INLINE void LoadPlane(const uint8_t* in, int64_t stride, int64_t byte_rows, int64_t cols,
                          int shift, uint32_t* codes) {
  constexpr int per_byte = 8 / kWidth;
  const DU du;
  const size_t lanes = hn::Lanes(du);
  for (int64_t i = 0; i < byte_rows; ++i) {
    const VU bytes = LoadBytes(in + i * stride, cols);
    for (int k = 0; k < per_byte; ++k) {
      const VU part =
          hn::And(hn::ShiftRightSame(bytes, k * kWidth), hn::Set(du, (1u << kWidth) - 1));
      uint32_t* code = codes + static_cast<size_t>(i * per_byte + k) * lanes;
      hn::Store(hn::Or(hn::Load(du, code), hn::ShiftLeftSame(part, shift)), du, code);
    }
  }
}

// Reads the codes of a block of any width, at the edge or not.
HWY_NOINLINE inline void LoadAnyCodes(const uint8_t* in, const GroupLayout& layout,
                                      const BlockShape& at, uint32_t* codes) {
  const DU du;
  const int64_t stride = layout.cols, rows = std::min<int64_t>(8, at.rows - at.block * 8);
  for (size_t r = 0; r < 8; ++r) hn::Store(hn::Zero(du), du, codes + r * hn::Lanes(du));
  const Planes planes = planes_of(layout.bits);
  int shift = 0;
  for (int p = 0; p < planes.count; ++p) {
    const int w = planes.width[static_cast<size_t>(p)];
    const uint8_t* from = in + at.block * w * stride;
    const int64_t byte_rows = (rows * w + 7) / 8;
    if (w == 8) LoadPlane<8>(from, stride, byte_rows, at.cols, shift, codes);
    if (w == 4) LoadPlane<4>(from, stride, byte_rows, at.cols, shift, codes);
    if (w == 2) LoadPlane<2>(from, stride, byte_rows, at.cols, shift, codes);
    if (w == 1) LoadPlane<1>(from, stride, byte_rows, at.cols, shift, codes);
    shift += w;
    in += (at.rows * w + 7) / 8 * stride;
  }
}

// Reads the codes of a block. kBits: as in StoreCodes.
template <int kBits>
HWY_INLINE void LoadCodes(const uint8_t* in, const GroupLayout& layout, const BlockShape& at,
                          VU codes[8]) {
  if constexpr (kBits != 0) {
    if (HWY_LIKELY(at.rows - at.block * 8 >= 8 && at.cols >= static_cast<int64_t>(hn::Lanes(DU()))))
      return LoadPlanes<kBits>(in, layout.cols, at, codes);
  }
  alignas(64) uint32_t any[8 * kLanes];
  LoadAnyCodes(in, layout, at, any);
  for (size_t r = 0; r < 8; ++r) codes[r] = hn::Load(DU(), any + r * hn::Lanes(DU()));
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#endif

// Codes on CUDA that are unpacked where they are used: a block of 8 rows of 4 columns in the
// registers of a thread. The values are bit for bit those that unpacking writes. For .cu files.
#pragma once
#include "compress/quantize/cuda_unpack.h"

namespace frugal::compress::cuda {

// What the codes of a thread's columns mean in split groups.
struct SplitColumns {
  float lo[2][kCols], step[2][kCols];
  float first[kCols];  // number of codes of class 0
};

__device__ __forceinline__ SplitColumns read_columns(const Unpacking& u, const UnpackPlace& at) {
  SplitColumns columns;
  const Quad<float> meta[4] = {load_meta(u, at, 0), load_meta(u, at, 1), load_meta(u, at, 2),
                               load_meta(u, at, 3)};
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    const ClassCodes codes = class_codes(meta[1].at[c], meta[3].at[c], u.weights, u.layout.bits);
    columns.first[c] = codes.count[0];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      columns.lo[k][c] = meta[2 * k].at[c];
      columns.step[k][c] =
          codes.spread[k] ? __fdiv_rn(meta[2 * k + 1].at[c], codes.count[k] - 1.0f) : 0.0f;
    }
    if (u.affine == nullptr || c >= at.codes.cols) continue;
    const float* map = u.affine + at.column + c;
    const float by = map[u.layout.cols];
    columns.lo[1][c] = __fmaf_rn(__fsub_rn(columns.lo[1][c], map[0]), by, map[2 * u.layout.cols]);
    columns.step[1][c] = __fmul_rn(columns.step[1][c], by);
    columns.lo[0][c] = columns.step[0][c] = 0;
  }
  return columns;
}

// How codes are read. kBits: 0 if the width is known only at run time.
template <int kBits_, bool kDithered_>
struct Reading {
  static constexpr int kBits = kBits_;
  static constexpr bool kDithered = kDithered_;
};
// Calls f(Reading<...>{}). The widths of the fixed levels have kernels of their own. Other widths
// are known at run time and cost few instructions more.
template <class F>
void with_reading(const UnpackJob& job, F&& f) {
  if (job.dithered) return f(Reading<0, true>{});
  if (job.layout.bits == 4) return f(Reading<4, false>{});
  if (job.layout.bits == 2) return f(Reading<2, false>{});
  if (job.layout.bits == 8) return f(Reading<8, false>{});
  f(Reading<0, false>{});
}

// The words of all planes of codes of kBits bits, and the code of element [r][c] in them. The other
// bits are those of 2^23.
template <int kBits, size_t kPlane = 0, int kShift = 0>
__device__ __forceinline__ void load_words(uint32_t* words, const uint8_t* plane,
                                           const CodeBlock& at) {
  constexpr Planes kPlanes = planes_of(kBits);
  if constexpr (kShift < kBits) {
    constexpr int kWidth = kPlanes.width[kPlane];
    const int byte_rows = (at.rows * kWidth + 7) / 8;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const int row = at.block * kWidth + j;
      words[kShift + j] =
          row < byte_rows ? load_bytes(plane + int64_t{row} * at.stride, at.cols, at.words) : 0;
    }
    load_words<kBits, kPlane + 1, kShift + kWidth>(words, plane + int64_t{byte_rows} * at.stride,
                                                   at);
  }
}
template <int kBits, size_t kPlane = 0, int kShift = 0>
__device__ __forceinline__ uint32_t code_in(const uint32_t* words, int r, int c) {
  constexpr Planes kPlanes = planes_of(kBits);
  if constexpr (kShift == kBits) {
    return kTwoTo23Bits;
  } else {
    constexpr int kWidth = kPlanes.width[kPlane], kPerByte = 8 / kWidth;
    const uint32_t word = words[kShift + r / kPerByte] >> (8 * c + r % kPerByte * kWidth);
    return (word & ((1u << kWidth) - 1)) << kShift |
           code_in<kBits, kPlane + 1, kShift + kWidth>(words, r, c);
  }
}

// A block in packed form. A row is unpacked to T only when it is asked for, so that few registers
// hold much.
template <class T, class Reading, int kClasses>
class Decoder {
  static constexpr int kBits = Reading::kBits;
  static constexpr bool kDithered = Reading::kDithered;

 public:
  // `keys`: those of dithered rounding.
  __device__ __forceinline__ Decoder(const Unpacking& u, const UnpackPlace& at,
                                     const StreamKeys& keys) {
    if constexpr (kBits != 0) {
      load_words<kBits>(words_, at.codes.first, at.codes);
    } else {
      uint32_t code[kRows][kCols];
      load_codes<0>(code, u.layout.bits, at.codes);
#pragma unroll
      for (int r = 0; r < kRows; r += 2)
#pragma unroll
        for (int c = 0; c < kCols; ++c)
          words_[r / 2 * kCols + c] = __byte_perm(code[r][c], code[r + 1][c], 0x5410);
    }
    bool odd = false;
    if constexpr (kClasses == 1) {
      lo_ = load_meta(u, at, 0);
      step_ = load_meta(u, at, 1);
      odd = has_nan(lo_);
    } else {
      columns_ = read_columns(u, at);
#pragma unroll
      for (int c = 0; c < kCols; ++c) odd = odd || columns_.lo[1][c] != columns_.lo[1][c];
    }
    odd_ = odd;
    if constexpr (kDithered)
      dither_.draw(keys, static_cast<uint32_t>(at.row / kRows), static_cast<uint32_t>(at.column));
    if constexpr (kDithered && kClasses == 1) {
#pragma unroll
      for (int c = 0; c < kCols; ++c)
        taken_.at[c] = takes_away(lo_.at[c], step_.at[c]) ? 1.0f : 0.0f;
    }
  }

  // bits: bit 8 c + r is set if element [r][c] belongs to class 1.
  __device__ __forceinline__ Quad<float> row(int r, uint32_t& bits) const {
    Quad<float> x;
    bool one[kCols] = {};
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      x.at[c] = float_of(code(r, c)) - kTwoTo23;
      if constexpr (kClasses == 2) {
        one[c] = x.at[c] >= columns_.first[c];
        x.at[c] -= one[c] ? columns_.first[c] : 0.0f;
        if (one[c]) bits |= 1u << (8 * c + r);
      }
    }
    if constexpr (kDithered) {
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        const float less = dither_.half_less_u(r, c);
        x.at[c] = kClasses == 2 ? __fadd_rn(x.at[c], less) : __fmaf_rn(less, taken_.at[c], x.at[c]);
      }
    }
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      if constexpr (kClasses == 1)
        x.at[c] = __fmaf_rn(x.at[c], step_.at[c], lo_.at[c]);
      else
        x.at[c] = __fmaf_rn(x.at[c], one[c] ? columns_.step[1][c] : columns_.step[0][c],
                            one[c] ? columns_.lo[1][c] : columns_.lo[0][c]);
    }
    if (odd_) canonicalize(x);
#pragma unroll
    for (int c = 0; c < kCols; ++c) x.at[c] = load(store<T>(x.at[c]));
    return x;
  }

 private:
  __device__ __forceinline__ uint32_t code(int r, int c) const {
    if constexpr (kBits != 0) return code_in<kBits>(words_, r, c);
    return __byte_perm(words_[r / 2 * kCols + c], kTwoTo23Bits, r % 2 == 0 ? 0x7410u : 0x7432u);
  }

  uint32_t words_[kBits == 0 ? kRows / 2 * kCols : kBits];
  Quad<float> lo_, step_, taken_;  // for plain groups
  SplitColumns columns_;           // for split groups
  BlockWords dither_;
  bool odd_;
};

// Row r of the block, of a tensor that has the layout of the unpacked one.
template <class T>
__device__ __forceinline__ Quad<T> load_row(const Unpacking& u, const UnpackPlace& at, int r,
                                            const void* from, bool quads) {
  const int64_t index = (at.row + r) * u.layout.cols + at.column;
  Quad<T> out{};
  if (r >= at.rows || index >= u.end) return out;
  const T* x = static_cast<const T*>(from) + (index - u.begin);
  if (quads && index + kCols <= u.end) return ops::cuda::get_raw<kCols>(x);
#pragma unroll
  for (int c = 0; c < kCols; ++c)
    if (c < at.codes.cols && index + c < u.end) out.at[c] = x[c];
  return out;
}

// How many rows are loaded before the first of them is stored. Loads after a store could be of what
// it wrote, so they would wait for one another.
template <class T>
inline constexpr int kRowsAtOnce = sizeof(T) == 2 ? kRows : kRows / 2;

}  // namespace frugal::compress::cuda

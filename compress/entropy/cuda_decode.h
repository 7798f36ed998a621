// Codes on CUDA that are unpacked where they are used: a block of 8 rows of 4 columns in the
// registers of a thread. The values are bit for bit those that unpacking writes. For .cu files.
#pragma once
#include "compress/quantize/cuda_unpack.h"

namespace frugal::compress::cuda {

// What the codes of a thread's columns mean in split groups.
struct SplitColumns {
  float lo[2][kCols], step[2][kCols];
  float first[kCols];  // 2^23 + the number of codes of class 0
  bool odd;            // a column is NaN
  bool has_nan;        // one of these numbers is NaN

  // Returns the level of a code within its class. `code` is 2^23 + the number of the code, and
  // `one` becomes true if the code is of class 1. All numbers are integers, so the result is exact.
  __device__ __forceinline__ float level(float code, int c, bool& one) const {
    one = code >= first[c];
    return code - (one ? first[c] : kTwoTo23);
  }
  __device__ __forceinline__ float value(float level, int c, bool one) const {
    return __fmaf_rn(level, one ? step[1][c] : step[0][c], one ? lo[1][c] : lo[0][c]);
  }
};

__device__ __forceinline__ SplitColumns read_columns(const Unpacking& u, const UnpackPlace& at) {
  SplitColumns columns;
  const Quad<float> meta[4] = {load_meta(u, at, 0), load_meta(u, at, 1), load_meta(u, at, 2),
                               load_meta(u, at, 3)};
  columns.odd = columns.has_nan = false;
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    const ClassCodes codes = class_codes(meta[1].at[c], meta[3].at[c], u.weights, u.layout.bits);
    columns.first[c] = kTwoTo23 + codes.count[0];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      columns.lo[k][c] = meta[2 * k].at[c];
      columns.step[k][c] =
          codes.spread[k] ? __fdiv_rn(meta[2 * k + 1].at[c], codes.count[k] - 1.0f) : 0.0f;
    }
    if (u.affine != nullptr && c < at.codes.cols) {
      const float* map = u.affine + at.column + c;
      const float by = map[u.layout.cols];
      columns.lo[1][c] = __fmaf_rn(__fsub_rn(columns.lo[1][c], map[0]), by, map[2 * u.layout.cols]);
      columns.step[1][c] = __fmul_rn(columns.step[1][c], by);
      columns.lo[0][c] = columns.step[0][c] = 0;
    }
    columns.odd = columns.odd || is_nan(columns.lo[1][c]);
    columns.has_nan = columns.has_nan || is_nan(columns.lo[0][c]) || is_nan(columns.step[0][c]) ||
                      is_nan(columns.step[1][c]);
  }
  columns.has_nan = columns.has_nan || columns.odd;
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

// Blocks of a thread below one another, in packed form. A row is unpacked to T only when it is
// asked for, so that few registers hold much.
template <class T, class Reading, int kClasses>
class Decoder {
  static constexpr int kBits = Reading::kBits;
  static constexpr bool kDithered = Reading::kDithered;

 public:
  // Goes on to a block. `keys`: those of dithered rounding.
  __device__ __forceinline__ void read(const Unpacking& u, const UnpackPlace& at,
                                       const StreamKeys& keys) {
    with_flag(at.whole, [&]<bool kWhole>(std::bool_constant<kWhole>) {
      codes_.template load<kWhole>(at.codes, u.layout.bits);
    });
    if (at.group != group_) read_group(u, at);
    group_ = at.group;
    if constexpr (kDithered)
      dither_.draw(keys, static_cast<uint32_t>(at.row / kRows), static_cast<uint32_t>(at.column));
  }

  // Whether row<true>() may be asked for.
  __device__ __forceinline__ bool is_plain() const {
    if constexpr (kClasses == 1) return !odd_;
    return !columns_.has_nan;
  }

  // one: which elements belong to class 1. kPlain: nothing is NaN.
  template <bool kPlain>
  __device__ __forceinline__ Quad<float> row(int r, bool (&one)[kCols]) const {
    Quad<float> x;
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      one[c] = false;
      if constexpr (kClasses == 1) {
        x.at[c] = codes_.level(r, c) - kTwoTo23;
        if constexpr (kDithered)
          x.at[c] = __fmaf_rn(dither_.half_less_u(r, c), taken_.at[c], x.at[c]);
        x.at[c] = __fmaf_rn(x.at[c], step_.at[c], lo_.at[c]);
      } else {
        x.at[c] = columns_.level(codes_.level(r, c), c, one[c]);
        if constexpr (kDithered) x.at[c] = __fadd_rn(x.at[c], dither_.half_less_u(r, c));
        x.at[c] = columns_.value(x.at[c], c, one[c]);
      }
    }
    if constexpr (!kPlain) {
      if (kClasses == 1 ? odd_ : columns_.odd) canonicalize(x);
#pragma unroll
      for (int c = 0; c < kCols; ++c) x.at[c] = load(store<T>(x.at[c]));
    } else if constexpr (std::is_same_v<T, BFloat16>) {
#pragma unroll
      for (int c = 0; c < kCols; c += 2) {
        const uint32_t both = ops::cuda::store_pair(x.at[c], x.at[c + 1]);
        x.at[c] = float_of(both << 16);
        x.at[c + 1] = float_of(both & 0xffff0000u);
      }
    }
    return x;
  }

 private:
  __device__ __forceinline__ void read_group(const Unpacking& u, const UnpackPlace& at) {
    if constexpr (kClasses == 2) {
      columns_ = read_columns(u, at);
    } else {
      lo_ = load_meta(u, at, 0);
      step_ = load_meta(u, at, 1);
      odd_ = has_nan(lo_);
      if constexpr (kDithered) {
#pragma unroll
        for (int c = 0; c < kCols; ++c)
          taken_.at[c] = takes_away(lo_.at[c], step_.at[c]) ? 1.0f : 0.0f;
      }
    }
  }

  BlockCodes<kBits> codes_;
  int64_t group_ = -1;
  Quad<float> lo_, step_, taken_;  // for plain groups
  bool odd_;                       // see SplitColumns
  SplitColumns columns_;           // for split groups
  BlockWords dither_;
};

// How many rows are loaded before the first of them is stored. Loads after a store could be of what
// it wrote, so they would wait for one another. Rare code takes one row, and few registers.
template <class T, bool kWhole>
inline constexpr int kRowsAtOnce = !kWhole          ? 1
                                   : sizeof(T) == 2 ? kRows
                                                    : kRows / 2;

}  // namespace frugal::compress::cuda

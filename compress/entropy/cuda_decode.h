// Codes on CUDA that are unpacked where they are used: a block of 8 rows of 4 columns in the
// registers of a thread. The values are bit for bit those that unpacking writes. For .cu files.
#pragma once
#include "compress/quantize/cuda_unpack.h"

namespace frugal::compress::cuda {

// The rows that are drawn in a block of 8 rows of a thread's columns, 4 bits a column. never: has
// all bits of columns that draw no rows.
__device__ __forceinline__ uint32_t drawn_rows(const StreamKeys& keys, uint32_t block,
                                               uint32_t column, uint32_t never) {
  static_assert(kDrawEvery <= 16);
  const uint32_t of_block = drawn_row_of_block(keys.key[0], block);
  uint32_t rows = never;
#pragma unroll
  for (uint32_t c = 0; c < kCols; ++c)
    rows |= drawn_row(of_block, drawn_row_of_column(keys.key[1], column + c)) << (4 * c);
  return rows;
}
__device__ __forceinline__ bool is_drawn(uint32_t rows, int r, int c) {
  return (rows >> (4 * c) & 15u) == static_cast<uint32_t>(r);
}
inline constexpr uint32_t kNeverDrawn = 0xffff;
// Can codes of this width be in groups that draw rows? kBits: 0 if the width is known late.
template <int kBits>
inline constexpr bool kMayDraw = kBits <= kMostDrawnBits;

// What the codes of a thread's columns mean in split groups. kDraws: they may draw rows.
template <bool kDraws>
struct SplitColumns {
  float lo[2][kCols], step[2][kCols];
  float first[kCols];  // 2^23 + the number of codes of class 0
  // Where rows are drawn, `first` is that of other rows, and `lo` and `step` are those of several
  // codes. place: what the only code of a class stands for.
  float place[2][kDraws ? kCols : 1];
  float drawn_first;
  uint32_t never;  // see drawn_rows()
  bool odd;        // a column is NaN
  bool has_nan;    // one of these numbers is NaN

  // Returns the level of a code within its class. `code` is 2^23 + the number of the code, and
  // `one` becomes true if the code is of class 1. All numbers are integers, so the result is exact.
  __device__ __forceinline__ float level(float code, int c, bool drawn, bool& one) const {
    const float begin = kDraws && drawn ? drawn_first : first[c];
    one = code >= begin;
    return code - (one ? begin : kTwoTo23);
  }
  __device__ __forceinline__ float value(float level, int c, bool drawn, bool one) const {
    float from = one ? lo[1][c] : lo[0][c], by = one ? step[1][c] : step[0][c];
    if constexpr (kDraws) {
      if ((never >> (4 * c) & 1u) == 0 && one == drawn)
        from = one ? place[1][c] : place[0][c], by = 0;
    }
    return __fmaf_rn(level, by, from);
  }
};

template <bool kDraws>
__device__ __forceinline__ SplitColumns<kDraws> read_columns(const Unpacking& u,
                                                             const UnpackPlace& at) {
  SplitColumns<kDraws> columns;
  const Quad<float> meta[4] = {load_meta(u, at, 0), load_meta(u, at, 1), load_meta(u, at, 2),
                               load_meta(u, at, 3)};
  const float most = static_cast<float>((1 << u.layout.bits) - 1);
  columns.odd = columns.has_nan = false;
  columns.never = kNeverDrawn;
  columns.drawn_first = kTwoTo23 + most;
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
    if constexpr (kDraws) {
      if (draws_rows(u.weights, u.layout.bits, meta[1].at[c], meta[3].at[c])) {
        const int above = class_above(meta[0].at[c], meta[1].at[c], meta[2].at[c], meta[3].at[c]);
        columns.never &= ~(15u << (4 * c));
        columns.first[c] = kTwoTo23 + 1.0f;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const float lo = meta[2 * k].at[c], range = meta[2 * k + 1].at[c];
          columns.place[k][c] = __fmaf_rn(range, drawn_place(k, above), lo);
          columns.lo[k][c] = __fmaf_rn(range, drawn_base(k, above), lo);
          columns.step[k][c] = __fmul_rn(__fdiv_rn(range, most - 1.0f), drawn_factor(k));
        }
      }
    }
    if (u.affine != nullptr && c < at.codes.cols) {
      const float* map = u.affine + at.column + c;
      const float by = map[u.layout.cols];
      const auto mapped = [&](float lo) {
        return __fmaf_rn(__fsub_rn(lo, map[0]), by, map[2 * u.layout.cols]);
      };
      columns.lo[1][c] = mapped(columns.lo[1][c]);
      columns.step[1][c] = __fmul_rn(columns.step[1][c], by);
      columns.lo[0][c] = columns.step[0][c] = 0;
      if constexpr (kDraws)
        columns.place[1][c] = mapped(columns.place[1][c]), columns.place[0][c] = 0;
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
  // Goes on to a block. `keys`: see draw_keys().
  __device__ __forceinline__ void read(const Unpacking& u, const UnpackPlace& at,
                                       const StreamKeys& keys) {
    with_flag(at.whole, [&]<bool kWhole>(std::bool_constant<kWhole>) {
      codes_.template load<kWhole>(at.codes, u.layout.bits);
    });
    if (at.group != group_) read_group(u, at);
    group_ = at.group;
    if constexpr (kDithered)
      dither_.draw(keys, static_cast<uint32_t>(at.row / kRows), static_cast<uint32_t>(at.column));
    if constexpr (kClasses == 2 && kMayDraw<kBits>) {
      drawn_ = kNeverDrawn;
      if (may_draw_rows(u.weights, u.layout.bits))
        drawn_ = drawn_rows(keys, static_cast<uint32_t>(at.row / kRows),
                            static_cast<uint32_t>(at.column), columns_.never);
    }
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
        const bool drawn = kMayDraw<kBits> && is_drawn(drawn_, r, c);
        x.at[c] = columns_.level(codes_.level(r, c), c, drawn, one[c]);
        if constexpr (kDithered) x.at[c] = __fadd_rn(x.at[c], dither_.half_less_u(r, c));
        x.at[c] = columns_.value(x.at[c], c, drawn, one[c]);
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
      columns_ = read_columns<kMayDraw<kBits>>(u, at);
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
  Quad<float> lo_, step_, taken_;          // for plain groups
  bool odd_;                               // see SplitColumns
  SplitColumns<kMayDraw<kBits>> columns_;  // for split groups
  uint32_t drawn_ = kNeverDrawn;           // drawn_rows() of the block
  BlockWords dither_;
};

// How many rows are loaded before the first of them is stored. Loads after a store could be of what
// it wrote, so they would wait for one another. Rare code takes one row, and few registers.
template <class T, bool kWhole>
inline constexpr int kRowsAtOnce = !kWhole          ? 1
                                   : sizeof(T) == 2 ? kRows
                                                    : kRows / 2;

}  // namespace frugal::compress::cuda

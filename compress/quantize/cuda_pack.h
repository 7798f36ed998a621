// Pack on CUDA, plain and split groups: one pass. A block of threads takes whole row groups of a
// strip of columns, reads them once into registers, agrees on minima and maxima through shared
// memory, and codes what it holds. Groups of more than 256 rows are read a second time.
//
// A warp reads 4 rows of 128 bytes (bf16: 64), and the next tile is prefetched, so that memory is
// busy while blocks compute. On an H100 the time goes into instructions, and into waiting for the
// one warp that computes the groups' parameters. So rare cases (ragged edges, what is not finite)
// have code of their own, divisions are few, and other blocks of threads fill the wait.
#pragma once
#include "compress/quantize/cuda_codes.h"
#include "core/cuda/divisor.h"
#include "core/finite.h"

namespace frugal::compress::cuda {

// How a layout is cut. A thread's slot is its place downwards in the block of threads.
struct PackTile {
  int across = 0;  // threads side by side
  int held = 0;    // blocks of 8 rows of a group that are held at once
  int chunks = 0;  // how often that makes a group
  int groups = 0;  // groups of a block of threads
  int pairs = 0;   // (group, column) pairs with a range of their own
  int copies = 1;  // a pair has its parameters so often: four columns may share them
  int fold = 0;    // 2^fold threads of a warp combine their extremes by themselves
  int shift = 0;   // 2^shift threads combine what is left of a pair
  int64_t strips = 0;
  int threads = 0;
  Divisor by_across, by_held, by_columns, by_strips;  // by_columns: columns of the tile
};

inline PackTile pack_tile(const GroupLayout& layout) {
  constexpr int64_t kMaxAcross = 8;  // 32 columns, and 32 blocks of 8 rows beside each other
  PackTile tile;
  const int64_t quads = (layout.cols + kCols - 1) / kCols, blocks = layout.group_rows / kRows;
  tile.strips = (quads + kMaxAcross - 1) / kMaxAcross;
  tile.across = static_cast<int>((quads + tile.strips - 1) / tile.strips);
  tile.held = static_cast<int>(std::min<int64_t>(blocks, kThreads / kMaxAcross));
  tile.chunks = static_cast<int>((blocks + tile.held - 1) / tile.held);
  tile.groups = tile.chunks > 1 ? 1 : kThreads / (tile.across * tile.held);
  tile.groups = static_cast<int>(std::min<int64_t>(tile.groups, layout.groups));
  tile.pairs = tile.groups * (layout.shared ? 1 : tile.across * kCols);
  tile.copies = layout.shared ? kCols : 1;
  tile.threads = (tile.across * tile.held * tile.groups + kWarp - 1) / kWarp * kWarp;
  const bool is_power = (tile.across & (tile.across - 1)) == 0;
  while (is_power && tile.across << tile.fold < kWarp && (tile.held >> tile.fold) % 2 == 0)
    ++tile.fold;
  // As few warps as possible, because every one of them would take the time of the divisions.
  while (tile.pairs << (tile.shift + 1) <= kWarp) ++tile.shift;
  tile.by_across = Divisor(tile.across);
  tile.by_held = Divisor(tile.held);
  tile.by_columns = Divisor(tile.across * kCols);
  tile.by_strips = Divisor(tile.strips);
  return tile;
}

struct Packing {
  const void* x;
  uint8_t* payload;
  const uint8_t* mask;
  unsigned long long* nonfinite;
  GroupLayout layout;
  StreamName stream;
  SplitWeights weights;
  PackTile tile;
  int ahead = 0;  // blocks of threads between a tile and the one that it prefetches
  // Blocks of 8 rows of the view that lack no element and whose rows are read as quads. A thread's
  // usual block is one of these, so that it has few bounds and addresses to compute.
  uint32_t whole_blocks = 0;
  uint32_t groups = 0, group_blocks = 0;  // group_blocks: of a full group
  int group_rows = 0, last_rows = 0;      // rows of a full group, and of the last one
  int64_t group_bytes = 0;                // a full group's codes take so many
  uint8_t* codes = nullptr;               // here the first group's begin
  uint32_t two_to_15 = kTwoTo15Bits;      // not a constant of the kernel: see OneAndU
  bool stochastic = false, words = false, mask_words = false;
};

// Shared memory: extremes of each column of 2^fold slots, then parameters of each pair, four pairs
// at an aligned address.
struct PackShared {
  int stride, plane, pairs;
  __host__ __device__ explicit PackShared(const PackTile& tile)
      : stride((tile.across + 1) * kCols),  // so that lanes that combine meet no bank twice
        plane(stride * (tile.held >> tile.fold) * tile.groups),
        pairs(tile.pairs * tile.copies) {}
};

template <int kClasses>
inline constexpr int kParameters = kClasses == 1 ? 3 : 7;

template <int kClasses>
size_t shared_bytes(const PackTile& tile) {
  const PackShared shared(tile);
  return sizeof(float) *
         static_cast<size_t>(2 * kClasses * shared.plane + kParameters<kClasses> * shared.pairs);
}

// The lesser or the greater of two; NaN where one of them is NaN.
__device__ __forceinline__ float lesser(float a, float b) {
#ifdef FRUGAL_CUDA_EMULATOR
  return a < b || is_nan(a) ? a : b;
#else
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
  return a;
#endif
}
__device__ __forceinline__ float greater(float a, float b) {
#ifdef FRUGAL_CUDA_EMULATOR
  return a > b || is_nan(a) ? a : b;
#else
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
  return a;
#endif
}

// Two neighbours of bf16 in a register.
__device__ __forceinline__ float lower_half(uint32_t pair) { return float_of(pair << 16); }
__device__ __forceinline__ float upper_half(uint32_t pair) { return float_of(pair & 0xffff0000u); }
#ifdef FRUGAL_CUDA_EMULATOR
template <class F>
uint32_t by_halves(uint32_t a, uint32_t b, F f) {
  return __float_as_uint(f(lower_half(a), lower_half(b))) >> 16 |
         (__float_as_uint(f(upper_half(a), upper_half(b))) & 0xffff0000u);
}
#endif
__device__ __forceinline__ uint32_t lesser_pair(uint32_t a, uint32_t b) {
#ifdef FRUGAL_CUDA_EMULATOR
  return by_halves(a, b, [](float x, float y) { return lesser(x, y); });
#else
  asm("min.NaN.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
#endif
}
__device__ __forceinline__ uint32_t greater_pair(uint32_t a, uint32_t b) {
#ifdef FRUGAL_CUDA_EMULATOR
  return by_halves(a, b, [](float x, float y) { return greater(x, y); });
#else
  asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
#endif
}
// Halves of ones where bytes 2 kPair and 2 kPair + 1 of x have their highest bit, else of zeros.
template <int kPair>
__device__ __forceinline__ uint32_t halves_of_signs(uint32_t x) {
#ifdef FRUGAL_CUDA_EMULATOR
  const uint32_t both = x >> (16 * kPair);
  return (both & 0x80u ? 0xffffu : 0u) | (both & 0x8000u ? 0xffff0000u : 0u);
#else
  uint32_t y;  // the highest bit of a selector repeats the sign of its byte
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(y) : "r"(x), "n"(kPair == 0 ? 0x9988 : 0xbbaa));
  return y;
#endif
}
__device__ __forceinline__ uint32_t choose(uint32_t mask, uint32_t a, uint32_t b) {
  return (a & mask) | (b & ~mask);
}

// 8 rows of 4 columns: f32 and bf16 in the bits that they have in memory, f16 as f32.
template <class T>
struct Values {
  float at[kRows][kCols];
  __device__ __forceinline__ float operator()(int r, int c) const { return at[r][c]; }
  __device__ __forceinline__ void set_row(int r, const T* from) {
    const Quad<T> row = ops::cuda::get_raw<kCols>(from);
#pragma unroll
    for (int c = 0; c < kCols; ++c) at[r][c] = wide(row.at[c]);
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kCols; ++c) at[r][c] = 0;
  }
  __device__ __forceinline__ void set(int r, int c, T x) { at[r][c] = wide(x); }
};
template <>
struct Values<BFloat16> {
  uint32_t pair[kRows][kCols / 2];
  __device__ __forceinline__ float operator()(int r, int c) const {
    return c % 2 == 0 ? lower_half(pair[r][c / 2]) : upper_half(pair[r][c / 2]);
  }
  __device__ __forceinline__ void set_row(int r, const BFloat16* from) {
    const auto row = *reinterpret_cast<const uint2*>(from);
    pair[r][0] = row.x, pair[r][1] = row.y;
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) pair[r][0] = pair[r][1] = 0;
  }
  // REQUIRES: clear() before.
  __device__ __forceinline__ void set(int r, int c, BFloat16 x) {
    pair[r][c / 2] |= uint32_t{x.bits} << (c % 2 * 16);
  }
};

// Returns which elements of a block of the view exist, row by row, 4 bits each; the others are 0.
template <class T>
__device__ __forceinline__ uint32_t load_values(const Packing& p, uint32_t block, int rows_left,
                                                int column, Values<T>& at) {
  if (block < p.whole_blocks) {
    const auto stride = static_cast<uint32_t>(p.layout.cols);
    const T* from = static_cast<const T*>(p.x) + uint64_t{block * kRows} * stride + column;
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r)
      at.set_row(static_cast<int>(r), from + uint64_t{r} * stride);
    return ~0u;
  }
  column = unknown(column);  // nothing of the rare way is computed before it
  const int64_t cols = p.layout.cols, begin = int64_t{block} * kRows * cols + column;
  const T* from = static_cast<const T*>(p.x) + begin;
  uint32_t present = 0;
  at.clear();
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    one_after_another();
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const bool inside =
          r < rows_left && column + c < cols && begin + r * cols + c < p.layout.numel;
      if (!inside) continue;
      at.set(r, c, from[r * cols + c]);
      present |= 1u << (r * kCols + c);
    }
  }
  return present;
}

// Least and greatest values of a thread's columns, by class. A NaN stays in both.
template <class T, int kClasses>
struct Extremes {
  float mn[kClasses][kCols], mx[kClasses][kCols];

  __device__ __forceinline__ Extremes() {
#pragma unroll
    for (int c = 0; c < kCols; ++c)
#pragma unroll
      for (int k = 0; k < kClasses; ++k) mn[k][c] = kInfinity, mx[k][c] = -kInfinity;
  }
  // class1: bit 8 c + r of element [r][c].
  template <bool kAll>
  __device__ __forceinline__ void add(const Values<T>& at, uint32_t present, uint32_t class1) {
#pragma unroll
    for (int c = 0; c < kCols; ++c)
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float x = at(r, c);
        if (!kAll && (present >> (r * kCols + c) & 1u) == 0) continue;
        if (kClasses == 1 || (class1 >> (8 * c + r) & 1u) == 0) {
          mn[0][c] = lesser(mn[0][c], x), mx[0][c] = greater(mx[0][c], x);
        } else {
          mn[kClasses - 1][c] = lesser(mn[kClasses - 1][c], x);
          mx[kClasses - 1][c] = greater(mx[kClasses - 1][c], x);
        }
      }
  }
  // With those of the lane whose number differs by the bit `step`.
  __device__ __forceinline__ void combine(int step) {
#pragma unroll
    for (int c = 0; c < kCols; ++c)
#pragma unroll
      for (int k = 0; k < kClasses; ++k) {
        mn[k][c] = lesser(mn[k][c], __shfl_xor_sync(kAllLanes, mn[k][c], step));
        mx[k][c] = greater(mx[k][c], __shfl_xor_sync(kAllLanes, mx[k][c], step));
      }
  }
  __device__ __forceinline__ float least(int k, int c) const { return mn[k][c]; }
  __device__ __forceinline__ float most(int k, int c) const { return mx[k][c]; }
};
template <int kClasses>
struct Extremes<BFloat16, kClasses> {
  static constexpr uint32_t kInfinities = 0x7f807f80u, kNegative = 0x80008000u;
  uint32_t mn[kClasses][kCols / 2], mx[kClasses][kCols / 2];

  __device__ __forceinline__ Extremes() {
#pragma unroll
    for (int i = 0; i < kCols / 2; ++i)
#pragma unroll
      for (int k = 0; k < kClasses; ++k) mn[k][i] = kInfinities, mx[k][i] = kInfinities | kNegative;
  }
  template <bool kAll>
  __device__ __forceinline__ void add(const Values<BFloat16>& at, uint32_t present,
                                      uint32_t class1) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      add_pair<kAll, 0>(at.pair[r][0], present >> (r * kCols), class1 << (7 - r));
      add_pair<kAll, 1>(at.pair[r][1], present >> (r * kCols + 2), class1 << (7 - r));
    }
  }
  __device__ __forceinline__ void combine(int step) {
#pragma unroll
    for (int i = 0; i < kCols / 2; ++i)
#pragma unroll
      for (int k = 0; k < kClasses; ++k) {
        mn[k][i] = lesser_pair(mn[k][i], __shfl_xor_sync(kAllLanes, mn[k][i], step));
        mx[k][i] = greater_pair(mx[k][i], __shfl_xor_sync(kAllLanes, mx[k][i], step));
      }
  }
  __device__ __forceinline__ float least(int k, int c) const { return half(mn[k][c / 2], c); }
  __device__ __forceinline__ float most(int k, int c) const { return half(mx[k][c / 2], c); }

 private:
  // present: two bits. class1: the highest bits of bytes.
  template <bool kAll, int kPair>
  __device__ __forceinline__ void add_pair(uint32_t x, uint32_t present, uint32_t class1) {
    uint32_t there = ~0u;
    if (!kAll) there = ((present & 1u) != 0 ? 0xffffu : 0u) | ((present & 2u) != 0 ? ~0xffffu : 0u);
    uint32_t one = 0;
    if (kClasses == 2) one = halves_of_signs<kPair>(class1);
#pragma unroll
    for (int k = 0; k < kClasses; ++k) {
      const uint32_t its = kClasses == 1 ? there : there & (k == 0 ? ~one : one);
      mn[k][kPair] = lesser_pair(mn[k][kPair], choose(its, x, kInfinities));
      mx[k][kPair] = greater_pair(mx[k][kPair], choose(its, x, kInfinities | kNegative));
    }
  }
  static __device__ __forceinline__ float half(uint32_t pair, int c) {
    return c % 2 == 0 ? lower_half(pair) : upper_half(pair);
  }
};

template <class T, int kClasses>
__device__ __forceinline__ void store_extremes(const Extremes<T, kClasses>& mine,
                                               const PackShared& shared, int slot, int column,
                                               float* to) {
#pragma unroll
  for (int k = 0; k < kClasses; ++k) {
    Quad<float> least, most;
#pragma unroll
    for (int c = 0; c < kCols; ++c) least.at[c] = mine.least(k, c), most.at[c] = mine.most(k, c);
    float* at = to + 2 * k * shared.plane + slot * shared.stride + column;
    *reinterpret_cast<Quad<float>*>(at) = least;
    *reinterpret_cast<Quad<float>*>(at + shared.plane) = most;
  }
}

// bf16 towards -infinity; towards +infinity of what is not negative.
__device__ __forceinline__ float round_down(float x) {
  const uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0f));
  return float_of((bits >> 31 != 0 ? bits + 0xffffu : bits) & 0xffff0000u);
}
__device__ __forceinline__ float round_up(float x) {
  return float_of((__float_as_uint(x) + 0xffffu) & 0xffff0000u);
}
__device__ __forceinline__ uint16_t upper(float x) {
  return static_cast<uint16_t>(__float_as_uint(x) >> 16);
}

// What values of a column are coded with:
//   plain: base, inverse, half (0: not finite)
//   split: base and inverse and count of both classes, keep (0: not finite; 1: draws rows; else -1)
//     Where rows are drawn, count is that of the others, and inverse that of several codes.
template <int kClasses>
using Parameters = std::array<float, kParameters<kClasses>>;
template <int kClasses>
inline constexpr int kKeep = kParameters<kClasses> - 1;

// Writes the metadata of a pair, and returns its parameters, from its extremes.
template <int kClasses>
__device__ __forceinline__ Parameters<kClasses> parameters_of(const Packing& p,
                                                              const float (&mn)[kClasses],
                                                              const float (&mx)[kClasses],
                                                              int64_t group, int64_t column) {
  const int bits = p.layout.bits;
  const int64_t metas = p.layout.metas();
  auto* meta = reinterpret_cast<uint16_t*>(p.payload + p.layout.meta_offset(group)) +
               (p.layout.shared ? 0 : column);
  if constexpr (kClasses == 1) {
    const float limit = bits == 1 ? 0x1.ep126f : 0x1.ep127f;  // max_magnitude()
    if (!(mn[0] >= -limit && mx[0] <= limit)) {
      meta[0] = meta[metas] = kNonfiniteBits;
      atomicAdd(p.nonfinite, 1ull);
      return {};
    }
    const float least = __fadd_rn(mn[0], 0.0f), most = __fadd_rn(mx[0], 0.0f);
    const float lo = round_down(least);
    const float half = fmaxf(fabsf(least), fabsf(most)) >= 0x1p126f ? 0.5f : 1.0f;
    const float levels = static_cast<float>((1 << bits) - 1);
    const float base = __fmul_rn(lo, half);
    const float range = __fmaf_rn(most, half, -base);
    float step = fmaxf(round_up(__fdiv_rn(range, levels)), 0x1p-126f);
    if (__fmul_rn(levels, step) < range) step = float_of(__float_as_uint(step) + 0x10000u);
    meta[0] = upper(lo);
    meta[metas] = upper(__fdiv_rn(step, half));
    return {base, __fdiv_rn(1.0f, step), half};
  } else {
    const bool finite = mn[0] >= -kSplitMaxMagnitude && mn[1] >= -kSplitMaxMagnitude &&
                        mx[0] <= kSplitMaxMagnitude && mx[1] <= kSplitMaxMagnitude;
    float lo[2], range[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      lo[k] = range[k] = float_of(uint32_t{kNonfiniteBits} << 16);
      if (finite && mn[k] > mx[k]) {
        lo[k] = 0, range[k] = -0.0f;
      } else if (finite) {
        lo[k] = round_down(mn[k]);
        const float up = round_up(__fsub_rn(__fadd_rn(mx[k], 0.0f), lo[k]));
        range[k] = up == 0 ? 0.0f : fmaxf(up, kSplitMinRange);
      }
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      meta[2 * k * metas] = upper(lo[k]);
      meta[(2 * k + 1) * metas] = upper(range[k]);
    }
    if (!finite) atomicAdd(p.nonfinite, 1ull);
    const bool draws = draws_rows(p.weights, bits, range[0], range[1]);
    const float most = static_cast<float>((1 << bits) - 1);
    ClassCodes codes = class_codes(range[0], range[1], p.weights, bits);
    if (draws) codes.count[0] = 1, codes.count[1] = most;
    Parameters<2> found;
#pragma unroll
    for (size_t k = 0; k < 2; ++k) {
      const float several = draws ? most : codes.count[k];
      found[k] = finite ? lo[k] : 0.0f;
      found[2 + k] = codes.spread[k] ? __fdiv_rn(several - 1.0f, range[k]) : 0.0f;
      found[4 + k] = codes.count[k];
    }
    found[6] = !finite ? 0.0f : draws ? 1.0f : -1.0f;
    return found;
  }
}

// Writes a pair's parameters, which lie `stride` apart.
template <size_t kCount>
__device__ __forceinline__ void store_parameters(const std::array<float, kCount>& found, int copies,
                                                 int stride, float* to) {
  for (int i = 0; i < copies; ++i)
#pragma unroll
    for (size_t k = 0; k < kCount; ++k) to[static_cast<int>(k) * stride + i] = found[k];
}

// Turns values of column c into codes. `words` belong to its pair of columns. The upper half of a
// code is that of 2^23, or nothing where an element is missing. kWhole: no element is missing, and
// all are coded as they are.
template <int kBits, int kClasses, bool kWhole, class T>
__device__ __forceinline__ void code_column(const Packing& p, const StreamKeys& keys,
                                            const Values<T>& at, uint32_t present, uint32_t class1,
                                            uint32_t block, uint32_t column, int c,
                                            const Parameters<kClasses>& parameters,
                                            const OneAndU& one_and_u, const StreamWords& words,
                                            uint32_t (&code)[kRows]) {
  constexpr bool kClamps = kBits == 0;  // up to 8 bits nothing rounds up to 2^bits + 1
  const float top = static_cast<float>(1 << p.layout.bits);
  const float keep = parameters[kKeep<kClasses>];
  const float base = parameters[0], inverse = parameters[kClasses == 1 ? 1 : 2];
  constexpr bool kMayDraw = kClasses == 2 && kBits != 0 && kBits <= kMostDrawnBits;
  const bool draws = kMayDraw && keep > 0;
  float base1 = 0, inverse1 = 0, count = 0, count1 = 0;
  if constexpr (kClasses == 2) {
    base1 = parameters[1], inverse1 = parameters[3];
    count = parameters[4], count1 = parameters[5];
  }
  const float shift1 = kTwoTo23 - 1.0f + count;
  uint32_t drawn_here = kRows;
  if (draws)
    drawn_here = drawn_row(drawn_row_of_block(keys.key[0], block),
                           drawn_row_of_column(keys.key[1], column + static_cast<uint32_t>(c)));
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float x = !kWhole && keep == 0 ? 0.0f : at(r, c);
    const float term = one_and_u(words, r, c);
    float v, shift = kTwoTo23 - 1.0f;  // trunc(v) - 1, in the mantissa
    if constexpr (kClasses == 1) {
      const float above = kWhole ? __fsub_rn(x, base) : __fmaf_rn(x, keep, -base);
      v = __fmaf_rn(above, inverse, term);
      if constexpr (kClamps) v = fminf(v, top);
    } else {
      const bool one = (class1 & (1u << (8 * c + r))) != 0;
      float by = one ? inverse1 : inverse;
      shift = one ? shift1 : shift;
      if constexpr (kMayDraw) {
        const bool drawn = drawn_here == static_cast<uint32_t>(r);
        if (draws && one == drawn) by = 0;  // the only code of its class
        if (one && drawn) shift = kTwoTo23 - 1.0f + count1;
      }
      v = __fmaf_rn(__fsub_rn(x, one ? base1 : base), by, term);
      if constexpr (kClamps) v = fminf(v, one ? count1 : count);
    }
    code[r] = __float_as_uint(__fadd_rz(v, shift));
    const bool there = kWhole || (present >> (r * kCols + c) & 1u) != 0;
    if (!there) code[r] = 0;
  }
}

// Parameters of a thread's four columns.
template <int kClasses>
struct QuadParameters {
  Quad<float> at[kParameters<kClasses>];

  // `from` is the first column's parameter in shared memory; the next one lies `stride` behind it.
  __device__ __forceinline__ QuadParameters(const float* from, int stride) {
#pragma unroll
    for (int k = 0; k < kParameters<kClasses>; ++k)
      at[k] = *reinterpret_cast<const Quad<float>*>(from + k * stride);
  }
  __device__ __forceinline__ Parameters<kClasses> of(int c) const {
    Parameters<kClasses> found;
#pragma unroll
    for (size_t k = 0; k < found.size(); ++k) found[k] = at[k].at[c];
    return found;
  }
  // Are the values of all columns finite, and coded as they are?
  __device__ __forceinline__ bool keeps_all() const {
    const Quad<float>& keep = at[kKeep<kClasses>];
    if constexpr (kClasses == 1)
      return keep.at[0] == 1 && keep.at[1] == 1 && keep.at[2] == 1 && keep.at[3] == 1;
    else
      return keep.at[0] != 0 && keep.at[1] != 0 && keep.at[2] != 0 && keep.at[3] != 0;
  }
};

// What the threads of a block draw with.
struct Drawing {
  StreamKeys keys;
  uint32_t two_to_15;
};

// A block that a thread codes.
struct PackedBlock {
  uint32_t group, in_view;  // in_view: its number in the view
  int in_group, rows, column, count;
};

// Where the codes of a block lie. Nothing of it is computed before: it would take registers that
// the usual block needs.
__device__ __forceinline__ CodeBlock codes_of(const Packing& p, const PackedBlock& block) {
  return {p.codes + unknown(static_cast<int64_t>(block.group)) * p.group_bytes + block.column,
          unknown(static_cast<int>(p.layout.cols)),
          unknown(block.rows),
          unknown(block.in_group),
          block.count,
          p.words};
}

template <int kBits, int kClasses, bool kWhole, class T>
__device__ __forceinline__ void code_planes(const Packing& p, const Drawing& drawing,
                                            const Values<T>& at, uint32_t present, uint32_t class1,
                                            const PackedBlock& block,
                                            const QuadParameters<kClasses>& parameters) {
  const StreamKeys& keys = drawing.keys;
  const OneAndU one_and_u(p.stochastic, drawing.two_to_15);
  const auto column = static_cast<uint32_t>(block.column);
  StreamWords words[kCols / 2] = {};
  if (p.stochastic) stream_words(keys, block.in_view, column / 2, words);
  const auto code_of = [&](int c, uint32_t(&code)[kRows]) {
    code_column<kBits, kClasses, kWhole>(p, keys, at, present, class1, block.in_view, column, c,
                                         parameters.of(c), one_and_u, words[c / 2], code);
  };
  if constexpr (kBits != 0) {
    uint32_t planes[kBits] = {};
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      uint32_t code[kRows];
      code_of(c, code);
      insert_planes<kBits>(code, c, planes);
    }
    // A plane of a group ends where its rows end. So blocks of a single plane follow one another.
    if (planes_of(kBits).count == 1 && kWhole && p.words && block.in_view < p.whole_blocks) {
      const auto stride = static_cast<uint32_t>(p.layout.cols);
      uint8_t* to = p.codes + uint64_t{block.in_view * kBits} * stride + column;
#pragma unroll
      for (uint32_t j = 0; j < kBits; ++j)
        *reinterpret_cast<uint32_t*>(to + uint64_t{j} * stride) = planes[j];
    } else {
      const CodeBlock to = codes_of(p, block);
      store_planes<kBits>(planes, to.first, to);
    }
  } else {
    uint32_t code[kCols][kRows];
#pragma unroll
    for (int c = 0; c < kCols; ++c) code_of(c, code[c]);
    store_planes(code, p.layout.bits, codes_of(p, block));
  }
}
template <int kBits, int kClasses, class T>
__device__ __forceinline__ void code_block(const Packing& p, const Drawing& drawing,
                                           const Values<T>& at, uint32_t present, uint32_t class1,
                                           const PackedBlock& block, const float* parameters,
                                           int stride) {
  const QuadParameters<kClasses> its(parameters, stride);
  if (kBits != 0 && present == ~0u && its.keeps_all())
    code_planes<kBits, kClasses, true>(p, drawing, at, present, class1, block, its);
  else
    code_planes<kBits, kClasses, false>(p, drawing, at, present, class1, block, its);
}

// Asks for a tile that is soon some block's, so that memory is busy while blocks compute: a line
// for each row, as a tile is at most 128 bytes wide.
template <class T>
__device__ __forceinline__ void prefetch_tile(const Packing& p, uint32_t index) {
  const PackTile& tile = p.tile;
  const auto [down, strip] = tile.by_strips.divide(index);
  const uint32_t row0 = down * static_cast<uint32_t>(tile.groups) * p.group_blocks * kRows;
  const uint32_t column = strip * static_cast<uint32_t>(tile.across) * kCols;
  const auto rows = static_cast<uint32_t>(tile.groups * tile.held * kRows);
#pragma unroll 1
  for (uint32_t r = threadIdx.x; r < rows; r += blockDim.x) {
    const uint32_t row = row0 + r;
    if (row / kRows < p.whole_blocks)
      prefetch_line(static_cast<const T*>(p.x) +
                    uint64_t{row} * static_cast<uint32_t>(p.layout.cols) + column);
  }
}

// What else becomes of a block of x while registers hold it: nothing. Others
// (compress/quantize/fused_pack.cu) tell its bits, as load_bytes() would.
struct NoMap {};

// Blocks of threads on a multiprocessor, as many as registers nearly suffice for: while some wait
// for the parameters of their groups, others compute. kBits: 0 for a width known late.
template <class T, int kBits, class Map>
inline constexpr int kPackBlocks =
    kBits == 0                                                            ? 1
    : sizeof(Values<T>) == 64 && kBits <= 4 && std::is_same_v<Map, NoMap> ? 4
                                                                          : 3;

template <class T, int kBits, int kClasses, class Map>
__global__ void __launch_bounds__(kThreads, kPackBlocks<T, kBits, Map>)
    pack_kernel(Packing p, Map map) {
  constexpr bool kMaps = !std::is_same_v<Map, NoMap>;
  const PackTile& tile = p.tile;
  const GroupLayout& layout = p.layout;
  const PackShared shared(tile);
  float* extremes = dynamic_shared<float>();
  float* parameters = extremes + 2 * kClasses * shared.plane;

  const int thread = static_cast<int>(threadIdx.x);
  const auto [slots, quad] = tile.by_across.divide(threadIdx.x);
  const auto [locals, blocks] = tile.by_held.divide(slots);
  const auto [tiles, strip] = tile.by_strips.divide(blockIdx.x);
  const int slot = static_cast<int>(slots), across = static_cast<int>(quad) * kCols;
  const int local = static_cast<int>(locals), block0 = static_cast<int>(blocks);
  const uint32_t group0 = tiles * static_cast<uint32_t>(tile.groups), group = group0 + locals;
  const uint32_t block_of_group = group * p.group_blocks;
  const int column0 = static_cast<int>(strip) * tile.across * kCols;
  const int column = column0 + across, cols = static_cast<int>(layout.cols);
  const bool has_slot = local < tile.groups;
  const bool active = has_slot && group < p.groups && column < cols;
  const int rows = !active ? 0 : group + 1 < p.groups ? p.group_rows : p.last_rows;
  const int count = cols - column < kCols ? cols - column : kCols;

  const auto bits_of = [&](int block) {
    return load_bytes(
        p.mask + int64_t{block_of_group + static_cast<uint32_t>(block)} * cols + column, count,
        p.mask_words);
  };

  __shared__ Drawing drawing;
  const bool draws = p.stochastic && thread == 0;
  const uint64_t steps = draws ? p.stream.advance->steps : 0;

  // The first chunk comes last, and stays.
  Values<T> at;
  Extremes<T, kClasses> mine;
  uint32_t present = 0, class1 = 0;
  const int chunks = kMaps ? 1 : tile.chunks;
  for (int chunk = chunks - 1; chunk >= 0; --chunk) {
    const int block = block0 + chunk * tile.held;
    if (block * kRows >= rows) continue;
    const uint32_t in_view = block_of_group + static_cast<uint32_t>(block);
    present = load_values<T>(p, in_view, rows - block * kRows, column, at);
    if constexpr (kMaps)
      class1 = map.template apply<T>(p, in_view, column, count, present, at);
    else if constexpr (kClasses == 2)
      class1 = bits_of(block);
    if (present == ~0u)
      mine.template add<true>(at, present, class1);
    else
      mine.template add<false>(at, present, class1);
  }
  if (draws) drawing.keys = stream_keys(p.stream, steps);
  if (thread == 0) drawing.two_to_15 = p.two_to_15;
  prefetch_tile<T>(p, blockIdx.x + static_cast<uint32_t>(p.ahead));
#pragma unroll 1
  for (int step = 0; step < tile.fold; ++step) mine.combine(tile.across << step);
  const int above = tile.held >> tile.fold;  // what is left of a group
  if (has_slot && (slot & ((1 << tile.fold) - 1)) == 0)
    store_extremes(mine, shared, slot >> tile.fold, across, extremes);
  __syncthreads();

  // The lanes of a pair are in one warp. Where a pair has several, one warp has all pairs.
  const int lanes = 1 << tile.shift, part = thread & (lanes - 1);
  for (int first = thread / kWarp * kWarp >> tile.shift; first < tile.pairs;
       first += static_cast<int>(blockDim.x)) {
    const int pair = first + (thread % kWarp >> tile.shift);
    const auto [down, right] = tile.by_columns.divide(static_cast<uint32_t>(pair));
    const int its = layout.shared ? pair : static_cast<int>(down);
    const int its_column = layout.shared ? 0 : static_cast<int>(right);
    float mn[kClasses], mx[kClasses];
#pragma unroll
    for (int k = 0; k < kClasses; ++k) mn[k] = kInfinity, mx[k] = -kInfinity;
    const auto add = [&](int place) {
      const float* from = extremes + its * above * shared.stride + place;
#pragma unroll
      for (int k = 0; k < kClasses; ++k) {
        mn[k] = lesser(mn[k], from[2 * k * shared.plane]);
        mx[k] = greater(mx[k], from[(2 * k + 1) * shared.plane]);
      }
    };
    if (pair < tile.pairs && layout.shared) {
      for (int entry = part; entry < above * tile.across * kCols; entry += lanes) {
        const auto [row, beside] = tile.by_columns.divide(static_cast<uint32_t>(entry));
        add(static_cast<int>(row) * shared.stride + static_cast<int>(beside));
      }
    } else if (pair < tile.pairs) {
#pragma unroll 4
      for (int row = part; row < above; row += lanes) add(row * shared.stride + its_column);
    }
    for (int step = lanes / 2; step > 0; step /= 2)
#pragma unroll
      for (int k = 0; k < kClasses; ++k) {
        mn[k] = lesser(mn[k], __shfl_xor_sync(kAllLanes, mn[k], step));
        mx[k] = greater(mx[k], __shfl_xor_sync(kAllLanes, mx[k], step));
      }
    const uint32_t its_group = group0 + static_cast<uint32_t>(its);
    if (pair < tile.pairs && part == 0 && its_group < p.groups && column0 + its_column < cols)
      store_parameters(parameters_of<kClasses>(p, mn, mx, its_group, column0 + its_column),
                       tile.copies, shared.pairs, parameters + pair * tile.copies);
  }
  __syncthreads();

  const int pair = layout.shared ? local * kCols : local * tile.across * kCols + across;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int block = block0 + chunk * tile.held;
    if (block * kRows >= rows) break;
    if (chunk > 0) {
      present = load_values<T>(p, block_of_group + static_cast<uint32_t>(block),
                               rows - block * kRows, column, at);
      if constexpr (kClasses == 2 && !kMaps) class1 = bits_of(block);
    }
    code_block<kBits, kClasses>(
        p, drawing, at, present, class1,
        {group, block_of_group + static_cast<uint32_t>(block), block, rows, column, count},
        parameters + pair, shared.pairs);
  }
}

// REQUIRES: with a map, groups that are held whole.
template <int kClasses, class Map = NoMap>
void pack(const PackJob& job, const Map& map = {}) {
  const GroupLayout& layout = job.layout;
  if (layout.groups == 0) return;
  FRUGAL_ASSERT(layout.cols < int64_t{1} << 31);
  const PackTile tile = pack_tile(layout);
  FRUGAL_ASSERT((std::is_same_v<Map, NoMap>) || tile.chunks == 1);
  const int64_t blocks = (layout.groups + tile.groups - 1) / tile.groups * tile.strips;
  const Grid grid{as_blocks(blocks), tile.threads, shared_bytes<kClasses>(tile)};
  Packing p{job.x,       job.payload,
            job.mask,    job.nonfinite->on_device(),
            layout,      StreamName(job.stream),
            job.weights, tile};
  p.ahead = 2 * multiprocessors();
  p.stochastic = job.stochastic;
  p.words = is_quadable<uint8_t>(job.payload, layout);
  p.mask_words = is_quadable<uint8_t>(job.mask, layout);
  FRUGAL_ASSERT(layout.groups * (layout.group_rows / kRows) < int64_t{1} << 32);
  p.groups = static_cast<uint32_t>(layout.groups);
  p.group_rows = static_cast<int>(layout.group_rows);
  p.last_rows = static_cast<int>(layout.rows_of(layout.groups - 1));
  p.group_blocks = static_cast<uint32_t>(layout.group_rows / kRows);
  p.group_bytes = layout.code_offset(1) - layout.code_offset(0);
  p.codes = job.payload + layout.meta_offset(layout.groups);
  const auto run = [&]<class T>(T) {
    if (is_quadable<T>(job.x, layout))
      p.whole_blocks = static_cast<uint32_t>(
          std::min<int64_t>(layout.numel / layout.cols / kRows, (int64_t{1} << 29) - 1));
    with_width(layout.bits, [&]<int kBits>(std::integral_constant<int, kBits>) {
      if constexpr (kBits == 0 || kBits >= kClasses)  // split groups have 2 bits or more
        launch(pack_kernel<T, kBits, kClasses, Map>, grid, p, map);
    });
  };
  if constexpr (std::is_same_v<Map, NoMap>) {
    with_packable(job.dtype, run);
  } else {
    check_dtype(job.dtype);
    with_activation(job.dtype, run);
  }
}

}  // namespace frugal::compress::cuda

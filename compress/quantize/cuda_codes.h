// Shared by packing and unpacking on CUDA: a thread takes a block of 8 rows of 4 columns; random
// words of these blocks; planes of codes, where four columns share a 32-bit word. For .cu files.
#pragma once
#include "compress/quantize/quantize_kernels.h"
#include "compress/quantize/quantize_units.h"
#include "compress/quantize/within_f16.h"
#include "core/cuda/cuda_kernel.h"
#include "core/cuda/cuda_random.h"
#include "ops/cuda/cuda_vector.h"

#ifndef FRUGAL_CUDA_EMULATOR
#include <cuda_fp16.h>
#endif

namespace frugal::cuda {

// A rebuilt value, with the bits that the host gives it.
template <>
__device__ __forceinline__ Float16 store<Float16>(float x) {
  x = compress::within_f16(x);
#ifdef FRUGAL_CUDA_EMULATOR
  return Float16(x);
#else
  Float16 out;
  out.bits = !is_nan(x) ? __half_as_ushort(__float2half_rn(x))
                        : static_cast<uint16_t>((__float_as_uint(x) >> 16 & 0x8000u) | 0x7e00u);
  return out;
#endif
}

}  // namespace frugal::cuda

namespace frugal::compress::cuda {

using namespace frugal::cuda;

__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ float wide(Float16 x) {
#ifdef FRUGAL_CUDA_EMULATOR
  return static_cast<float>(x);
#else
  return __half2float(__ushort_as_half(x.bits));
#endif
}

inline constexpr int kRows = 8, kCols = 4, kThreads = 256;
inline constexpr uint32_t kTwoTo23Bits = 0x4b000000u;  // in a float from this on, the mantissa is
                                                       // an integer
inline constexpr float kTwoTo23 = 0x1p23f;
inline constexpr float kNan = __builtin_nanf("");
inline constexpr float kInfinity = __builtin_inff();

// Calls f(std::integral_constant<int, n>{}) with n = the width, if that width has kernels of its
// own, else with n = 0.
template <int kWidth = 8, class F>
void with_width(int bits, F&& f) {
  if constexpr (kWidth == 0) {
    f(std::integral_constant<int, 0>{});
  } else {
    if (bits == kWidth) return f(std::integral_constant<int, kWidth>{});
    with_width<kWidth - 1>(bits, f);
  }
}

// Calls f with a zero of the type. f16 is packed and unpacked alone: no op computes in it.
template <class F>
void with_packable(DType dtype, const F& f) {
  if (dtype == DType::f16) return f(Float16{});
  FRUGAL_CHECK(dtype == DType::f32 || dtype == DType::bf16,
               "[quantize] expected f32, bf16 or f16 on cuda, got {}", name_of(dtype));
  with_activation(dtype, f);
}

inline void check_dtype(DType dtype) {
  FRUGAL_CHECK(dtype == DType::f32 || dtype == DType::bf16,
               "[quantize] expected f32 or bf16 on cuda, got {}", name_of(dtype));
}

template <class T>
using Quad = ops::cuda::Vector<T, kCols>;
template <class T>
bool is_quadable(const void* x, const GroupLayout& layout) {
  return layout.cols % kCols == 0 && reinterpret_cast<uintptr_t>(x) % sizeof(Quad<T>) == 0;
}

__device__ __forceinline__ void prefetch_line([[maybe_unused]] const void* address) {
#ifndef FRUGAL_CUDA_EMULATOR
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

// Keeps rare code from computing all of its addresses at once, which takes the registers that the
// usual code needs.
__device__ __forceinline__ void one_after_another() {
#ifndef FRUGAL_CUDA_EMULATOR
  asm volatile("" ::: "memory");
#endif
}

// Returns x. The compiler cannot see that, so it computes nothing from x in advance.
__device__ __forceinline__ int unknown(int x) {
#ifndef FRUGAL_CUDA_EMULATOR
  asm volatile("" : "+r"(x));
#endif
  return x;
}
__device__ __forceinline__ int64_t unknown(int64_t x) {
#ifndef FRUGAL_CUDA_EMULATOR
  asm volatile("" : "+l"(x));
#endif
  return x;
}
template <class T>
__device__ __forceinline__ T* unknown(T* x) {
#ifndef FRUGAL_CUDA_EMULATOR
  asm volatile("" : "+l"(x));
#endif
  return x;
}

// ---- Random words
__device__ __forceinline__ float float_of(uint32_t bits) { return __uint_as_float(bits); }

struct StreamWords {
  uint32_t w[4];
};
// The numbers from which a CodeStream is made, with the step that the host knew. A thread of each
// block makes the stream again, because a rerun has another step. Its 10 rounds for 8192 elements
// cost almost nothing.
struct StreamName {
  RngKey key;  // made of seed and step
  uint64_t seq;
  const Advance* advance;

  explicit StreamName(const CodeStream& stream)
      : key{stream.seed, stream.step}, seq(stream.seq), advance(frugal::cuda::advance()) {}
};
struct StreamKeys {
  uint32_t key[2], counter[2];
};
__device__ __forceinline__ StreamKeys stream_keys(const StreamName& name, uint64_t steps) {
  const Words words = philox_words({name.key.seed, name.key.offset + steps}, name.seq);
  return {{words.w[0], words.w[1]}, {words.w[2], words.w[3]}};
}
// code_words() of `index` and the numbers behind it. What depends only on the row is computed once
// for all columns of a thread, and the keys of a round once for all words.
template <int kCount>
__device__ __forceinline__ void stream_words(const StreamKeys& keys, uint32_t block, uint32_t index,
                                             StreamWords (&out)[kCount]) {
#pragma unroll
  for (uint32_t j = 0; j < kCount; ++j)
    out[j] = {{block, index + j, keys.counter[0], keys.counter[1]}};
#pragma unroll
  for (uint32_t i = 0; i < 7; ++i) {
    const uint32_t key0 = keys.key[0] + i * kW0, key1 = keys.key[1] + i * kW1;
#pragma unroll
    for (StreamWords& c : out) {
      const uint64_t p = uint64_t{kM0} * c.w[0], q = uint64_t{kM1} * c.w[2];
      c = {{static_cast<uint32_t>(q >> 32) ^ c.w[1] ^ key0, static_cast<uint32_t>(q),
            static_cast<uint32_t>(p >> 32) ^ c.w[3] ^ key1, static_cast<uint32_t>(p)}};
    }
  }
}
__device__ __forceinline__ StreamWords stream_words(const StreamKeys& keys, uint32_t block,
                                                    uint32_t index) {
  StreamWords one[1];
  stream_words(keys, block, index, one);
  return one[0];
}
inline constexpr uint32_t kTwoTo15Bits = 0x47000000u;
// 2^15 + the byte of row `r` of a column, of the words of its pair of columns. The arithmetic that
// follows is exact.
__device__ __forceinline__ float dither_byte(const StreamWords& words, int r, int column,
                                             uint32_t two_to_15 = kTwoTo15Bits) {
  const uint32_t word = words.w[r / 4 * 2 + 1 - column % 2];
  return float_of(__byte_perm(word, two_to_15, 0x7604u | static_cast<uint32_t>(r % 4) << 4));
}
// 1 + the random number of an element, or 1.5 for rounding to nearest, without a branch.
struct OneAndU {
  float by, plus;
  uint32_t two_to_15;
  // two_to_15: kTwoTo15Bits, as the compiler cannot see. Else it would move the number of each byte
  // to a register.
  __device__ __forceinline__ OneAndU(bool stochastic, uint32_t two_to_15_bits)
      : by(stochastic ? 0x1p-8f : 0),
        plus(stochastic ? -127.0f + 0x1p-9f : 1.5f),
        two_to_15(two_to_15_bits) {}
  __device__ __forceinline__ float operator()(const StreamWords& words, int r, int column) const {
    return __fmaf_rn(dither_byte(words, r, column, two_to_15), by, plus);
  }
};
__device__ __forceinline__ float half_less_u(const StreamWords& words, int r, int column) {
  return __fmaf_rn(dither_byte(words, r, column), -0x1p-8f, 128.5f - 0x1p-9f);
}
// The words of 8 rows of a thread's columns.
struct BlockWords {
  StreamWords pair[kCols / 2];

  // If `column` is odd, only the words of the first column are right.
  __device__ __forceinline__ void draw(const StreamKeys& keys, uint32_t block, uint32_t column) {
    stream_words(keys, block, column / 2, pair);
    if (column % 2 != 0) pair[0].w[1] = pair[0].w[0], pair[0].w[3] = pair[0].w[2];
  }
  __device__ __forceinline__ float half_less_u(int r, int c) const {
    return cuda::half_less_u(pair[c / 2], r, c);
  }
};

// takes_dither_away() for kernels.
__device__ __forceinline__ bool takes_away(float lo, float scale) {
  return scale > 0x1p-126f && scale < 0x1p124f && (lo < 0 || lo >= __fmul_rn(scale, 0.5f));
}

// ---- Planes
// What a thread needs to find its block in a byte row.
struct CodeBlock {
  uint8_t* first;  // the codes of the row group, at the thread's first column
  int stride;
  int rows;    // rows of the group
  int block;   // number of the block of 8 rows in the group
  int cols;    // 4, or fewer at the right edge
  bool words;  // codes can be read as whole aligned words
};

__device__ __forceinline__ uint32_t load_bytes(const uint8_t* from, int count, bool word) {
  if (word) return *reinterpret_cast<const uint32_t*>(from);
  uint32_t out = 0;
#pragma unroll
  for (int c = 0; c < kCols; ++c)
    if (c < count) out |= uint32_t{from[c]} << (8 * c);
  return out;
}
__device__ __forceinline__ void store_bytes(uint8_t* to, uint32_t value, int count, bool word) {
  if (word) {
    *reinterpret_cast<uint32_t*>(to) = value;
    return;
  }
#pragma unroll
  for (int c = 0; c < kCols; ++c)
    if (c < count) to[c] = static_cast<uint8_t>(value >> (8 * c));
}

// Puts the codes of column c into the words of a plane: kWidth bits of each code, beginning at bit
// `shift`. kClean: the low bytes of the codes have no other bits.
template <int kWidth, bool kClean>
__device__ __forceinline__ void insert_codes(const uint32_t (&code)[kRows], int c, int shift,
                                             uint32_t* words) {
  constexpr int kPerByte = 8 / kWidth;
  constexpr uint32_t kMask = (1u << kWidth) - 1;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    uint32_t byte = 0;
#pragma unroll
    for (int k = kPerByte - 1; k >= 0; --k) {
      const uint32_t all = code[j * kPerByte + k];
      byte = (byte << kWidth) + (kClean ? all : all >> shift & kMask);
    }
    words[j] = c == 0   ? byte
               : c == 1 ? __byte_perm(words[j], byte, 0x3240)
               : c == 2 ? __byte_perm(words[j], byte, 0x3410)
                        : __byte_perm(words[j], byte, 0x4210);
  }
}
template <int kWidth>
__device__ __forceinline__ void store_words(const uint32_t* words, uint8_t* plane,
                                            const CodeBlock& at) {
  const int byte_rows = (at.rows * kWidth + 7) / 8;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const int row = at.block * kWidth + j;
    if (row < byte_rows) store_bytes(plane + int64_t{row} * at.stride, words[j], at.cols, at.words);
  }
}

// All planes of codes of kBits bits, as words.
template <int kBits, size_t kPlane = 0, int kShift = 0>
__device__ __forceinline__ void insert_planes(const uint32_t (&code)[kRows], int c,
                                              uint32_t* words) {
  constexpr Planes kPlanes = planes_of(kBits);
  if constexpr (kShift < kBits) {
    constexpr int kWidth = kPlanes.width[kPlane];
    insert_codes<kWidth, kPlanes.count == 1>(code, c, kShift, words + kShift);
    insert_planes<kBits, kPlane + 1, kShift + kWidth>(code, c, words);
  }
}
template <int kBits, size_t kPlane = 0, int kShift = 0>
__device__ __forceinline__ void store_planes(const uint32_t* words, uint8_t* plane,
                                             const CodeBlock& at) {
  constexpr Planes kPlanes = planes_of(kBits);
  if constexpr (kShift < kBits) {
    constexpr int kWidth = kPlanes.width[kPlane];
    store_words<kWidth>(words + kShift, plane, at);
    plane += int64_t{(at.rows * kWidth + 7) / 8} * at.stride;
    store_planes<kBits, kPlane + 1, kShift + kWidth>(words, plane, at);
  }
}

template <int kWidth>
__device__ __forceinline__ void store_plane(const uint32_t (&code)[kCols][kRows], int shift,
                                            uint8_t* plane, const CodeBlock& at) {
  uint32_t words[kWidth] = {};
#pragma unroll
  for (int c = 0; c < kCols; ++c) insert_codes<kWidth, false>(code[c], c, shift, words);
  store_words<kWidth>(words, plane, at);
}
// Codes whose width is known only at run time. Bits above the width are ignored.
__device__ __forceinline__ void store_planes(const uint32_t (&code)[kCols][kRows], int bits,
                                             const CodeBlock& at) {
  uint8_t* plane = at.first;
  int shift = 0;
  const Planes planes = planes_of(bits);
  for (int p = 0; p < planes.count; ++p) {
    const int width = planes.width[static_cast<size_t>(p)];
    if (width == 8) store_plane<8>(code, shift, plane, at);
    if (width == 4) store_plane<4>(code, shift, plane, at);
    if (width == 2) store_plane<2>(code, shift, plane, at);
    if (width == 1) store_plane<1>(code, shift, plane, at);
    shift += width;
    plane += int64_t{(at.rows * width + 7) / 8} * at.stride;
  }
}

// The codes of a block, read in packed form, so that few registers hold much.
// kBits: 0 if the width is known only at run time; it is up to 16 then, and up to 8 otherwise.
template <int kBits>
class BlockCodes {
 public:
  // kWhole: all 8 rows of the block are in its group, and codes are whole aligned words.
  template <bool kWhole>
  __device__ __forceinline__ void load(const CodeBlock& at, int bits) {
    if constexpr (kBits != 0) {
      load_planes<kWhole>(at.first, at);
    } else {
#pragma unroll
      for (uint32_t& row : words_) row = 0;
      const uint8_t* plane = at.first;
      int shift = 0;
      const Planes planes = planes_of(bits);
      for (int p = 0; p < planes.count; ++p) {
        const int width = planes.width[static_cast<size_t>(p)];
        if (width == 8) add_plane<8, kWhole>(plane, at, shift);
        if (width == 4) add_plane<4, kWhole>(plane, at, shift);
        if (width == 2) add_plane<2, kWhole>(plane, at, shift);
        if (width == 1) add_plane<1, kWhole>(plane, at, shift);
        shift += width;
        plane += byte_rows(at, width) * at.stride;
      }
    }
  }
  // 2^23 + the code of element [r][c].
  __device__ __forceinline__ float level(int r, int c) const {
    const auto place = static_cast<uint32_t>(c);
    if constexpr (kBits != 0)
      return float_of(__byte_perm(planes_of_row(r), kTwoTo23Bits, 0x7440u | place));
    const uint32_t code = __byte_perm(words_[r], words_[kRows + r], place | (place + 4) << 4);
    return float_of(__byte_perm(code, kTwoTo23Bits, 0x7410u));
  }

 private:
  __device__ __forceinline__ static int64_t byte_rows(const CodeBlock& at, int width) {
    return (at.rows * width + 7) / 8;
  }
  template <bool kWhole>
  __device__ __forceinline__ static uint32_t word_of(const uint8_t* plane, const CodeBlock& at,
                                                     int row, int width) {
    const uint8_t* from = plane + int64_t{row} * at.stride;
    if constexpr (kWhole) return *reinterpret_cast<const uint32_t*>(from);
    return row < byte_rows(at, width) ? load_bytes(from, at.cols, at.words) : 0;
  }
  template <int kWidth>
  __device__ __forceinline__ static uint32_t bytes_of_row(uint32_t word, int r) {
    constexpr int kPerByte = 8 / kWidth;
    constexpr uint32_t kMask = ((1u << kWidth) - 1) * 0x01010101u;
    return word >> (r % kPerByte * kWidth) & kMask;
  }

  template <bool kWhole, size_t kPlane = 0, int kShift = 0>
  __device__ __forceinline__ void load_planes(const uint8_t* plane, const CodeBlock& at) {
    constexpr Planes kPlanes = planes_of(kBits);
    if constexpr (kShift < kBits) {
      constexpr int kWidth = kPlanes.width[kPlane];
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        words_[kShift + j] = word_of<kWhole>(plane, at, at.block * kWidth + j, kWidth);
      load_planes<kWhole, kPlane + 1, kShift + kWidth>(plane + byte_rows(at, kWidth) * at.stride,
                                                       at);
    }
  }
  template <size_t kPlane = 0, int kShift = 0>
  __device__ __forceinline__ uint32_t planes_of_row(int r) const {
    constexpr Planes kPlanes = planes_of(kBits);
    if constexpr (kShift == kBits) {
      return 0;
    } else {
      constexpr int kWidth = kPlanes.width[kPlane];
      return bytes_of_row<kWidth>(words_[kShift + r / (8 / kWidth)], r) << kShift |
             planes_of_row<kPlane + 1, kShift + kWidth>(r);
    }
  }
  template <int kWidth, bool kWhole>
  __device__ __forceinline__ void add_plane(const uint8_t* plane, const CodeBlock& at, int shift) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const uint32_t word = word_of<kWhole>(plane, at, at.block * kWidth + j, kWidth);
#pragma unroll
      for (int r = j * (8 / kWidth); r < (j + 1) * (8 / kWidth); ++r) {
        const uint32_t codes = bytes_of_row<kWidth>(word, r);
        if (shift < 8)
          words_[r] |= codes << shift;
        else
          words_[kRows + r] |= codes << (shift - 8);
      }
    }
  }

  // Planes. Where the width is known late: a byte of each column's code, for all rows, and then the
  // bytes above them.
  uint32_t words_[kBits == 0 ? 2 * kRows : kBits];
};

// ---- Split groups: split_codes() as floats.
struct ClassCodes {
  float count[2];
  bool spread[2];
};
__device__ __forceinline__ ClassCodes class_codes(float range0, float range1,
                                                  const SplitWeights& weights, int bits) {
  const float all = static_cast<float>(1 << bits);
  const float few0 = __float_as_uint(range0) == uint32_t{kEmptyRangeBits} << 16 ? 0.0f : 1.0f;
  const float few1 = __float_as_uint(range1) == uint32_t{kEmptyRangeBits} << 16 ? 0.0f : 1.0f;
  ClassCodes codes{{few0, few1}, {range0 > 0, range1 > 0}};
  if (codes.spread[0]) {
    const float a = __fmul_rn(weights.class0, range0);
    const float share = __fdiv_rn(a, __fmaf_rn(weights.class1, range1, a));
    const float both = fminf(fmaxf(rintf(__fmul_rn(all, share)), 2.0f), all - 2.0f);
    codes.count[0] = codes.spread[1] ? both : all - few1;
  }
  if (codes.spread[1]) codes.count[1] = all - codes.count[0];
  return codes;
}

}  // namespace frugal::compress::cuda

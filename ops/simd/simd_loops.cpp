#include "ops/simd/simd_loops.h"

#include <algorithm>

// Compiled for the baseline, SSE4, AVX2 and AVX-512. Targets in between are not worth their compile
// time. Scalable vectors are left out: aarch64 uses NEON.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/simd/simd_loops.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

// Every loop walks over blocks of 8 rows, which share the bytes of a mask. In a block it takes one
// vector of columns at a time. So the values of a channel are loaded once for 8 rows, and memory is
// read nearly in order.
HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Calls f(d, k) over columns: whole vectors, then quads, then single elements.
template <class F>
HWY_INLINE void for_columns(int64_t cols, F f) {
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 4> quad;
  const hn::CappedTag<float, 1> one;
  int64_t k = 0;
  for (const auto n = static_cast<int64_t>(hn::Lanes(wide)); k + n <= cols; k += n) f(wide, k);
  for (const auto n = static_cast<int64_t>(hn::Lanes(quad)); k + n <= cols; k += n) f(quad, k);
  for (; k < cols; ++k) f(one, k);
}

// Calls f(d, first element, mask byte) over the columns of every block.
template <class F>
HWY_INLINE void for_blocks(Blocks blocks, F f) {
  for (int64_t b = 0; b < blocks.count; ++b)
    for_columns(blocks.cols, [&](auto d, int64_t k) HWY_ATTR {
      f(d, b * 8 * blocks.stride + k, b * blocks.cols + k);
    });
}

// Calls f(integral_constant rows, first row) for blocks of 8 rows, then for the remaining rows one
// by one.
template <class F>
HWY_INLINE void for_rows(int64_t rows, F f) {
  int64_t row = 0;
  for (; row + 8 <= rows; row += 8) f(std::integral_constant<int, 8>{}, row);
  for (; row < rows; ++row) f(std::integral_constant<int, 1>{}, row);
}

// The mask bytes of a vector of columns, as integers as wide as the floats.
template <class D>
HWY_INLINE auto load_bits(D, const uint8_t* mask) {
  return hn::PromoteTo(hn::Rebind<int32_t, D>(), hn::LoadU(hn::Rebind<uint8_t, D>(), mask));
}
template <class D, class Bits>
HWY_INLINE void store_bits(D, Bits bits, uint8_t* mask) {
  const hn::Rebind<uint8_t, D> bytes;
  hn::StoreU(hn::DemoteTo(bytes, bits), bytes, mask);
}
template <class D, class Bits>
HWY_INLINE auto bit_of(D d, Bits bits, int row) {
  return hn::RebindMask(d, hn::TestBit(bits, hn::Set(hn::Rebind<int32_t, D>(), 1 << row)));
}
// Sets the bit of the row, except where `drop` is true.
template <class D, class Bits, class Drop>
HWY_INLINE Bits with_bit(D, Bits bits, Drop drop, int row) {
  const hn::Rebind<int32_t, D> ints;
  return hn::Or(bits, hn::IfThenZeroElse(hn::RebindMask(ints, drop), hn::Set(ints, 1 << row)));
}

template <class D, class V>
HWY_INLINE void store(D d, V v, Output out, int64_t element) {
  // Only vectors of a whole cache line are streamed. A narrower vector would fill a line in two
  // parts, and the line might be written out between them.
  if (hn::MaxLanes(d) * sizeof(float) == 64 && out.stream)
    hn::Stream(v, d, out.data + element);
  else
    hn::StoreU(v, d, out.data + element);
}

template <bool kSlope, class D, class V>
HWY_INLINE V scaled_or_zero(D d, V x, float slope) {
  if constexpr (kSlope) return hn::Mul(x, hn::Set(d, slope));
  return hn::Zero(d);  // not 0 * x, which is NaN for an infinite x
}

template <bool kSlope>
void RectifyBlocksOf(const float* x, float slope, Output y, uint8_t* mask, Blocks blocks) {
  for_blocks(blocks, [&](auto d, int64_t first, int64_t byte) HWY_ATTR {
    auto bits = hn::Zero(hn::Rebind<int32_t, decltype(d)>());
    for (int r = 0; r < 8; ++r) {
      const auto v = hn::LoadU(d, x + first + r * blocks.stride);
      const auto drop = hn::Le(v, hn::Zero(d));
      store(d, hn::IfThenElse(drop, scaled_or_zero<kSlope>(d, v, slope), v), y,
            first + r * blocks.stride);
      bits = with_bit(d, bits, drop, r);
    }
    if (mask != nullptr) store_bits(d, bits, mask + byte);
  });
}

void RectifyBlocks(const float* x, float slope, Output y, uint8_t* mask, Blocks blocks) {
  slope != 0 ? RectifyBlocksOf<true>(x, slope, y, mask, blocks)
             : RectifyBlocksOf<false>(x, slope, y, mask, blocks);
}

void ClampBlocks(const float* x, float lo, float hi, Output y, uint8_t* mask, Blocks blocks) {
  for_blocks(blocks, [&](auto d, int64_t first, int64_t byte) HWY_ATTR {
    auto bits = hn::Zero(hn::Rebind<int32_t, decltype(d)>());
    const auto low = hn::Set(d, lo), high = hn::Set(d, hi);
    for (int r = 0; r < 8; ++r) {
      const auto v = hn::LoadU(d, x + first + r * blocks.stride);
      const auto below = hn::Lt(v, low), above = hn::Gt(v, high);
      store(d, hn::IfThenElse(below, low, hn::IfThenElse(above, high, v)), y,
            first + r * blocks.stride);
      bits = with_bit(d, bits, hn::Or(below, above), r);
    }
    if (mask != nullptr) store_bits(d, bits, mask + byte);
  });
}

template <bool kSlope>
void SelectBlocksOf(const float* x, const uint8_t* mask, float slope, Output y, Blocks blocks) {
  for_blocks(blocks, [&](auto d, int64_t first, int64_t byte) HWY_ATTR {
    const auto bits = load_bits(d, mask + byte);
    for (int r = 0; r < 8; ++r) {
      const auto v = hn::LoadU(d, x + first + r * blocks.stride);
      store(d, hn::IfThenElse(bit_of(d, bits, r), v, scaled_or_zero<kSlope>(d, v, slope)), y,
            first + r * blocks.stride);
    }
  });
}

void SelectBlocks(const float* x, const uint8_t* mask, float slope, Output y, Blocks blocks) {
  slope != 0 ? SelectBlocksOf<true>(x, mask, slope, y, blocks)
             : SelectBlocksOf<false>(x, mask, slope, y, blocks);
}

void ChunkMoments(const float* x, int64_t rows, int64_t c, float* sum, float* squares) {
  std::fill_n(sum, c, 0.0f);
  std::fill_n(squares, c, 0.0f);
  for_rows(rows, [&](auto count, int64_t row) HWY_ATTR {
    for_columns(c, [&](auto d, int64_t k) HWY_ATTR {
      const auto shift = hn::LoadU(d, x + k);
      auto s = hn::LoadU(d, sum + k), q = hn::LoadU(d, squares + k);
      for (int r = 0; r < count(); ++r) {
        const auto v = hn::Sub(hn::LoadU(d, x + (row + r) * c + k), shift);
        s = hn::Add(s, v);
        q = hn::MulAdd(v, v, q);
      }
      hn::StoreU(s, d, sum + k);
      hn::StoreU(q, d, squares + k);
    });
  });
}

// The forward pass and the replay share this expression for z, so that both give the same bits.
template <class D, class V>
HWY_INLINE V normalized(D d, const float* x, V mean, V scale, V bias) {
  return hn::MulAdd(hn::Sub(hn::LoadU(d, x), mean), scale, bias);
}

template <bool kRelu, bool kResidual, bool kMask>
void NormalizeOf(const float* x, const float* residual, const Affine& affine, Output y,
                 uint8_t* mask, int64_t rows, int64_t c) {
  for_rows(rows, [&](auto count, int64_t row) HWY_ATTR {
    for_columns(c, [&](auto d, int64_t k) HWY_ATTR {
      const auto mean = hn::LoadU(d, affine.mean + k), scale = hn::LoadU(d, affine.scale + k),
                 bias = hn::LoadU(d, affine.bias + k);
      auto bits = hn::Zero(hn::Rebind<int32_t, decltype(d)>());
      for (int r = 0; r < count(); ++r) {
        const int64_t at = (row + r) * c + k;
        auto z = normalized(d, x + at, mean, scale, bias);
        if constexpr (kResidual) z = hn::Add(z, hn::LoadU(d, residual + at));
        if constexpr (kRelu) {
          const auto drop = hn::Le(z, hn::Zero(d));
          z = hn::IfThenZeroElse(drop, z);
          if constexpr (kMask) bits = with_bit(d, bits, drop, r);
        }
        store(d, z, y, at);
      }
      if constexpr (kMask) store_bits(d, bits, mask + row / 8 * c + k);
    });
  });
}

template <bool kResidual>
void NormalizeWith(const float* x, const float* residual, const Affine& affine, bool relu, Output y,
                   uint8_t* mask, int64_t rows, int64_t c) {
  if (!relu)
    NormalizeOf<false, kResidual, false>(x, residual, affine, y, nullptr, rows, c);
  else if (mask == nullptr)
    NormalizeOf<true, kResidual, false>(x, residual, affine, y, nullptr, rows, c);
  else
    NormalizeOf<true, kResidual, true>(x, residual, affine, y, mask, rows, c);
}

void Normalize(const float* x, const float* residual, const Affine& affine, bool relu, Output y,
               uint8_t* mask, int64_t rows, int64_t c) {
  residual != nullptr ? NormalizeWith<true>(x, residual, affine, relu, y, mask, rows, c)
                      : NormalizeWith<false>(x, residual, affine, relu, y, mask, rows, c);
}

template <bool kResidual>
void NormalizeByMaskOf(const float* x, const float* residual, const Affine& affine,
                       const uint8_t* mask, Output y, int64_t rows, int64_t c) {
  for (int64_t row = 0; row < rows; row += 8)
    for_columns(c, [&](auto d, int64_t k) HWY_ATTR {
      const auto mean = hn::LoadU(d, affine.mean + k), scale = hn::LoadU(d, affine.scale + k),
                 bias = hn::LoadU(d, affine.bias + k);
      const auto bits = load_bits(d, mask + row / 8 * c + k);
      for (int r = 0; r < 8; ++r) {
        const int64_t at = (row + r) * c + k;
        auto z = normalized(d, x + at, mean, scale, bias);
        if constexpr (kResidual) z = hn::Add(z, hn::LoadU(d, residual + at));
        store(d, hn::IfThenElseZero(bit_of(d, bits, r), z), y, at);
      }
    });
}

void NormalizeByMask(const float* x, const float* residual, const Affine& affine,
                     const uint8_t* mask, Output y, int64_t rows, int64_t c) {
  residual != nullptr ? NormalizeByMaskOf<true>(x, residual, affine, mask, y, rows, c)
                      : NormalizeByMaskOf<false>(x, residual, affine, mask, y, rows, c);
}

template <bool kMask, bool kWrite>
void ChunkGradientsOf(const float* dy, const uint8_t* mask, const float* x, const float* mean,
                      Output g, float* sum, float* product, int64_t rows, int64_t c) {
  std::fill_n(sum, c, 0.0f);
  std::fill_n(product, c, 0.0f);
  for_rows(rows, [&](auto count, int64_t row) HWY_ATTR {
    for_columns(c, [&](auto d, int64_t k) HWY_ATTR {
      const auto m = hn::LoadU(d, mean + k);
      auto s = hn::LoadU(d, sum + k), p = hn::LoadU(d, product + k);
      auto bits = hn::Zero(hn::Rebind<int32_t, decltype(d)>());
      if constexpr (kMask) bits = load_bits(d, mask + row / 8 * c + k);
      for (int r = 0; r < count(); ++r) {
        const int64_t at = (row + r) * c + k;
        auto v = hn::LoadU(d, dy + at);
        if constexpr (kMask) v = hn::IfThenElseZero(bit_of(d, bits, r), v);
        if constexpr (kWrite) store(d, v, g, at);
        s = hn::Add(s, v);
        p = hn::MulAdd(v, hn::Sub(hn::LoadU(d, x + at), m), p);
      }
      hn::StoreU(s, d, sum + k);
      hn::StoreU(p, d, product + k);
    });
  });
}

void ChunkGradients(const float* dy, const uint8_t* mask, const float* x, const float* mean,
                    Output g, float* sum, float* product, int64_t rows, int64_t c) {
  if (mask != nullptr)
    g.data != nullptr ? ChunkGradientsOf<true, true>(dy, mask, x, mean, g, sum, product, rows, c)
                      : ChunkGradientsOf<true, false>(dy, mask, x, mean, g, sum, product, rows, c);
  else
    g.data != nullptr ? ChunkGradientsOf<false, true>(dy, mask, x, mean, g, sum, product, rows, c)
                      : ChunkGradientsOf<false, false>(dy, mask, x, mean, g, sum, product, rows, c);
}

template <bool kMask>
void InputGradientOf(const float* dy, const uint8_t* mask, const float* x,
                     const GradientAffine& affine, Output dx, int64_t rows, int64_t c) {
  for_rows(rows, [&](auto count, int64_t row) HWY_ATTR {
    for_columns(c, [&](auto d, int64_t k) HWY_ATTR {
      const auto mean = hn::LoadU(d, affine.mean + k), of_g = hn::LoadU(d, affine.of_g + k),
                 of_x = hn::LoadU(d, affine.of_x + k), constant = hn::LoadU(d, affine.constant + k);
      auto bits = hn::Zero(hn::Rebind<int32_t, decltype(d)>());
      if constexpr (kMask) bits = load_bits(d, mask + row / 8 * c + k);
      for (int r = 0; r < count(); ++r) {
        const int64_t at = (row + r) * c + k;
        auto v = hn::LoadU(d, dy + at);
        if constexpr (kMask) v = hn::IfThenElseZero(bit_of(d, bits, r), v);
        const auto centred = hn::Sub(hn::LoadU(d, x + at), mean);
        store(d, hn::MulAdd(v, of_g, hn::MulAdd(centred, of_x, constant)), dx, at);
      }
    });
  });
}

void InputGradient(const float* dy, const uint8_t* mask, const float* x,
                   const GradientAffine& affine, Output dx, int64_t rows, int64_t c) {
  mask != nullptr ? InputGradientOf<true>(dy, mask, x, affine, dx, rows, c)
                  : InputGradientOf<false>(dy, nullptr, x, affine, dx, rows, c);
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

Output output_of(float* data, int64_t elements, int64_t cols) {
  constexpr int64_t kLine = 64, kLarge = int64_t{32} << 20;  // bytes
  const int64_t size = sizeof(float);
  return {data, elements * size >= kLarge && cols * size % kLine == 0 &&
                    reinterpret_cast<uintptr_t>(data) % kLine == 0};
}

// Makes streamed lines visible to the thread that reads them next.
static void finish(Output out) {
  if (out.stream) hwy::FlushStream();
}

HWY_EXPORT(RectifyBlocks);
HWY_EXPORT(ClampBlocks);
HWY_EXPORT(SelectBlocks);
HWY_EXPORT(ChunkMoments);
HWY_EXPORT(Normalize);
HWY_EXPORT(NormalizeByMask);
HWY_EXPORT(ChunkGradients);
HWY_EXPORT(InputGradient);

void rectify_blocks(const float* x, float slope, Output y, uint8_t* mask, Blocks blocks) {
  HWY_DYNAMIC_DISPATCH(RectifyBlocks)(x, slope, y, mask, blocks);
  finish(y);
}
void clamp_blocks(const float* x, float lo, float hi, Output y, uint8_t* mask, Blocks blocks) {
  HWY_DYNAMIC_DISPATCH(ClampBlocks)(x, lo, hi, y, mask, blocks);
  finish(y);
}
void select_blocks(const float* x, const uint8_t* mask, float slope, Output y, Blocks blocks) {
  HWY_DYNAMIC_DISPATCH(SelectBlocks)(x, mask, slope, y, blocks);
  finish(y);
}
void chunk_moments(const float* x, int64_t rows, int64_t c, float* sum, float* squares) {
  HWY_DYNAMIC_DISPATCH(ChunkMoments)(x, rows, c, sum, squares);
}
void normalize(const float* x, const float* residual, const Affine& affine, bool relu, Output y,
               uint8_t* mask, int64_t rows, int64_t c) {
  HWY_DYNAMIC_DISPATCH(Normalize)(x, residual, affine, relu, y, mask, rows, c);
  finish(y);
}
void normalize_by_mask(const float* x, const float* residual, const Affine& affine,
                       const uint8_t* mask, Output y, int64_t rows, int64_t c) {
  HWY_DYNAMIC_DISPATCH(NormalizeByMask)(x, residual, affine, mask, y, rows, c);
  finish(y);
}
void chunk_gradients(const float* dy, const uint8_t* mask, const float* x, const float* mean,
                     Output g, float* sum, float* product, int64_t rows, int64_t c) {
  HWY_DYNAMIC_DISPATCH(ChunkGradients)(dy, mask, x, mean, g, sum, product, rows, c);
  finish(g);
}
void input_gradient(const float* dy, const uint8_t* mask, const float* x,
                    const GradientAffine& affine, Output dx, int64_t rows, int64_t c) {
  HWY_DYNAMIC_DISPATCH(InputGradient)(dy, mask, x, affine, dx, rows, c);
  finish(dx);
}

}  // namespace frugal::ops::simd
#endif

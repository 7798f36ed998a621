#include "ops/simd/simd_loops.h"

#include <algorithm>

#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/simd/simd_loops.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "ops/simd/storage-inl.h"

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

// Where a loop writes elements of type T (see Output).
template <class T>
struct Out {
  T* data;
  bool stream;
};

template <class D, class V, class T>
HWY_INLINE void store(D d, V v, Out<T> out, int64_t element) {
  // Only vectors of a whole cache line are streamed. A narrower vector would fill a line in two
  // parts, and the line might be written out between them.
  if constexpr (std::is_same_v<T, float>)
    if (hn::MaxLanes(d) * sizeof(float) == 64 && out.stream)
      return hn::Stream(v, d, out.data + element);
  store(d, v, out.data + element);
}

template <bool kSlope, class D, class V>
HWY_INLINE V scaled_or_zero(D d, V x, float slope) {
  if constexpr (kSlope) return hn::Mul(x, hn::Set(d, slope));
  return hn::Zero(d);  // not 0 * x, which is NaN for an infinite x
}

template <bool kSlope, class T>
void RectifyBlocksOf(const T* x, float slope, Out<T> y, uint8_t* mask, Blocks blocks) {
  for_blocks(blocks, [&](auto d, int64_t first, int64_t byte) HWY_ATTR {
    auto bits = hn::Zero(hn::Rebind<int32_t, decltype(d)>());
    for (int r = 0; r < 8; ++r) {
      const auto v = load(d, x + first + r * blocks.stride);
      const auto drop = hn::Le(v, hn::Zero(d));
      store(d, hn::IfThenElse(drop, scaled_or_zero<kSlope>(d, v, slope), v), y,
            first + r * blocks.stride);
      bits = with_bit(d, bits, drop, r);
    }
    if (mask != nullptr) store_bits(d, bits, mask + byte);
  });
}

template <class T>
void RectifyBlocks(const T* x, float slope, Out<T> y, uint8_t* mask, Blocks blocks) {
  slope != 0 ? RectifyBlocksOf<true>(x, slope, y, mask, blocks)
             : RectifyBlocksOf<false>(x, slope, y, mask, blocks);
}

template <class T>
void ClampBlocks(const T* x, float lo, float hi, Out<T> y, uint8_t* mask, Blocks blocks) {
  for_blocks(blocks, [&](auto d, int64_t first, int64_t byte) HWY_ATTR {
    auto bits = hn::Zero(hn::Rebind<int32_t, decltype(d)>());
    const auto low = hn::Set(d, lo), high = hn::Set(d, hi);
    for (int r = 0; r < 8; ++r) {
      const auto v = load(d, x + first + r * blocks.stride);
      const auto below = hn::Lt(v, low), above = hn::Gt(v, high);
      store(d, hn::IfThenElse(below, low, hn::IfThenElse(above, high, v)), y,
            first + r * blocks.stride);
      bits = with_bit(d, bits, hn::Or(below, above), r);
    }
    if (mask != nullptr) store_bits(d, bits, mask + byte);
  });
}

template <bool kSlope, class T>
void SelectBlocksOf(const T* x, const uint8_t* mask, float slope, Out<T> y, Blocks blocks) {
  for_blocks(blocks, [&](auto d, int64_t first, int64_t byte) HWY_ATTR {
    const auto bits = load_bits(d, mask + byte);
    for (int r = 0; r < 8; ++r) {
      const auto v = load(d, x + first + r * blocks.stride);
      store(d, hn::IfThenElse(bit_of(d, bits, r), v, scaled_or_zero<kSlope>(d, v, slope)), y,
            first + r * blocks.stride);
    }
  });
}

template <class T>
void SelectBlocks(const T* x, const uint8_t* mask, float slope, Out<T> y, Blocks blocks) {
  slope != 0 ? SelectBlocksOf<true>(x, mask, slope, y, blocks)
             : SelectBlocksOf<false>(x, mask, slope, y, blocks);
}

template <class T>
void ChunkMoments(const T* x, int64_t rows, int64_t c, float* sum, float* squares) {
  std::fill_n(sum, c, 0.0f);
  std::fill_n(squares, c, 0.0f);
  for_rows(rows, [&](auto count, int64_t row) HWY_ATTR {
    for_columns(c, [&](auto d, int64_t k) HWY_ATTR {
      const auto shift = load(d, x + k);
      auto s = hn::LoadU(d, sum + k), q = hn::LoadU(d, squares + k);
      for (int r = 0; r < count(); ++r) {
        const auto v = hn::Sub(load(d, x + (row + r) * c + k), shift);
        s = hn::Add(s, v);
        q = hn::MulAdd(v, v, q);
      }
      hn::StoreU(s, d, sum + k);
      hn::StoreU(q, d, squares + k);
    });
  });
}

// The forward pass and the rebuild share this expression for z, so that both give the same bits.
template <class D, class V, class T>
HWY_INLINE V normalized(D d, const T* x, V mean, V scale, V bias) {
  return hn::MulAdd(hn::Sub(load(d, x), mean), scale, bias);
}

template <bool kRelu, bool kResidual, bool kMask, class T>
void NormalizeOf(const T* x, const T* residual, const Affine& affine, Out<T> y, uint8_t* mask,
                 int64_t rows, int64_t c) {
  for_rows(rows, [&](auto count, int64_t row) HWY_ATTR {
    for_columns(c, [&](auto d, int64_t k) HWY_ATTR {
      const auto mean = hn::LoadU(d, affine.mean + k), scale = hn::LoadU(d, affine.scale + k),
                 bias = hn::LoadU(d, affine.bias + k);
      auto bits = hn::Zero(hn::Rebind<int32_t, decltype(d)>());
      for (int r = 0; r < count(); ++r) {
        const int64_t at = (row + r) * c + k;
        auto z = normalized(d, x + at, mean, scale, bias);
        if constexpr (kResidual) z = hn::Add(z, load(d, residual + at));
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

template <bool kResidual, class T>
void NormalizeWith(const T* x, const T* residual, const Affine& affine, bool relu, Out<T> y,
                   uint8_t* mask, int64_t rows, int64_t c) {
  if (!relu)
    NormalizeOf<false, kResidual, false>(x, residual, affine, y, nullptr, rows, c);
  else if (mask == nullptr)
    NormalizeOf<true, kResidual, false>(x, residual, affine, y, nullptr, rows, c);
  else
    NormalizeOf<true, kResidual, true>(x, residual, affine, y, mask, rows, c);
}

template <class T>
void Normalize(const T* x, const T* residual, const Affine& affine, bool relu, Out<T> y,
               uint8_t* mask, int64_t rows, int64_t c) {
  residual != nullptr ? NormalizeWith<true>(x, residual, affine, relu, y, mask, rows, c)
                      : NormalizeWith<false>(x, residual, affine, relu, y, mask, rows, c);
}

template <bool kResidual, class T>
void NormalizeByMaskOf(const T* x, const T* residual, const Affine& affine, const uint8_t* mask,
                       Out<T> y, int64_t rows, int64_t c) {
  for (int64_t row = 0; row < rows; row += 8)
    for_columns(c, [&](auto d, int64_t k) HWY_ATTR {
      const auto mean = hn::LoadU(d, affine.mean + k), scale = hn::LoadU(d, affine.scale + k),
                 bias = hn::LoadU(d, affine.bias + k);
      const auto bits = load_bits(d, mask + row / 8 * c + k);
      for (int r = 0; r < 8; ++r) {
        const int64_t at = (row + r) * c + k;
        auto z = normalized(d, x + at, mean, scale, bias);
        if constexpr (kResidual) z = hn::Add(z, load(d, residual + at));
        store(d, hn::IfThenElseZero(bit_of(d, bits, r), z), y, at);
      }
    });
}

template <class T>
void NormalizeByMask(const T* x, const T* residual, const Affine& affine, const uint8_t* mask,
                     Out<T> y, int64_t rows, int64_t c) {
  residual != nullptr ? NormalizeByMaskOf<true>(x, residual, affine, mask, y, rows, c)
                      : NormalizeByMaskOf<false>(x, residual, affine, mask, y, rows, c);
}

template <bool kMask, bool kWrite, class T>
void ChunkGradientsOf(const T* dy, const uint8_t* mask, const T* x, const float* mean, Out<T> g,
                      float* sum, float* product, int64_t rows, int64_t c) {
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
        auto v = load(d, dy + at);
        if constexpr (kMask) v = hn::IfThenElseZero(bit_of(d, bits, r), v);
        if constexpr (kWrite) store(d, v, g, at);
        s = hn::Add(s, v);
        p = hn::MulAdd(v, hn::Sub(load(d, x + at), m), p);
      }
      hn::StoreU(s, d, sum + k);
      hn::StoreU(p, d, product + k);
    });
  });
}

template <class T>
void ChunkGradients(const T* dy, const uint8_t* mask, const T* x, const float* mean, Out<T> g,
                    float* sum, float* product, int64_t rows, int64_t c) {
  if (mask != nullptr)
    g.data != nullptr ? ChunkGradientsOf<true, true>(dy, mask, x, mean, g, sum, product, rows, c)
                      : ChunkGradientsOf<true, false>(dy, mask, x, mean, g, sum, product, rows, c);
  else
    g.data != nullptr ? ChunkGradientsOf<false, true>(dy, mask, x, mean, g, sum, product, rows, c)
                      : ChunkGradientsOf<false, false>(dy, mask, x, mean, g, sum, product, rows, c);
}

template <bool kMask, class T>
void InputGradientOf(const T* dy, const uint8_t* mask, const T* x, const GradientAffine& affine,
                     Out<T> dx, int64_t rows, int64_t c) {
  for_rows(rows, [&](auto count, int64_t row) HWY_ATTR {
    for_columns(c, [&](auto d, int64_t k) HWY_ATTR {
      const auto mean = hn::LoadU(d, affine.mean + k), of_g = hn::LoadU(d, affine.of_g + k),
                 of_x = hn::LoadU(d, affine.of_x + k), constant = hn::LoadU(d, affine.constant + k);
      auto bits = hn::Zero(hn::Rebind<int32_t, decltype(d)>());
      if constexpr (kMask) bits = load_bits(d, mask + row / 8 * c + k);
      for (int r = 0; r < count(); ++r) {
        const int64_t at = (row + r) * c + k;
        auto v = load(d, dy + at);
        if constexpr (kMask) v = hn::IfThenElseZero(bit_of(d, bits, r), v);
        const auto centred = hn::Sub(load(d, x + at), mean);
        store(d, hn::MulAdd(v, of_g, hn::MulAdd(centred, of_x, constant)), dx, at);
      }
    });
  });
}

template <class T>
void InputGradient(const T* dy, const uint8_t* mask, const T* x, const GradientAffine& affine,
                   Out<T> dx, int64_t rows, int64_t c) {
  mask != nullptr ? InputGradientOf<true>(dy, mask, x, affine, dx, rows, c)
                  : InputGradientOf<false>(dy, nullptr, x, affine, dx, rows, c);
}

// Calls f with an element of the type that is read and written.
template <class F>
void with_type(const Input& x, F f) {
  x.bf16 ? f(BFloat16{}) : f(float{});
}
template <class T>
const T* elements(const Input& x, T) {
  return static_cast<const T*>(x.data);
}
template <class T>
Out<T> elements(const Output& y, T) {
  return {static_cast<T*>(y.data), y.stream};
}

void Rectify(Input x, float slope, Output y, uint8_t* mask, Blocks blocks) {
  with_type(x, [&](auto t) { RectifyBlocks(elements(x, t), slope, elements(y, t), mask, blocks); });
}
void Clamp(Input x, float lo, float hi, Output y, uint8_t* mask, Blocks blocks) {
  with_type(x, [&](auto t) { ClampBlocks(elements(x, t), lo, hi, elements(y, t), mask, blocks); });
}
void Select(Input x, const uint8_t* mask, float slope, Output y, Blocks blocks) {
  with_type(x, [&](auto t) { SelectBlocks(elements(x, t), mask, slope, elements(y, t), blocks); });
}
void Moments(Input x, int64_t rows, int64_t c, float* sum, float* squares) {
  with_type(x, [&](auto t) { ChunkMoments(elements(x, t), rows, c, sum, squares); });
}
void NormalizeAny(Input x, Input residual, const Affine& affine, bool relu, Output y, uint8_t* mask,
                  int64_t rows, int64_t c) {
  with_type(x, [&](auto t) {
    Normalize(elements(x, t), elements(residual, t), affine, relu, elements(y, t), mask, rows, c);
  });
}
void NormalizeMasked(Input x, Input residual, const Affine& affine, const uint8_t* mask, Output y,
                     int64_t rows, int64_t c) {
  with_type(x, [&](auto t) {
    NormalizeByMask(elements(x, t), elements(residual, t), affine, mask, elements(y, t), rows, c);
  });
}
void Gradients(Input dy, const uint8_t* mask, Input x, const float* mean, Output g, float* sum,
               float* product, int64_t rows, int64_t c) {
  with_type(x, [&](auto t) {
    ChunkGradients(elements(dy, t), mask, elements(x, t), mean, elements(g, t), sum, product, rows,
                   c);
  });
}
void GradientOfInput(Input dy, const uint8_t* mask, Input x, const GradientAffine& affine,
                     Output dx, int64_t rows, int64_t c) {
  with_type(x, [&](auto t) {
    InputGradient(elements(dy, t), mask, elements(x, t), affine, elements(dx, t), rows, c);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

Input input_of(const Tensor& x, int64_t element) {
  if (!x.defined()) return {};
  if (x.dtype() == DType::bf16) return x.data<BFloat16>() + element;
  return x.data<float>() + element;
}

Output output_of(const Tensor& y, int64_t cols) {
  constexpr int64_t kLine = 64, kLarge = int64_t{32} << 20;  // bytes
  if (!y.defined()) return {};
  if (y.dtype() == DType::bf16) return {y.mut<BFloat16>(), true, false};
  float* data = y.mut<float>();
  return {data, false,
          y.nbytes() >= kLarge && cols * static_cast<int64_t>(sizeof(float)) % kLine == 0 &&
              reinterpret_cast<uintptr_t>(data) % kLine == 0};
}

// Makes streamed lines visible to the thread that reads them next.
static void finish(Output out) {
  if (out.stream) hwy::FlushStream();
}

HWY_EXPORT(Rectify);
HWY_EXPORT(Clamp);
HWY_EXPORT(Select);
HWY_EXPORT(Moments);
HWY_EXPORT(NormalizeAny);
HWY_EXPORT(NormalizeMasked);
HWY_EXPORT(Gradients);
HWY_EXPORT(GradientOfInput);

void rectify_blocks(Input x, float slope, Output y, uint8_t* mask, Blocks blocks) {
  HWY_DYNAMIC_DISPATCH(Rectify)(x, slope, y, mask, blocks);
  finish(y);
}
void clamp_blocks(Input x, float lo, float hi, Output y, uint8_t* mask, Blocks blocks) {
  HWY_DYNAMIC_DISPATCH(Clamp)(x, lo, hi, y, mask, blocks);
  finish(y);
}
void select_blocks(Input x, const uint8_t* mask, float slope, Output y, Blocks blocks) {
  HWY_DYNAMIC_DISPATCH(Select)(x, mask, slope, y, blocks);
  finish(y);
}
void chunk_moments(Input x, int64_t rows, int64_t c, float* sum, float* squares) {
  HWY_DYNAMIC_DISPATCH(Moments)(x, rows, c, sum, squares);
}
void normalize(Input x, Input residual, const Affine& affine, bool relu, Output y, uint8_t* mask,
               int64_t rows, int64_t c) {
  HWY_DYNAMIC_DISPATCH(NormalizeAny)(x, residual, affine, relu, y, mask, rows, c);
  finish(y);
}
void normalize_by_mask(Input x, Input residual, const Affine& affine, const uint8_t* mask, Output y,
                       int64_t rows, int64_t c) {
  HWY_DYNAMIC_DISPATCH(NormalizeMasked)(x, residual, affine, mask, y, rows, c);
  finish(y);
}
void chunk_gradients(Input dy, const uint8_t* mask, Input x, const float* mean, Output g,
                     float* sum, float* product, int64_t rows, int64_t c) {
  HWY_DYNAMIC_DISPATCH(Gradients)(dy, mask, x, mean, g, sum, product, rows, c);
  finish(g);
}
void input_gradient(Input dy, const uint8_t* mask, Input x, const GradientAffine& affine, Output dx,
                    int64_t rows, int64_t c) {
  HWY_DYNAMIC_DISPATCH(GradientOfInput)(dy, mask, x, affine, dx, rows, c);
  finish(dx);
}

}  // namespace frugal::ops::simd
#endif

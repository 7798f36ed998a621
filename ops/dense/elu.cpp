#include "ops/dense/elu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/simd/convert_loops.h"
#include "ops/simd/scalar_math.h"

namespace frugal::ops {
namespace {

constexpr int64_t kColumns = 512;  // bytes of a mask that one task takes together

// Calls f(first element, first byte, bit, count) over runs of at most kColumns elements whose bits
// lie in consecutive bytes. One thread handles all eight bits of a byte.
template <class F>
void for_runs(const Shape& shape, F f) {
  constexpr int64_t kGrain = 1 << 13;  // elements
  const BitmaskLayout layout = bitmask_layout(shape);
  const int64_t n = shape.numel(), cols = layout.cols;
  if (n == 0) return;
  const int64_t strips = (cols + kColumns - 1) / kColumns, blocks = layout.rows / 8;
  parallel_for(0, blocks * strips, kGrain / (8 * std::min(cols, kColumns)) + 1,
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t block = i / strips, k = i % strips * kColumns;
                   const int64_t count = std::min(kColumns, cols - k);
                   for (int bit = 0; bit < 8; ++bit) {
                     const int64_t element = (block * 8 + bit) * cols + k;
                     f(element, block * cols + k, bit, std::clamp<int64_t>(n - element, 0, count));
                   }
                 }
               });
}

// n <= kColumns values of x from place `at` on. Those of bf16 become f32 in `wide`.
template <class T>
const T* values_of(const Tensor& x, int64_t at, int64_t n, T* wide) {
  if constexpr (std::is_same_v<T, float>)
    if (x.dtype() == DType::bf16) {
      simd::widen(x.data<BFloat16>() + at, wide, n);
      return wide;
    }
  return x.data<T>() + at;
}

// Calls f(to) to fill n <= kColumns values of y from place `at` on. Those of bf16 are rounded from
// `wide`.
template <class T, class F>
void fill_values(const Tensor& y, int64_t at, int64_t n, T* wide, F f) {
  if constexpr (std::is_same_v<T, float>)
    if (y.dtype() == DType::bf16) {
      f(wide);
      return simd::narrow(wide, y.mut<BFloat16>() + at, n);
    }
  f(y.mut<T>() + at);
}

// f32 for bf16.
DType computed_in(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

FRUGAL_HD float minus_one(float x) { return math::exp(x) - 1; }
FRUGAL_HD double minus_one(double x) { return std::expm1(x); }

FRUGAL_HD float choose(bool condition, float yes, float no) {
  return math::choose(condition, yes, no);
}
FRUGAL_HD double choose(bool condition, double yes, double no) { return condition ? yes : no; }

}  // namespace

void elu_kernel(Cpu, const Tensor& x, const Tensor& y, const Tensor& mask) {
  uint8_t* bytes = mask.defined() ? mask.mut<uint8_t>() : nullptr;
  if (bytes != nullptr) std::fill_n(bytes, mask.numel(), uint8_t{0});
  with_real(computed_in(x.dtype()), [&](auto zero) {
    using T = decltype(zero);
    for_runs(x.shape(), [&](int64_t element, int64_t byte, int bit, int64_t count) {
      std::array<T, kColumns> wide_x, wide_y;
      const T* in = values_of(x, element, count, wide_x.data());
      fill_values(y, element, count, wide_y.data(), [&](T* out) {
#pragma omp simd
        for (int64_t k = 0; k < count; ++k) out[k] = choose(in[k] <= 0, minus_one(in[k]), in[k]);
      });
      if (bytes == nullptr) return;
      uint8_t* set = bytes + byte;
      const auto one = static_cast<uint8_t>(1 << bit);
#pragma omp simd
      for (int64_t k = 0; k < count; ++k)
        set[k] = static_cast<uint8_t>(set[k] | (in[k] <= 0 ? uint8_t{0} : one));
    });
  });
}

EluOutput elu(const Tensor& x, bool want_mask) {
  check_real("elu", "x", x);
  const Tensor in = contiguous(x);
  EluOutput out{Tensor::empty(x.shape(), x.dtype(), x.device()),
                want_mask ? empty_bitmask(x.shape(), x.device()) : Tensor()};
  dispatch(x.device(), [&](auto backend) { elu_kernel(backend, in, out.y, out.mask); });
  return out;
}

void elu_backward_kernel(Cpu, const Tensor& dy, const Tensor& y, const Tensor& mask,
                         const Tensor& dx) {
  const uint8_t* bytes = mask.data<uint8_t>();
  with_real(computed_in(dy.dtype()), [&](auto zero) {
    using T = decltype(zero);
    for_runs(dy.shape(), [&](int64_t element, int64_t byte, int bit, int64_t count) {
      std::array<T, kColumns> wide_dy, wide_y, wide_dx;
      const T* d = values_of(dy, element, count, wide_dy.data());
      const T* v = values_of(y, element, count, wide_y.data());
      const uint8_t* set = bytes + byte;
      fill_values(dx, element, count, wide_dx.data(), [&](T* to) {
#pragma omp simd
        for (int64_t k = 0; k < count; ++k)
          to[k] = choose((set[k] >> bit & 1) != 0, d[k], d[k] * (v[k] + 1));
      });
    });
  });
}

Tensor elu_backward(const Tensor& dy, const Tensor& y, const Tensor& mask) {
  check_real("elu backward", "dy", dy);
  check_shape("elu backward", "y", y, dy.shape());
  check_same("elu backward", dy, {&y});
  const BitmaskLayout layout = bitmask_layout(dy.shape());
  check_shape("elu backward", "the mask", mask, {layout.rows / 8, layout.cols});
  const Tensor gradient = contiguous(dy), out = contiguous(y);
  Tensor dx = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
  dispatch(dy.device(),
           [&](auto backend) { elu_backward_kernel(backend, gradient, out, mask, dx); });
  return dx;
}

}  // namespace frugal::ops

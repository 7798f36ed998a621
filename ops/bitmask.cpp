#include "ops/bitmask.h"

#include <algorithm>

#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/copy.h"
#include "ops/dtype_switch.h"
#include "ops/simd_loops.h"

namespace frugal::ops {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements

// Plain loops for any layout and dtype: y = f(x, keep) and the mask's bytes from keep(x).
template <class T, class Keep>
void mask_and_map(const Tensor& x, const Tensor& y, const Tensor& mask, Keep keep, auto value) {
  const T* px = x.data<T>();
  T* py = y.mut<T>();
  const BitmaskLayout layout = bitmask_layout(x.shape());
  const int64_t n = x.numel();
  uint8_t* bytes = mask.defined() ? mask.mut<uint8_t>() : nullptr;
  parallel_for(0, layout.rows / 8, kGrain / (8 * layout.cols) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      for (int64_t k = 0; k < layout.cols; ++k) {
        uint8_t byte = 0;
        for (int r = 0; r < 8; ++r) {
          const int64_t i = (block * 8 + r) * layout.cols + k;
          if (i >= n) continue;
          if (keep(px[i])) byte = static_cast<uint8_t>(byte | 1u << r);
          py[i] = value(px[i]);
        }
        if (bytes != nullptr) bytes[block * layout.cols + k] = byte;
      }
  });
}

}  // namespace

BitmaskLayout bitmask_layout(const Shape& shape) {
  const int64_t n = shape.numel(), c = shape.dim() == 0 ? 1 : shape.back();
  if (n == 0) return {0, 0, false};
  if (n / c % 8 == 0) return {n / c, c, true};
  return {8, (n + 7) / 8, false};
}

Tensor empty_bitmask(const Shape& shape, Device device) {
  const BitmaskLayout layout = bitmask_layout(shape);
  return Tensor::empty({layout.rows / 8, layout.cols}, DType::u8, device);
}

void rectify_kernel(Cpu, const Tensor& x, double slope, const Tensor& y, const Tensor& mask) {
  if (x.numel() == 0) return;
  const BitmaskLayout layout = bitmask_layout(x.shape());
  if (x.dtype() == DType::f32 && layout.by_rows) {
    parallel_for(
        0, layout.rows / 8, kGrain / (8 * layout.cols) + 1, [&](int64_t begin, int64_t end) {
          const int64_t at = begin * layout.cols;
          simd::rectify_blocks(
              x.data<float>() + 8 * at, static_cast<float>(slope), y.mut<float>() + 8 * at,
              mask.defined() ? mask.mut<uint8_t>() + at : nullptr, end - begin, layout.cols);
        });
    return;
  }
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T s = static_cast<T>(slope);
    mask_and_map<T>(
        x, y, mask, [](T v) { return !(v <= 0); }, [s](T v) { return !(v <= 0) ? v : s * v; });
  });
}

void clamp_kernel(Cpu, const Tensor& x, double lo, double hi, const Tensor& y, const Tensor& mask) {
  if (x.numel() == 0) return;
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T low = static_cast<T>(lo), high = static_cast<T>(hi);
    mask_and_map<T>(
        x, y, mask, [=](T v) { return !(v < low) && !(v > high); },
        [=](T v) { return v < low ? low : (v > high ? high : v); });
  });
}

void select_by_mask_kernel(Cpu, const Tensor& x, const Tensor& mask, double slope,
                           const Tensor& y) {
  if (x.numel() == 0) return;
  const BitmaskLayout layout = bitmask_layout(x.shape());
  const uint8_t* bytes = mask.data<uint8_t>();
  if (x.dtype() == DType::f32 && layout.by_rows) {
    parallel_for(
        0, layout.rows / 8, kGrain / (8 * layout.cols) + 1, [&](int64_t begin, int64_t end) {
          const int64_t at = begin * layout.cols;
          simd::select_blocks(x.data<float>() + 8 * at, bytes + at, static_cast<float>(slope),
                              y.mut<float>() + 8 * at, end - begin, layout.cols);
        });
    return;
  }
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* px = x.data<T>();
    T* py = y.mut<T>();
    const T s = static_cast<T>(slope);
    parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / layout.cols;
        const bool kept = (bytes[row / 8 * layout.cols + i % layout.cols] >> (row % 8) & 1) != 0;
        py[i] = kept ? px[i] : s * px[i];
      }
    });
  });
}

Rectified rectify(const Tensor& x, double slope, bool want_mask) {
  check_real("relu", "x", x);
  const Tensor in = contiguous(x);
  Rectified out{Tensor::empty(x.shape(), x.dtype(), x.device()),
                want_mask ? empty_bitmask(x.shape(), x.device()) : Tensor()};
  dispatch(x.device(), [&](auto backend) { rectify_kernel(backend, in, slope, out.y, out.mask); });
  return out;
}

Rectified clamp(const Tensor& x, double lo, double hi, bool want_mask) {
  check_real("clamp", "x", x);
  FRUGAL_CHECK(lo <= hi, "[clamp] expected bounds in order, got {} and {}", lo, hi);
  const Tensor in = contiguous(x);
  Rectified out{Tensor::empty(x.shape(), x.dtype(), x.device()),
                want_mask ? empty_bitmask(x.shape(), x.device()) : Tensor()};
  dispatch(x.device(), [&](auto backend) { clamp_kernel(backend, in, lo, hi, out.y, out.mask); });
  return out;
}

Tensor select_by_mask(const Tensor& x, const Tensor& mask, double slope) {
  check_real("select_by_mask", "x", x);
  const BitmaskLayout layout = bitmask_layout(x.shape());
  check_shape("select_by_mask", "the mask", mask, {layout.rows / 8, layout.cols});
  const Tensor in = contiguous(x);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { select_by_mask_kernel(backend, in, mask, slope, y); });
  return y;
}

}  // namespace frugal::ops

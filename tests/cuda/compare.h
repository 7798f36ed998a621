// How tests bring tensors to the GPU and compare what comes back with the CPU's.
#pragma once
#include "tests/cuda/gpu.h"
#include "tests/ops/samples.h"

namespace frugal::gpu {

// What bf16 holds, in f32.
inline Tensor rounded(const Shape& shape, uint64_t seed, double scale = 1, double shift = 0) {
  return ops::cast(ops::normals(shape, seed, DType::bf16, scale, shift), DType::f32);
}

// On the GPU, real numbers as `dtype`; undefined stays.
inline Tensor there(const Tensor& x, DType dtype = DType::f32) {
  if (!x.defined()) return x;
  const bool real = x.dtype() == DType::f32 || x.dtype() == DType::f64;
  return to_device(real ? ops::cast(x, dtype) : x, kCuda);
}
inline Tensor here(const Tensor& x) { return x.defined() ? to_device(x, kCpu) : x; }

inline double tolerance(DType dtype) { return dtype == DType::bf16 ? 0.02 : 2e-5; }

// Relative to the largest element, or to 1.
inline bool near(const Tensor& got, const Tensor& expected, double tolerance) {
  const std::vector<double> a = got.to_vector(), b = expected.to_vector();
  if (a.size() != b.size()) return false;
  double largest = 1;
  for (const double v : b) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] != b[i] && !(std::abs(a[i] - b[i]) <= tolerance * largest)) return false;
  }
  return true;
}

}  // namespace frugal::gpu

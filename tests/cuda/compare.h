// How tests bring tensors to the GPU and compare what comes back with the CPU's.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/rng.h"
#include "ops/dense/copy.h"
#include "tests/cuda/gpu.h"
#include "tests/ops/samples.h"

namespace frugal::gpu {

// Makes normal values that bf16 holds, in f32.
inline Tensor rounded(const Shape& shape, uint64_t seed, double scale = 1, double shift = 0) {
  return ops::cast(ops::normals(shape, seed, DType::bf16, scale, shift), DType::f32);
}

// Makes small multiples of 1/8. bf16 holds them exactly, and f32 holds their products and sums.
inline Tensor eighths(const Shape& shape, uint64_t seed) {
  Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<float>()[i] =
        std::floor(static_cast<float>(16 * uniform({seed, 7}, static_cast<uint64_t>(i)))) / 8 - 1;
  return x;
}

// Copies x to the GPU, or back to the CPU; undefined stays.
inline Tensor there(const Tensor& x) { return x.defined() ? to_device(x, kCuda) : x; }
inline Tensor here(const Tensor& x) { return x.defined() ? to_device(x, kCpu) : x; }
// Copies x to the GPU, real numbers as `dtype`.
inline Tensor there(const Tensor& x, DType dtype) {
  return there(x.defined() && is_floating(x.dtype()) ? ops::cast(x, dtype) : x);
}

inline double tolerance(DType dtype) { return dtype == DType::bf16 ? 0.02 : 2e-5; }

// Returns the largest |a - b|. NaN fits NaN; where only one of them is NaN, it returns infinity.
inline double distance(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) != std::isnan(y[i])) return std::numeric_limits<double>::infinity();
    if (std::isnan(x[i]) || x[i] == y[i]) continue;
    most = std::max(most, std::abs(x[i] - y[i]));
  }
  return most;
}

// Returns the size of the largest element, or 1 if all are smaller.
inline double largest_or_one(const Tensor& x) {
  double most = 1;
  for (const double v : x.to_vector()) most = std::max(most, std::abs(v));
  return most;
}

// Returns the distance relative to the largest element that is expected, or to 1.
inline double relative_distance(const Tensor& got, const Tensor& expected) {
  return distance(got, expected) / largest_or_one(expected);
}

// Says whether the shapes are equal and the relative distance is within the tolerance.
inline bool near(const Tensor& got, const Tensor& expected, double tolerance) {
  return got.shape() == expected.shape() &&
         distance(got, expected) <= tolerance * largest_or_one(expected);
}

}  // namespace frugal::gpu

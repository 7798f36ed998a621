#include "ops/image/interpolate.h"

#include <doctest/doctest.h>

#include <cmath>

#include "ops/dense/copy.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

constexpr InterpolateOptions kNearest{Interpolation::nearest, false};
constexpr InterpolateOptions kHalfPixel{Interpolation::bilinear, false};
constexpr InterpolateOptions kAligned{Interpolation::bilinear, true};

// One row of pixels.
Tensor row(const std::vector<double>& values) {
  std::vector<float> floats(values.begin(), values.end());
  return Tensor::from(floats, {1, 1, static_cast<int64_t>(values.size()), 1});
}
std::vector<double> stretched(const std::vector<double>& values, int64_t to,
                              const InterpolateOptions& options) {
  return interpolate(row(values), 1, to, options).to_vector();
}

TEST_CASE("interpolate: values that PyTorch documents") {
  CHECK(stretched({1, 2}, 4, kNearest) == std::vector<double>{1, 1, 2, 2});
  CHECK(stretched({1, 2}, 4, kHalfPixel) == std::vector<double>{1, 1.25, 1.75, 2});
  CHECK(stretched({1, 4}, 4, kAligned) == std::vector<double>{1, 2, 3, 4});
  CHECK(stretched({1, 2, 3, 4}, 2, kHalfPixel) == std::vector<double>{1.5, 3.5});
  CHECK(stretched({1, 2, 3, 4}, 1, kAligned) == std::vector<double>{1});
  CHECK(stretched({5}, 3, kAligned) == std::vector<double>{5, 5, 5});
  CHECK(stretched({1, 2, 3}, 7, kNearest) == std::vector<double>{1, 1, 1, 2, 2, 3, 3});
}

TEST_CASE("interpolate: an affine image stays affine, and the backward is the adjoint") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const double tolerance = dtype == DType::f64 ? 1e-12 : 1e-5;
    for (const InterpolateOptions& options : {kNearest, kHalfPixel, kAligned})
      for (const auto& [h, w] : {std::pair<int64_t, int64_t>{10, 3}, {3, 14}, {5, 6}}) {
        const Tensor x = normals({2, 5, 6, 3}, 3, dtype);
        const Tensor dy = normals({2, h, w, 3}, 7, dtype);
        const std::vector<double> y = interpolate(x, h, w, options).to_vector();
        const std::vector<double> dx = interpolate_backward(dy, x.shape(), options).to_vector();
        const std::vector<double> a = x.to_vector(), b = dy.to_vector();
        double forward = 0, backward = 0;
        for (size_t i = 0; i < y.size(); ++i) forward += y[i] * b[i];
        for (size_t i = 0; i < dx.size(); ++i) backward += dx[i] * a[i];
        CHECK(forward == doctest::Approx(backward).epsilon(tolerance));
      }
  }
  std::vector<float> plane;
  for (int h = 0; h < 5; ++h)
    for (int w = 0; w < 4; ++w) plane.push_back(static_cast<float>(2 * h + 3 * w));
  const Tensor y = interpolate(Tensor::from(plane, {1, 5, 4, 1}), 9, 7, kAligned);
  for (int h = 0; h < 9; ++h)
    for (int w = 0; w < 7; ++w)
      CHECK(y.data<float>()[h * 7 + w] == doctest::Approx(h + 1.5 * w).epsilon(1e-6));
}

TEST_CASE("interpolate: the same bits whatever the threads, shapes on meta, no images") {
  const Tensor meta = Tensor::empty({1 << 20, 7, 7, 64}, DType::f32, Device{DeviceType::meta});
  CHECK(interpolate(meta, 14, 14, kHalfPixel).shape() == Shape{1 << 20, 14, 14, 64});
  CHECK(interpolate_backward(interpolate(meta, 14, 14, kNearest), meta.shape(), kNearest).shape() ==
        meta.shape());
  CHECK(interpolate(Tensor::empty({0, 2, 2, 3}), 4, 4, kHalfPixel).shape() == Shape{0, 4, 4, 3});
}

}  // namespace
}  // namespace frugal::ops

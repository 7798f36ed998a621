// Sums that need several blocks, losses over many elements, ops in place, rows by index.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/rng.h"
#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"
#include "ops/dense/reduce.h"
#include "ops/graph/segment.h"
#include "ops/image/interpolate.h"
#include "ops/image/pool2d.h"
#include "ops/loss/binary_cross_entropy.h"
#include "ops/loss/mse.h"
#include "ops/optimizer/sgd.h"
#include "tests/cuda/compare.h"

namespace frugal {
namespace {

using gpu::there;

Tensor uniforms(const Shape& shape, uint64_t seed = 3, double lo = -1) {
  const Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<float>()[i] = static_cast<float>(
        lo + (1 - lo) * static_cast<double>(uniform({seed, 0}, static_cast<uint64_t>(i))));
  return x;
}

void check_near(const Tensor& expected, const Tensor& got, double tolerance) {
  const std::vector<double> values = got.to_vector();
  CHECK(std::none_of(values.begin(), values.end(), [](double x) { return std::isnan(x); }));
  CHECK(gpu::relative_distance(got, expected) <= tolerance);
}

}  // namespace

TEST_CASE("sums on CUDA over rows, columns and middles of any extent") {
  if (!gpu::available()) return;
  const std::vector<std::pair<Shape, std::vector<int>>> cases{
      {{100003}, {}},      {{65536}, {}},     {{3, 20000}, {1}},  {{300, 7}, {1}},
      {{5000, 3}, {0}},    {{5000, 64}, {0}}, {{2, 700, 5}, {1}}, {{70, 1000}, {0}},
      {{2, 3, 4}, {0, 2}}, {{0, 4}, {0}},     {{40, 12}, {1}},    {{1, 9000, 1}, {1}}};
  for (const auto& [shape, axes] : cases) {
    CAPTURE(shape);
    const Tensor x = uniforms(shape, 3, -0.5);
    const Tensor exact = ops::sum(ops::cast(x, DType::f64), axes);
    check_near(exact, ops::sum(there(x), axes), 1e-6);
    check_near(exact, ops::sum(there(x, DType::bf16), axes), 5e-3);
    CHECK(ops::sum(there(x), axes).to_vector() == ops::sum(there(x), axes).to_vector());
  }
}

TEST_CASE("the first value that is not finite, on CUDA") {
  if (!gpu::available()) return;
  const Tensor x = uniforms({30000});
  CHECK(ops::first_nonfinite(there(x)) == -1);
  x.mut<float>()[29999] = std::numeric_limits<float>::quiet_NaN();
  CHECK(ops::first_nonfinite(there(x)) == 29999);
  x.mut<float>()[12345] = -std::numeric_limits<float>::infinity();
  CHECK(ops::first_nonfinite(there(x)) == 12345);
  CHECK(ops::first_nonfinite(there(x, DType::bf16)) == 12345);
  CHECK(ops::first_nonfinite(Tensor::zeros({0}, DType::f32, gpu::kCuda)) == -1);
  CHECK(ops::first_nonfinite(Tensor::zeros({3}, DType::i64, gpu::kCuda)) == -1);
}

TEST_CASE("losses on CUDA over several blocks") {
  if (!gpu::available()) return;
  const Tensor x = uniforms({300, 70}, 1), t = uniforms({300, 70}, 2, 0);
  const Tensor weights = uniforms({300}, 4, 0);
  weights.mut<float>()[7] = 0;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const double tolerance = dtype == DType::f32 ? 1e-6 : 1e-2;
    const Tensor a = there(x, dtype), b = there(t, dtype);
    const auto mse = ops::mse(x, t), other = ops::mse(a, b);
    CHECK(other.loss.dtype() == DType::f32);
    check_near(mse.loss, other.loss, tolerance);
    const Tensor dy = Tensor::full({}, 1.5);
    check_near(ops::mse_backward(dy, mse.difference),
               ops::mse_backward(there(dy), other.difference), tolerance);
    for (const bool sum : {false, true}) {
      const auto one = ops::binary_cross_entropy(x, t, {sum}, weights);
      const auto two = ops::binary_cross_entropy(a, b, {sum}, there(weights));
      check_near(one.loss, two.loss, tolerance);
      check_near(one.gradient, two.gradient, tolerance);
      check_near(ops::binary_cross_entropy_backward(dy, one.gradient),
                 ops::binary_cross_entropy_backward(there(dy), two.gradient), tolerance);
    }
  }
  const Tensor outside = Tensor::full({300, 70}, 2);
  CHECK(std::isnan(ops::binary_cross_entropy(there(x), there(outside)).loss.item()));
}

TEST_CASE("ops in place on CUDA") {
  if (!gpu::available()) return;
  for (const Shape& shape : {Shape{5, 7}, Shape{33, 64}, Shape{0, 3}})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const double tolerance = dtype == DType::f32 ? 1e-6 : 1e-2;
      const Tensor x = uniforms(shape, 1), y = there(x, dtype);
      const uint64_t version = y.storage()->version();
      const Tensor term = uniforms(shape, 2), row = uniforms({shape.back()}, 3);
      ops::accumulate(x, term);
      ops::accumulate(y, there(term, dtype));
      ops::accumulate_row(x, row);
      ops::accumulate_row(y, there(row));
      ops::scale_inplace(x, 1.5);
      ops::scale_inplace(y, 1.5);
      ops::clip_inplace(x, 0.75);
      ops::clip_inplace(y, 0.75);
      check_near(x, y, tolerance);
      CHECK(y.storage()->version() == version + 4);
    }
}

TEST_CASE("averages over windows on CUDA") {
  if (!gpu::available()) return;
  for (const int64_t c : {2, 8}) {
    const Tensor x = uniforms({2, 11, 9, c});
    const Pool2dOptions options{{3, 2}, {2, 3}, {1, 1}, false};
    check_near(ops::avg_pool2d(x, options), ops::avg_pool2d(there(x), options), 1e-6);
    check_near(ops::adaptive_avg_pool2d(x, 4, 5), ops::adaptive_avg_pool2d(there(x), 4, 5), 1e-6);
    const Tensor dy = uniforms({2, 4, 5, c}, 9);
    check_near(ops::adaptive_avg_pool2d_backward(dy, x.shape()),
               ops::adaptive_avg_pool2d_backward(there(dy), x.shape()), 1e-6);
  }
}

TEST_CASE("interpolation on CUDA") {
  if (!gpu::available()) return;
  for (const int64_t c : {2, 8})
    for (const InterpolateOptions options : {InterpolateOptions{Interpolation::nearest, false},
                                             InterpolateOptions{Interpolation::bilinear, false},
                                             InterpolateOptions{Interpolation::bilinear, true}}) {
      const Tensor x = uniforms({2, 11, 9, c}), dy = uniforms({2, 25, 5, c}, 9);
      check_near(ops::interpolate(x, 25, 5, options), ops::interpolate(there(x), 25, 5, options),
                 1e-6);
      check_near(ops::interpolate_backward(dy, x.shape(), options),
                 ops::interpolate_backward(there(dy), x.shape(), options), 1e-6);
    }
}

TEST_CASE("rows by index on CUDA") {
  if (!gpu::available()) return;
  for (const int64_t width : {3, 8}) {
    const Tensor x = uniforms({40, width});
    std::vector<int64_t> rows;
    for (int64_t e = 0; e < 200; ++e) rows.push_back(e * e % 37);
    const Tensor index = Tensor::from(rows, {200}), on = to_device(index, gpu::kCuda);
    check_near(ops::gather_rows(x, index), ops::gather_rows(there(x), on), 0);
    const Tensor dy = uniforms({40, width}, 6);
    check_near(ops::segment_mean_backward(dy, index), ops::segment_mean_backward(there(dy), on),
               1e-6);
  }
  const Tensor wrong = to_device(Tensor::from<int64_t>({1, -1, 40}, {3}), gpu::kCuda);
  const auto got = ops::gather_rows(there(uniforms({40, 8})), wrong).to_vector();
  CHECK(std::isfinite(got[0]));
  CHECK(std::isnan(got[8]));
  CHECK(std::isnan(got[23]));
  CHECK_THROWS_WITH_AS(ops::gather_rows(there(uniforms({4, 2})), Tensor::from<int64_t>({1}, {1})),
                       doctest::Contains("[gather_rows] expected index of dtype i64 on cuda:0"),
                       Error);
}

}  // namespace frugal

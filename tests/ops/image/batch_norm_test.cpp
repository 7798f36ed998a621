#include "ops/image/batch_norm.h"

#include <doctest/doctest.h>

#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

// The definition, in f64 and element by element.
struct Reference {
  int64_t rows, c;
  std::vector<double> mean, variance, y, dx, dweight, dbias, dresidual;
};

struct Problem {
  Tensor x, residual, weight, bias, dy;
  bool relu = false, training = true;
  double eps = 1e-5;
};

Problem problem(int64_t rows, int64_t c, bool relu, bool residual, DType dtype) {
  Problem p;
  p.x = normals({rows, c}, 1, dtype, 2, 3);
  if (residual) p.residual = normals({rows, c}, 2, dtype);
  p.weight = normals({c}, 3, dtype, 0.5, 1);
  p.bias = normals({c}, 4, dtype);
  p.dy = normals({rows, c}, 5, dtype);
  p.relu = relu;
  return p;
}

// `moments` in eval mode; in training they come from x.
Reference reference(const Problem& p, const BatchNormMoments& moments) {
  Reference r{p.x.shape()[0], p.x.shape()[1], {}, {}, {}, {}, {}, {}, {}};
  const auto n = static_cast<double>(r.rows);
  const auto count = static_cast<size_t>(r.rows * r.c);
  r.y.resize(count);
  r.dx.resize(count);
  r.dresidual.resize(count);
  for (int64_t k = 0; k < r.c; ++k) {
    const auto at = [&](int64_t row) { return static_cast<size_t>(row * r.c + k); };
    const auto x = [&](int64_t row) { return p.x.item(row * r.c + k); };
    double mean = 0, variance = 0;
    for (int64_t row = 0; row < r.rows; ++row) mean += x(row) / n;
    for (int64_t row = 0; row < r.rows; ++row) variance += (x(row) - mean) * (x(row) - mean) / n;
    double invstd = 1 / std::sqrt(variance + p.eps);
    r.mean.push_back(mean);
    r.variance.push_back(variance);
    if (!p.training) {
      mean = moments.mean.item(k);
      invstd = moments.invstd.item(k);
    }
    const double weight = p.weight.defined() ? p.weight.item(k) : 1;
    const double bias = p.bias.defined() ? p.bias.item(k) : 0;
    double sum = 0, product = 0;
    for (int64_t row = 0; row < r.rows; ++row) {
      double z = weight * (x(row) - mean) * invstd + bias;
      if (p.residual.defined()) z += p.residual.item(row * r.c + k);
      const bool kept = !p.relu || z > 0;
      r.y[at(row)] = kept ? z : 0;
      r.dresidual[at(row)] = kept ? p.dy.item(row * r.c + k) : 0;
      sum += r.dresidual[at(row)];
      product += r.dresidual[at(row)] * (x(row) - mean) * invstd;
    }
    r.dweight.push_back(product);
    r.dbias.push_back(sum);
    for (int64_t row = 0; row < r.rows; ++row) {
      const double mixed = p.training ? (sum + (x(row) - mean) * invstd * product) / n : 0;
      r.dx[at(row)] = weight * invstd * (r.dresidual[at(row)] - mixed);
    }
  }
  return r;
}

struct Run {
  BatchNormMoments moments;
  BatchNormOutput out;
  BatchNormGradients grads;
};

Run run(const Problem& p, const BatchNormMoments& moments = {}) {
  Run r;
  BatchNormOptions options;
  options.eps = p.eps;
  r.moments = p.training ? batch_norm_moments(p.x, {}, {}, options) : moments;
  const BatchNormParameters parameters{p.weight, p.bias};
  r.out = batch_norm_apply(p.x, r.moments, parameters, p.residual, p.relu, p.relu);
  r.grads = batch_norm_backward(p.dy, p.x, r.moments, parameters, r.out.mask, p.training,
                                p.residual.defined());
  return r;
}

void check_against_reference(const Problem& p, const BatchNormMoments& moments = {}) {
  const bool narrow = p.x.dtype() == DType::f32;
  const double bound = narrow ? 2e-5 : 1e-12;
  const Run r = run(p, moments);
  const Reference expected = reference(p, moments);
  CHECK(error(r.out.y, expected.y) < bound);
  CHECK(error(r.grads.dx, expected.dx) < bound);
  // A sum of n terms of size 1
  const double sum_bound = bound * (1 + std::sqrt(static_cast<double>(expected.rows)));
  CHECK(error(r.grads.dweight, expected.dweight) < sum_bound);
  CHECK(error(r.grads.dbias, expected.dbias) < sum_bound);
  if (p.residual.defined()) {
    const Tensor place = clone(p.residual);
    const BatchNormOutput over =
        batch_norm_apply(p.x, r.moments, {p.weight, p.bias}, place, p.relu, p.relu, true);
    CHECK(over.y.to_vector() == r.out.y.to_vector());
    if (bitmask_layout(p.x.shape()).by_rows) CHECK(over.y.storage() == place.storage());
    CHECK_THROWS_AS(batch_norm_apply(p.x, r.moments, {}, {}, p.relu, false, true), Error);
  }
  CHECK(r.grads.dresidual.defined() == p.residual.defined());
  if (p.residual.defined()) CHECK(error(r.grads.dresidual, expected.dresidual) < bound);
  CHECK(r.out.mask.defined() == p.relu);
}

std::vector<int64_t> row_counts() { return {2, 3, 8, 13, 16, 64, 200, 1000}; }

}  // namespace

TEST_CASE("batch_norm: training agrees with the definition, whatever the rows and channels") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t c : {1, 3, 16, 17, 100})
      for (const int64_t rows : row_counts()) {
        CAPTURE(c);
        CAPTURE(rows);
        // Two or three rows have nearly equal values in some channel: 1/std magnifies f32's
        // rounding.
        if (dtype == DType::f32 && rows < 8) continue;
        check_against_reference(problem(rows, c, false, false, dtype));
        check_against_reference(problem(rows, c, true, false, dtype));
        check_against_reference(problem(rows, c, true, true, dtype));
      }
}

TEST_CASE("batch_norm: running statistics in eval mode, forward and backward") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t rows : {1, 5, 16}) {
      Problem p = problem(rows, 17, true, true, dtype);
      p.training = false;
      const Tensor running_var = Tensor::full({17}, 2, dtype);
      check_against_reference(p, batch_norm_running(normals({17}, 9, dtype), running_var, p.eps));
    }
}

TEST_CASE("batch_norm: without weight and bias they are ones and zeros") {
  for (const bool relu : {false, true}) {
    Problem p = problem(24, 5, relu, false, DType::f64);
    p.weight = p.bias = Tensor();
    check_against_reference(p);
  }
}

TEST_CASE("batch_norm: moments and running statistics are PyTorch's") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Problem p = problem(50, 6, false, false, dtype);
    const Reference expected = reference(p, {});
    const Tensor running_mean = normals({6}, 7, dtype), running_var = Tensor::full({6}, 2, dtype);
    std::vector<double> moved_mean, moved_var, invstd;
    for (size_t k = 0; k < 6; ++k) {
      moved_mean.push_back(0.7 * running_mean.to_vector()[k] + 0.3 * expected.mean[k]);
      moved_var.push_back(0.7 * 2 + 0.3 * expected.variance[k] * 50 / 49);
      invstd.push_back(1 / std::sqrt(expected.variance[k] + 0.01));
    }
    const uint64_t version = running_mean.storage()->version();
    BatchNormOptions options;
    options.momentum = 0.3;
    options.eps = 0.01;
    const BatchNormMoments moments = batch_norm_moments(p.x, running_mean, running_var, options);
    const double bound = dtype == DType::f32 ? 1e-6 : 1e-13;
    CHECK(error(moments.mean, expected.mean) < bound);
    CHECK(error(moments.invstd, invstd) < bound);
    CHECK(error(running_mean, moved_mean) < bound);
    CHECK(error(running_var, moved_var) < bound);
    CHECK(running_mean.storage()->version() > version);
  }
}

TEST_CASE("batch_norm: the rebuild through the mask has the forward's bits") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t c : {1, 3, 16, 17, 100})
      for (const int64_t rows : {5, 8, 64, 1000}) {
        CAPTURE(c);
        CAPTURE(rows);
        const bool with_residual = c % 2 == 1;
        const Problem p = problem(rows, c, true, with_residual, dtype);
        const Run r = run(p);
        const BatchNormParameters parameters{p.weight, p.bias};
        CHECK(same_bits(batch_norm_by_mask(p.x, r.moments, parameters, p.residual, r.out.mask),
                        r.out.y));
        // The mask is where y was kept, and asking for it changes no bit.
        CHECK(same_bits(rectify(r.out.y, 0, true).mask, r.out.mask));
        CHECK(same_bits(batch_norm_apply(p.x, r.moments, parameters, p.residual, true, false).y,
                        r.out.y));
        // Linear, never clamped: with another x the sign stays the mask's.
        const Tensor other = normals({rows, c}, 11, dtype, 2, 3);
        const Tensor plain =
            batch_norm_apply(other, r.moments, parameters, p.residual, false, false).y;
        CHECK(same_bits(batch_norm_by_mask(other, r.moments, parameters, p.residual, r.out.mask),
                        select_by_mask(plain, r.out.mask, 0)));
      }
}

TEST_CASE("batch_norm: the same bits for every thread count, and for views") {
  for (const int64_t rows : {4096, 4099}) {
    Problem p = problem(rows, 24, true, true, DType::f32);
    std::vector<Run> runs;
    for (const int threads : {1, 2, 3}) {
      const ThreadsScope scope(threads);
      runs.push_back(run(p));
    }
    p.x = with_gaps(p.x);
    p.residual = with_gaps(p.residual);
    p.dy = with_gaps(p.dy);
    p.weight = with_gaps(p.weight);
    p.bias = with_gaps(p.bias);
    runs.push_back(run(p));
    for (const Run& r : runs) {
      CHECK(same_bits(r.moments.mean, runs[0].moments.mean));
      CHECK(same_bits(r.moments.invstd, runs[0].moments.invstd));
      CHECK(same_bits(r.out.y, runs[0].out.y));
      CHECK(same_bits(r.out.mask, runs[0].out.mask));
      CHECK(same_bits(r.grads.dx, runs[0].grads.dx));
      CHECK(same_bits(r.grads.dweight, runs[0].grads.dweight));
      CHECK(same_bits(r.grads.dbias, runs[0].grads.dbias));
      CHECK(same_bits(r.grads.dresidual, runs[0].grads.dresidual));
    }
  }
}

TEST_CASE("batch_norm: images are rows of channels") {
  const Problem p = problem(2 * 3 * 4, 5, false, false, DType::f32);
  const Tensor image = p.x.view({2, 3, 4, 5});
  const BatchNormMoments moments = batch_norm_moments(image, {}, {}, {});
  CHECK(same_bits(moments.mean, batch_norm_moments(p.x, {}, {}, {}).mean));
  const Tensor y = batch_norm_apply(image, moments, {p.weight, p.bias}, {}, false, false).y;
  CHECK(y.shape() == image.shape());
  CHECK(same_bits(y.view(p.x.shape()),
                  batch_norm_apply(p.x, moments, {p.weight, p.bias}, {}, false, false).y));
}

TEST_CASE("batch_norm: the variance survives a large mean and a first row far from it") {
  const int64_t rows = 5000;
  Tensor x = normals({rows, 3}, 1, DType::f32, 1, 1e4);
  x.mut<float>()[0] = 1.1e4f;
  const Reference expected = reference({x, {}, {}, {}, x, false, true, 0}, {});
  BatchNormOptions options;
  options.eps = 0;
  const BatchNormMoments moments = batch_norm_moments(x, {}, {}, options);
  for (int64_t k = 0; k < 3; ++k) {
    const double std = std::sqrt(expected.variance[static_cast<size_t>(k)]);
    CHECK(moments.invstd.item(k) * std == doctest::Approx(1).epsilon(1e-4));
    CHECK(moments.mean.item(k) == doctest::Approx(expected.mean[static_cast<size_t>(k)]));
  }
}

TEST_CASE("batch_norm: a constant channel normalises to the bias and has no gradient in x") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Problem p = problem(40, 4, false, false, dtype);
    p.x = Tensor::full({40, 4}, 0.1, dtype);
    const Run r = run(p);
    for (int64_t i = 0; i < 160; ++i) {
      CHECK(r.out.y.item(i) == doctest::Approx(p.bias.item(i % 4)).epsilon(1e-4));
      CHECK(std::isfinite(r.grads.dx.item(i)));
    }
    CHECK(r.moments.invstd.item(0) == doctest::Approx(1 / std::sqrt(1e-5)).epsilon(1e-5));
    CHECK(error(r.grads.dweight, {0, 0, 0, 0}) < 1e-4);
  }
}

TEST_CASE("batch_norm: NaN spoils its channel, visibly, and no other") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Problem p = problem(64, 3, true, false, dtype);
    if (dtype == DType::f32)
      p.x.mut<float>()[64] = static_cast<float>(kNan);
    else
      p.x.mut<double>()[64] = kNan;
    const Run r = run(p);
    for (int64_t i = 0; i < p.x.numel(); ++i) CHECK(std::isnan(r.out.y.item(i)) == (i % 3 == 1));
  }
}

TEST_CASE("batch_norm: large outputs, which are written past the caches, are the same") {
  const int64_t rows = 1 << 15, c = 256;  // 32 MiB
  const Tensor x = Tensor::empty({rows, c});
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<float>()[i] = static_cast<float>(i * 2654435761 % 1009) * 0.002f - 1;
  const Tensor dy = x;
  const BatchNormMoments moments = batch_norm_moments(x, {}, {}, {});
  const BatchNormOutput out = batch_norm_apply(x, moments, {}, x, true, true);
  const BatchNormGradients grads = batch_norm_backward(dy, x, moments, {}, out.mask, true, true);
  const int64_t few = 4096;  // too little to be streamed
  for (const int64_t row : {int64_t{0}, rows - few}) {
    const Tensor part = x.slice(0, row, row + few);
    const BatchNormOutput small = batch_norm_apply(part, moments, {}, part, true, true);
    CHECK(same_bits(small.y, out.y.slice(0, row, row + few)));
    CHECK(same_bits(small.mask, out.mask.slice(0, row / 8, (row + few) / 8)));
    CHECK(same_bits(select_by_mask(part, small.mask, 0), grads.dresidual.slice(0, row, row + few)));
  }
  CHECK(same_bits(batch_norm_backward(grads.dresidual, x, moments, {}, {}, true, false).dx,
                  grads.dx));
}

TEST_CASE("batch_norm: meta tensors have shapes and run nothing") {
  const Tensor x = Tensor::empty({16, 3}, DType::f32, kMeta);
  const BatchNormMoments moments = batch_norm_moments(x, {}, {}, {});
  const BatchNormOutput out = batch_norm_apply(x, moments, {}, x, true, true);
  CHECK(out.mask.shape() == Shape{2, 3});
  const BatchNormGradients grads = batch_norm_backward(x, x, moments, {}, out.mask, true, true);
  CHECK(grads.dx.shape() == x.shape());
  CHECK(grads.dresidual.device() == kMeta);
  CHECK(batch_norm_by_mask(x, moments, {}, {}, out.mask).device() == kMeta);
}

TEST_CASE("batch_norm: errors name the op and what it got") {
  const Tensor x = Tensor::zeros({16, 3});
  const auto train = [](const Tensor& t) { return batch_norm_moments(t, {}, {}, {}); };
  CHECK_THROWS_WITH_AS(
      train(Tensor::zeros({1, 3})),
      doctest::Contains("[batch_norm] expected at least 2 rows to train on, which have a variance, "
                        "got [1, 3] f32"),
      Error);
  CHECK_THROWS_WITH_AS(train(Tensor::zeros({0, 3})),
                       doctest::Contains("[batch_norm] expected at least 2 rows"), Error);
  CHECK_THROWS_WITH_AS(train(Tensor::zeros({3})),
                       doctest::Contains("[batch_norm] expected x [..., C], got [3] f32"), Error);
  CHECK_THROWS_WITH_AS(train(Tensor::zeros({3, 0})),
                       doctest::Contains("[batch_norm] expected x [..., C]"), Error);
  CHECK_THROWS_WITH_AS(train(Tensor::zeros({4, 3}, DType::f16)),
                       doctest::Contains("[batch_norm] expected x of dtype f32, f64 or bf16"),
                       Error);
  CHECK_THROWS_WITH_AS(batch_norm_moments(x, Tensor::zeros({4}), {}, {}),
                       doctest::Contains("[batch_norm] expected running_mean of shape [3]"), Error);
  CHECK_THROWS_WITH_AS(batch_norm_running({}, {}, 1e-5),
                       doctest::Contains("[batch_norm] expected running_mean to be a tensor"),
                       Error);
  CHECK_THROWS_WITH_AS(batch_norm_running(Tensor::zeros({3}), Tensor::zeros({2}), 1e-5),
                       doctest::Contains("[batch_norm] expected running_var of shape [3]"), Error);
  const BatchNormMoments moments = train(x);
  CHECK_THROWS_WITH_AS(batch_norm_apply(x, moments, {Tensor::zeros({2}), {}}, {}, false, false),
                       doctest::Contains("[batch_norm] expected weight of shape [3]"), Error);
  CHECK_THROWS_WITH_AS(
      batch_norm_moments(x, Tensor::zeros({3}), with_gaps(Tensor::zeros({3})), {}),
      doctest::Contains("[batch_norm] expected a contiguous running_var, got strides [2]"), Error);
  CHECK_THROWS_WITH_AS(
      batch_norm_apply(x, moments, {{}, Tensor::zeros({3}, DType::f64)}, {}, false, false),
      doctest::Contains("[batch_norm] expected tensors of dtype f32 on cpu"), Error);
  CHECK_THROWS_WITH_AS(batch_norm_apply(x, moments, {}, Tensor::zeros({16, 4}), true, true),
                       doctest::Contains("[batch_norm] expected the residual of shape [16, 3]"),
                       Error);
  CHECK_THROWS_WITH_AS(batch_norm_apply(x, moments, {}, {}, false, true),
                       doctest::Contains("[batch_norm] expected a mask to go with a relu"), Error);
  CHECK_THROWS_WITH_AS(batch_norm_by_mask(x, moments, {}, {}, empty_bitmask({16, 4}, kCpu)),
                       doctest::Contains("[batch_norm] expected the mask of shape [2, 3]"), Error);
  CHECK_THROWS_WITH_AS(batch_norm_backward(Tensor::zeros({8, 3}), x, moments, {}, {}, true, false),
                       doctest::Contains("[batch_norm] expected dy of shape [16, 3]"), Error);
  CHECK_THROWS_WITH_AS(
      batch_norm_backward(Tensor::zeros({16, 3}, DType::f64), x, moments, {}, {}, true, false),
      doctest::Contains("[batch_norm] expected tensors of one dtype and device"), Error);
  CHECK_THROWS_WITH_AS(
      batch_norm_backward(x, x, moments, {}, empty_bitmask({16, 4}, kCpu), true, false),
      doctest::Contains("[batch_norm] expected the mask of shape [2, 3]"), Error);
}

}  // namespace frugal::ops

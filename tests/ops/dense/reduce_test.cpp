#include "ops/dense/reduce.h"

#include <doctest/doctest.h>

#include <numeric>

#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

// The sum over the axes of `mask`, element by element; axes kept as 1.
std::vector<double> reference_sum(const Tensor& x, uint32_t mask) {
  Shape kept = x.shape();
  for (int axis = 0; axis < x.dim(); ++axis)
    if ((mask >> axis & 1u) != 0) kept[axis] = 1;
  const Shape strides = contiguous_strides(kept);
  std::vector<double> out(static_cast<size_t>(kept.numel()));
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t rest = i, at = 0;
    for (int axis = x.dim() - 1; axis >= 0; --axis) {
      if ((mask >> axis & 1u) == 0) at += rest % x.shape()[axis] * strides[axis];
      rest /= x.shape()[axis];
    }
    out[static_cast<size_t>(at)] += x.item(i);
  }
  return out;
}

}  // namespace

TEST_CASE("reduce: sum and mean over every set of axes, in every layout") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Tensor& x :
         {normals({3, 5, 4, 7}, 1, dtype), normals({7, 4, 5, 3}, 2, dtype).permute({3, 2, 1, 0}),
          with_gaps(normals({3, 5, 4, 7}, 3, dtype))})
      for (uint32_t mask = 1; mask < 16; ++mask) {
        CAPTURE(mask);
        std::vector<int> axes;
        double n = 1;
        for (int axis = 0; axis < 4; ++axis) {
          if ((mask >> axis & 1u) == 0) continue;
          axes.push_back(axis % 2 == 0 ? axis : axis - 4);
          n *= static_cast<double>(x.size(axis));
        }
        std::vector<double> expected = reference_sum(x, mask);
        const double tolerance = dtype == DType::f32 ? 2e-6 : 1e-14;
        CHECK(error(sum(x, axes), expected) < tolerance);
        CHECK(sum(x, axes, true).dim() == 4);
        CHECK(error(sum(x, axes, true), expected) < tolerance);
        for (double& value : expected) value /= n;
        CHECK(error(mean(x, axes), expected) < tolerance);
      }
}

TEST_CASE("reduce: long sums in f32 are as good as f64 rounded") {
  // A plain f32 sum of these stops growing at 2^24.
  const int64_t n = (1 << 24) + (1 << 22) + 3;
  CHECK(sum(Tensor::full({n}, 1)).item() == static_cast<double>(static_cast<float>(n)));
  for (const Shape& shape : {Shape{100000, 3}, Shape{3, 100000}, Shape{5000, 70}}) {
    const Tensor x = normals(shape, 4, DType::f32, 1, 1);
    const int axis = shape[0] > shape[1] ? 0 : 1;
    CHECK(error(mean(x, {axis}), mean(cast(x, DType::f64), {axis}).to_vector()) < 2e-7);
  }
}

TEST_CASE("reduce: the same bits for every thread count") {
  for (const Shape& shape : {Shape{70001}, Shape{3000, 70}, Shape{70, 3000}, Shape{9, 1000, 20}}) {
    const Tensor x = normals(shape, 5);
    for (int axis = 0; axis < x.dim(); ++axis) {
      Tensor expected;
      for (const int threads : {1, 2, 3, 5}) {
        const ThreadsScope scope(threads);
        const Tensor got = sum(x, {axis});
        if (threads == 1) expected = got;
        CHECK(same_bits(got, expected));
        CHECK(same_bits(sum(x), sum(x)));
      }
    }
  }
}

TEST_CASE("reduce: nothing sums to 0 and has no mean") {
  CHECK(sum(Tensor::zeros({0})).item() == 0);
  CHECK(sum(Tensor::zeros({0, 3}), {0}).to_vector() == std::vector<double>{0, 0, 0});
  CHECK(sum(Tensor::zeros({2, 0}, DType::f64), {1}).to_vector() == std::vector<double>{0, 0});
  CHECK(sum(Tensor::zeros({2, 0, 3}), {0, 2}).shape() == Shape{0});
  CHECK(sum(Tensor::full({}, 4)).item() == 4);
  CHECK(sum(Tensor::full({1, 1}, 4), {0}).item() == 4);
  CHECK_THROWS_WITH_AS(mean(Tensor::zeros({0, 3}), {0}),
                       doctest::Contains("[mean] expected at least one element"), Error);
  CHECK_THROWS_WITH_AS(max(Tensor::zeros({3, 0}), 1),
                       doctest::Contains("[max] expected at least one element along axis 1"),
                       Error);
  CHECK(max(Tensor::zeros({0, 3}), 1).values.shape() == Shape{0});
}

TEST_CASE("reduce: max finds the first largest along any axis") {
  const Tensor x = Tensor::from<float>({1, 5, 5, -2, 7, 0}, {2, 3});
  CHECK(max(x, 1).values.to_vector() == std::vector<double>{5, 7});
  CHECK(max(x, 1).indices.to_vector() == std::vector<double>{1, 1});
  CHECK(max(x, 0, true).values.shape() == Shape{1, 3});
  CHECK(max(x, 0).indices.to_vector() == std::vector<double>{0, 1, 0});
  CHECK(max(x.transpose(0, 1), 0).values.to_vector() == std::vector<double>{5, 7});
  CHECK(argmax(x, -1).dtype() == DType::i64);
  CHECK(argmax(x, -1).to_vector() == std::vector<double>{1, 1});
  const Tensor deep = normals({4, 300, 3}, 6, DType::f64);
  const MaxResult got = max(deep, 1);
  for (int64_t k = 0; k < 12; ++k)
    CHECK(deep.item((k / 3 * 300 + static_cast<int64_t>(got.indices.item(k))) * 3 + k % 3) ==
          got.values.item(k));
  for (int64_t i = 0; i < deep.numel(); ++i)
    CHECK(deep.item(i) <= got.values.item(i / 900 * 3 + i % 3));
}

TEST_CASE("reduce: NaN is larger than everything, the first one") {
  const Tensor x = Tensor::from<double>({1, kNan, kInf, kNan, -kInf, -kInf}, {2, 3});
  const MaxResult rows = max(x.slice(0, 0, 1), 1);
  CHECK(std::isnan(rows.values.item()));
  CHECK(rows.indices.item() == 1);
  CHECK(max(Tensor::from<float>({-INFINITY, -INFINITY}, {2}), 0).values.item() == -kInf);
  CHECK(max(Tensor::from<float>({NAN, 1}, {2}), 0).indices.item() == 0);
  CHECK(std::isnan(sum(x).item()));
}

TEST_CASE("reduce: the index of a maximum is as small as the extent allows") {
  CHECK(max(Tensor::zeros({256}), 0).indices.dtype() == DType::u8);
  CHECK(max(Tensor::zeros({257}), 0).indices.dtype() == DType::i32);
  Tensor x = Tensor::zeros({256});
  x.mut<float>()[255] = 1;
  CHECK(max(x, 0).indices.item() == 255);
}

TEST_CASE("reduce: the gradient of max goes to where the maximum was") {
  const Tensor index = max(Tensor::from<float>({1, 5, 5, -2, 7, 0}, {2, 3}), 0).indices;
  const Tensor dx = max_backward(Tensor::from<float>({10, 20, 30}, {3}), index, {2, 3}, 0);
  CHECK(dx.to_vector() == std::vector<double>{10, 0, 30, 0, 20, 0});
  CHECK_THROWS_AS(max_backward(Tensor::zeros({2}), index, {2, 3}, 0), Error);
}

TEST_CASE("reduce: sum_to undoes broadcast_to, for every pair of shapes") {
  const Shape full{2, 3, 4};
  const Tensor x = normals(full, 7, DType::f64);
  for (const Shape& shape :
       {Shape{2, 3, 4}, Shape{3, 4}, Shape{4}, Shape{}, Shape{1}, Shape{1, 1, 1}, Shape{2, 1, 4},
        Shape{1, 3, 1}, Shape{3, 1}, Shape{2, 1, 1}}) {
    CAPTURE(shape);
    const Tensor part = normals(shape, 8, DType::f64);
    const Tensor wide = broadcast_to(part, full), back = sum_to(x, shape);
    CHECK(wide.is_contiguous());
    CHECK(wide.to_vector() == expand(part, full).to_vector());
    CHECK(back.shape() == shape);
    // <broadcast(p), x> = <p, sum_to(x)>: they are each other's transpose.
    double left = 0, right = 0;
    for (int64_t i = 0; i < x.numel(); ++i) left += wide.item(i) * x.item(i);
    for (int64_t i = 0; i < part.numel(); ++i) right += part.item(i) * back.item(i);
    CHECK(left == doctest::Approx(right).epsilon(1e-12));
  }
  CHECK(sum_to(x, full).storage()->id() == x.storage()->id());
  CHECK_THROWS_WITH_AS(sum_to(x, {2, 4}), doctest::Contains("[sum_to] expected a shape"), Error);
  CHECK_THROWS_WITH_AS(sum_to(x, {1, 2, 3, 4}), doctest::Contains("[sum_to]"), Error);
  CHECK_THROWS_WITH_AS(broadcast_to(x, {2, 3, 5}), doctest::Contains("[broadcast_to]"), Error);
  CHECK_THROWS_WITH_AS(broadcast_to(x, {3, 4}), doctest::Contains("[broadcast_to]"), Error);
}

TEST_CASE("reduce: the first element that is not finite") {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const double bad : {kNan, kInf, -kInf})
      for (const int64_t at : {0, 17, 4095, 4096, 9999}) {
        const Tensor x = Tensor::zeros({10000}, dtype);
        CHECK(first_nonfinite(x) == -1);
        fill(x.slice(0, at, at + 1), bad);
        fill(x.slice(0, 9999, 10000), kNan);
        CHECK(first_nonfinite(x) == at);
        CHECK_FALSE(isfinite_all(x));
      }
  CHECK(isfinite_all(Tensor::full({3}, std::numeric_limits<float>::max())));
  CHECK(isfinite_all(Tensor::full({3}, 7, DType::i32)));
  CHECK(isfinite_all(Tensor::zeros({0})));
}

TEST_CASE("reduce: meta tensors get shapes and run nothing") {
  const Tensor x = Tensor::empty({1 << 20, 1 << 20}, DType::f32, kMeta);
  CHECK(sum(x, {0}).shape() == Shape{1 << 20});
  CHECK(max(x, 1).indices.dtype() == DType::i32);
  CHECK(sum_to(x, {1, 1 << 20}).device() == kMeta);
  CHECK(first_nonfinite(x) == -1);
}

TEST_CASE("reduce: mistakes are named") {
  const Tensor x = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH_AS(sum(x, {2}), doctest::Contains("[sum] expected an axis in [-2, 2)"), Error);
  CHECK_THROWS_WITH_AS(sum(x, {1, -1}), doctest::Contains("[sum] expected each axis once"), Error);
  CHECK_THROWS_WITH_AS(sum(Tensor::zeros({2}, DType::i64)),
                       doctest::Contains("[sum] expected x of dtype f32, f64 or bf16"), Error);
  CHECK_THROWS_WITH_AS(mean(Tensor::zeros({2}, DType::f16)), doctest::Contains("[mean]"), Error);
  CHECK_THROWS_WITH_AS(argmax(Tensor::zeros({2}), 1), doctest::Contains("[argmax]"), Error);
}

}  // namespace frugal::ops

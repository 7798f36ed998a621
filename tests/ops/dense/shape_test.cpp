#include "ops/dense/shape.h"

#include <doctest/doctest.h>

#include "tests/ops/samples.h"

namespace frugal::ops {

TEST_CASE("shape: reshape is a view where it can be") {
  const Tensor x = normals({2, 6}, 1);
  CHECK(reshape(x, {3, -1}).storage()->id() == x.storage()->id());
  const Tensor t = x.transpose(0, 1);
  CHECK(reshape(t, {12}).to_vector() == t.to_vector());
  CHECK_THROWS_AS(reshape(x, {5}), Error);
}

TEST_CASE("shape: concat along every axis, of any dtype and layout") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64, DType::bool_})
    for (int axis = -3; axis < 3; ++axis) {
      Shape a{2, 3, 4}, b = a;
      b[(axis + 3) % 3] = 5;
      const Tensor x = cast(normals(a, 2), dtype), y = cast(normals(b, 3), dtype);
      const Tensor both = concat({x, with_gaps(y), x}, axis);
      const int64_t end = both.size(axis), n = x.size(axis);
      CHECK(end == 2 * n + 5);
      CHECK(both.dtype() == dtype);
      CHECK(same_bits(both.slice(axis, 0, n), x));
      CHECK(same_bits(both.slice(axis, n, end - n), y));
      CHECK(same_bits(both.slice(axis, end - n, end), x));
    }
  const Tensor empty = Tensor::zeros({0, 3}), one = Tensor::full({1, 3}, 1);
  CHECK(concat({empty, one, empty}, 0).to_vector() == std::vector<double>{1, 1, 1});
}

TEST_CASE("shape: pad puts values around a tensor, and its gradient removes them") {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const Padding padding = {{1, 0}, {0, 2}};
  const Tensor y = pad(x, padding, 9);
  CHECK(y.shape() == Shape{3, 4});
  CHECK(y.to_vector() == std::vector<double>{9, 9, 9, 9, 1, 2, 9, 9, 3, 4, 9, 9});
  CHECK(same_bits(pad_backward(y, padding), x));
  CHECK(same_bits(pad(x.transpose(0, 1), {{0, 0}, {0, 0}}), contiguous(x.transpose(0, 1))));
  CHECK(pad(cast(x, DType::i64), padding, -1).item(0) == -1);
}

TEST_CASE("shape: the gradient of a slice lies in the midst of zeros") {
  const Tensor dy = Tensor::from<double>({1, 2}, {2, 1});
  CHECK(slice_backward(dy, {2, 3}, 1, 1).to_vector() == std::vector<double>{0, 1, 0, 0, 2, 0});
  CHECK(slice_backward(dy, {2, 3}, -1, 2).to_vector() == std::vector<double>{0, 0, 1, 0, 0, 2});
}

TEST_CASE("shape: meta gets shapes") {
  const Tensor x = Tensor::empty({2, 3}, DType::f32, kMeta);
  CHECK(concat({x, x}, 0).shape() == Shape{4, 3});
  CHECK(pad(x, {{1, 1}, {0, 0}}).shape() == Shape{4, 3});
  CHECK(reshape(x.transpose(0, 1), {6}).device() == kMeta);
}

TEST_CASE("shape: mistakes are named") {
  const Tensor x = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH_AS(concat({}, 0), doctest::Contains("[concat] expected at least one"), Error);
  CHECK_THROWS_WITH_AS(concat({x, Tensor::zeros({3, 3})}, 1),
                       doctest::Contains("[concat] expected shapes equal but for axis 1"), Error);
  CHECK_THROWS_WITH_AS(concat({x, Tensor::zeros({3})}, 0), doctest::Contains("[concat]"), Error);
  CHECK_THROWS_WITH_AS(concat({x, Tensor::zeros({2, 3}, DType::f64)}, 0),
                       doctest::Contains("[concat] expected tensors of one dtype"), Error);
  CHECK_THROWS_WITH_AS(concat({x}, 2), doctest::Contains("[concat] expected an axis"), Error);
  CHECK_THROWS_WITH_AS(concat({x, Tensor()}, 0), doctest::Contains("undefined"), Error);
  CHECK_THROWS_WITH_AS(pad(x, {{1, 1}}), doctest::Contains("[pad] expected a pair for each"),
                       Error);
  CHECK_THROWS_WITH_AS(pad(x, {{1, 1}, {0, -1}}),
                       doctest::Contains("[pad] expected padding of at least 0, got (0, -1)"),
                       Error);
}

}  // namespace frugal::ops

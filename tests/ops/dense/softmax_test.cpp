#include "ops/dense/softmax.h"

#include <doctest/doctest.h>

#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

// Softmax or its logarithm of rows, straight from the definition, for values that cannot overflow.
std::vector<double> reference(const Tensor& rows, bool log) {
  const int64_t width = rows.size(-1);
  std::vector<double> out;
  for (int64_t i = 0; i < rows.numel(); ++i) {
    double total = 0;
    for (int64_t c = 0; c < width; ++c) total += std::exp(rows.item(i / width * width + c));
    const double y = std::exp(rows.item(i)) / total;
    out.push_back(log ? std::log(y) : y);
  }
  return out;
}

}  // namespace

TEST_CASE("softmax: rows of every width follow the definition") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t width : {1, 2, 3, 7, 8, 10, 15, 16, 17, 33, 100, 1000}) {
      CAPTURE(width);
      const Tensor x = normals({5, width}, 1, dtype, 3);
      const double tolerance = dtype == DType::f32 ? 3e-6 : 1e-13;
      CHECK(error(softmax(x), reference(x, false)) < tolerance);
      CHECK(error(log_softmax(x), reference(x, true)) < tolerance);
      CHECK(same_bits(softmax(with_gaps(x)), softmax(x)));
    }
}

TEST_CASE("softmax: any axis") {
  const Tensor x = normals({3, 4, 5}, 2, DType::f64);
  for (int axis = 0; axis < 3; ++axis)
    for (const bool log : {false, true}) {
      const Tensor moved = contiguous(x.transpose(axis, 2));
      const Tensor y = log ? log_softmax(x, axis) : softmax(x, axis - 3);
      CHECK(y.is_contiguous());
      CHECK(error(y.transpose(axis, 2), reference(moved, log)) < 1e-14);
    }
}

TEST_CASE("softmax: the gradient is the Jacobian's product, along any axis") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (int axis = 0; axis < 3; ++axis)
      for (const bool log : {false, true}) {
        const Tensor x = normals({3, 4, 5}, 3, dtype), dy = normals({3, 4, 5}, 4, dtype);
        const Tensor y = log ? log_softmax(x, axis) : softmax(x, axis);
        const Tensor dx = log ? log_softmax_backward(dy, y, axis) : softmax_backward(dy, y, axis);
        const Tensor ys = contiguous(y.transpose(axis, 2)), dys = contiguous(dy.transpose(axis, 2));
        const int64_t width = ys.size(2);
        std::vector<double> expected;
        for (int64_t i = 0; i < x.numel(); ++i) {
          double total = 0;
          for (int64_t k = i / width * width; k < i / width * width + width; ++k) {
            const double same = k == i ? 1 : 0;
            const double slope =
                log ? same - std::exp(ys.item(i)) : ys.item(k) * (same - ys.item(i));
            total += dys.item(k) * slope;
          }
          expected.push_back(total);
        }
        CHECK(error(dx.transpose(axis, 2), expected) < (dtype == DType::f32 ? 2e-6 : 1e-13));
      }
}

TEST_CASE("softmax: huge and tiny logits do not overflow") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = cast(Tensor::from<double>({1e30, -1e30, 1e30, -1e30}, {1, 4}), dtype);
    CHECK(softmax(x).to_vector() == std::vector<double>{0.5, 0, 0.5, 0});
    CHECK(log_softmax(x).item(0) == doctest::Approx(-std::log(2.0)));
    const Tensor low = Tensor::full({2, 3}, -1e30, dtype);
    CHECK(softmax(low).item(4) == doctest::Approx(1.0 / 3));
  }
}

TEST_CASE("softmax: infinities and NaN stay in their row") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = cast(Tensor::from<double>({-kInf, 0, 0,          //
                                                -kInf, -kInf, -kInf,  //
                                                kInf, 0, 0,           //
                                                kNan, 0, 0,           //
                                                0, 0, kNan},
                                               {5, 3}),
                          dtype);
    for (const bool log : {false, true}) {
      const Tensor y = log ? log_softmax(x) : softmax(x);
      CHECK(y.item(0) == (log ? -kInf : 0));
      CHECK(y.item(1) == doctest::Approx(log ? -std::log(2.0) : 0.5));
      for (int64_t i : {3, 4, 5, 6, 9, 10, 11, 12, 14}) CHECK(std::isnan(y.item(i)));
    }
  }
}

TEST_CASE("softmax: the same bits for every thread count") {
  const Tensor x = normals({501, 77}, 5), dy = normals({501, 77}, 6);
  const Tensor y = softmax(x), dx = softmax_backward(dy, y);
  for (const int threads : {1, 2, 3}) {
    const ThreadsScope scope(threads);
    CHECK(same_bits(softmax(x), y));
    CHECK(same_bits(softmax_backward(dy, y), dx));
  }
}

TEST_CASE("softmax: empty tensors and meta") {
  CHECK(softmax(Tensor::zeros({0, 3})).shape() == Shape{0, 3});
  CHECK(softmax(Tensor::zeros({3, 0})).shape() == Shape{3, 0});
  CHECK(log_softmax(Tensor::empty({3, 4}, DType::f32, kMeta), 0).shape() == Shape{3, 4});
}

TEST_CASE("softmax: mistakes are named") {
  const Tensor x = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH_AS(softmax(x, 2), doctest::Contains("[softmax] expected an axis"), Error);
  CHECK_THROWS_WITH_AS(log_softmax(Tensor::zeros({2}, DType::f16)),
                       doctest::Contains("[log_softmax] expected x of dtype f32, f64 or bf16"),
                       Error);
  CHECK_THROWS_WITH_AS(softmax_backward(Tensor::zeros({3, 2}), x),
                       doctest::Contains("[softmax_backward] expected dy of shape [2, 3]"), Error);
  CHECK_THROWS_WITH_AS(log_softmax_backward(Tensor::zeros({2, 3}, DType::f64), x),
                       doctest::Contains("[log_softmax_backward]"), Error);
}

}  // namespace frugal::ops

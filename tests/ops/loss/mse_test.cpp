#include "ops/loss/mse.h"

#include <doctest/doctest.h>

#include "tests/ops/samples.h"

namespace frugal::ops {

TEST_CASE("mse: loss and gradient follow the definition") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t n : {1, 5, 4096, 10001}) {
      CAPTURE(n);
      const Tensor x = normals({n}, 1, dtype), t = normals({n}, 2, dtype);
      double total = 0;
      std::vector<double> gradient;
      for (int64_t i = 0; i < n; ++i) {
        const double difference = x.item(i) - t.item(i);
        total += difference * difference;
        gradient.push_back(2 * 1.5 * difference / static_cast<double>(n));
      }
      const double tolerance = dtype == DType::f32 ? 1e-6 : 1e-14;
      const MseResult got = mse(x, t);
      CHECK(error(got.loss, {total / static_cast<double>(n)}) < tolerance);
      CHECK(error(mse_backward(Tensor::full({}, 1.5, dtype), got.difference), gradient) <
            tolerance);
      CHECK(same_bits(mse(with_gaps(x), t).loss, got.loss));
    }
}

TEST_CASE("mse: the same bits for every thread count") {
  const Tensor x = normals({300, 301}, 3), t = normals({300, 301}, 4);
  const MseResult expected = mse(x, t);
  for (const int threads : {1, 2, 3}) {
    const ThreadsScope scope(threads);
    CHECK(same_bits(mse(x, t).loss, expected.loss));
  }
}

TEST_CASE("mse: meta gets shapes") {
  const Tensor x = Tensor::empty({3, 4}, DType::f32, kMeta);
  const MseResult got = mse(x, x);
  CHECK(got.loss.shape() == Shape{});
  CHECK(mse_backward(got.loss, got.difference).shape() == Shape{3, 4});
}

TEST_CASE("mse: mistakes are named") {
  const Tensor x = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH_AS(mse(x, Tensor::zeros({3})),
                       doctest::Contains("[mse] expected target of shape [2, 3]"), Error);
  CHECK_THROWS_WITH_AS(mse(x, Tensor::zeros({2, 3}, DType::f64)),
                       doctest::Contains("[mse] expected tensors of one dtype"), Error);
  CHECK_THROWS_WITH_AS(mse(Tensor::zeros({0}), Tensor::zeros({0})),
                       doctest::Contains("[mse] expected at least one element"), Error);
  CHECK_THROWS_WITH_AS(mse_backward(x, x),
                       doctest::Contains("[mse_backward] expected dy of shape []"), Error);
}

}  // namespace frugal::ops

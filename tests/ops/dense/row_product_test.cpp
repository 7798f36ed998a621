#include "ops/dense/row_product.h"

#include <doctest/doctest.h>

#include "ops/dense/matmul.h"
#include "tests/error_bounds.h"

namespace frugal::ops {

TEST_CASE("row_products: sums of every length, with and without a bias, in any parts") {
  for (const int64_t n : {1, 2, 15, 16, 17, 63, 64, 65, 200, 576}) {
    constexpr int64_t kRows = 7;
    const Tensor x = Tensor::rand({1, n}, {1, 1}), w = Tensor::rand({kRows, n}, {1, 2}),
                 bias = Tensor::rand({kRows}, {1, 3});
    for (const bool adds : {false, true}) {
      Tensor y = Tensor::empty({1, kRows});
      simd::row_products(x.data<float>(), w.data<float>(), adds ? bias.data<float>() : nullptr,
                         kRows, n, y.mut<float>());
      for (int64_t i = 0; i < kRows; ++i) {
        double expected = adds ? bias.data<float>()[i] : 0;
        for (int64_t k = 0; k < n; ++k)
          expected += static_cast<double>(x.data<float>()[k]) * w.data<float>()[i * n + k];
        CHECK(std::abs(y.data<float>()[i] - expected) <= frugal_test::largest_bound(n + 1));
      }
      // A part of the rows has the same bits, and so has a product of one row.
      Tensor part = Tensor::empty({1, 2});
      simd::row_products(x.data<float>(), w.data<float>() + 3 * n,
                         adds ? bias.data<float>() + 3 : nullptr, 2, n, part.mut<float>());
      CHECK(part.data<float>()[0] == y.data<float>()[3]);
      CHECK(part.data<float>()[1] == y.data<float>()[4]);
      CHECK(linear(x, w, adds ? bias : Tensor()).to_vector() == y.to_vector());
    }
  }
}

}  // namespace frugal::ops

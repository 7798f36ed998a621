#include "ops/dense/dropout.h"

#include <doctest/doctest.h>

#include "ops/dense/elementwise_loops.h"
#include "tests/ops/samples.h"

namespace frugal::ops {

TEST_CASE("dropout: element i is kept exactly where uniform(key, i) >= p") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double p : {0.0, 0.1, 0.3, 0.5, 0.9, 1.0})
      for (const int64_t n : {1, 3, 4, 5, 1001}) {
        CAPTURE(p);
        CAPTURE(n);
        const RngKey key{5, 77};
        const Tensor x = normals({n}, 1, dtype), y = dropout(x, p, key);
        std::vector<double> expected;
        for (int64_t i = 0; i < n; ++i) {
          const bool kept = static_cast<double>(uniform(key, static_cast<uint64_t>(i))) >= p;
          expected.push_back(kept ? x.item(i) / (1 - p) : 0);
        }
        CHECK(error(y, expected) < (dtype == DType::f32 ? 2e-7 : 1e-15));
      }
}

TEST_CASE("dropout: a probability between two words of 24 bits keeps the word above") {
  const RngKey key{9, 0};
  const double word = static_cast<double>(uniform(key, 0));
  CHECK(dropout(Tensor::full({1}, 1), word, key).item() != 0);
  CHECK(dropout(Tensor::full({1}, 1), word + 0x1p-26, key).item() == 0);
  CHECK(dropout(Tensor::full({1}, 1), word - 0x1p-26, key).item() != 0);
}

TEST_CASE("dropout: the share of kept elements and the mean are right") {
  const int64_t n = 1 << 20;
  const double p = 0.3;
  const Tensor y = dropout(Tensor::full({n}, 1), p, {3, 1});
  double kept = 0, sum = 0;
  for (const double v : y.to_vector()) {
    kept += v != 0;
    sum += v;
  }
  const double deviation = std::sqrt(p * (1 - p) / static_cast<double>(n));
  CHECK(std::abs(kept / static_cast<double>(n) - (1 - p)) < 5 * deviation);
  CHECK(std::abs(sum / static_cast<double>(n) - 1) < 5 * deviation / (1 - p));
}

TEST_CASE("dropout: the same bits for every thread count, with gaps, and for equal keys only") {
  const Tensor x = normals({333, 101}, 2);
  const Tensor y = dropout(x, 0.4, {1, 2});
  for (const int threads : {1, 2, 3}) {
    const ThreadsScope scope(threads);
    CHECK(same_bits(dropout(x, 0.4, {1, 2}), y));
  }
  CHECK(same_bits(dropout(with_gaps(x), 0.4, {1, 2}), y));
  CHECK_FALSE(same_bits(dropout(x, 0.4, {1, 3}), y));
  CHECK_FALSE(same_bits(dropout(x, 0.4, {2, 2}), y));
}

TEST_CASE("dropout: in place the same, and the version says so") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = normals({333, 101}, 2, dtype), y = dropout(x, 0.4, {1, 2});
    const uint64_t version = x.storage()->version();
    dropout_inplace(x, 0.4, {1, 2});
    CHECK(same_bits(x, y));
    CHECK(x.storage()->version() > version);
    CHECK_THROWS_AS(dropout_inplace(with_gaps(x), 0.4, {}), InternalError);
  }
}

// 1 / (1 - p) in bf16 is another factor, which shifts the mean (findings/torch_bf16_dropout.sh).
TEST_CASE("dropout of bf16 is that of f32, rounded once") {
  const RngKey key{3, 4};
  for (const double p : {0.1, 0.3}) {
    const Tensor x = cast(normals({1001}, 1), DType::bf16);
    const Tensor wide = dropout(cast(x, DType::f32), p, key);
    CHECK(dropout(x, p, key).to_vector() == cast(wide, DType::bf16).to_vector());
  }
}

TEST_CASE("dropout: a part of a tensor draws what the whole tensor draws there") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const int64_t first : {0, 4, 8, 13, 4099, 70001}) {
      CAPTURE(first);
      const Tensor x = normals({80000}, 3, dtype), whole = dropout(x, 0.4, {7, 2});
      const Tensor part = clone(x.slice(0, first, 80000));
      dropout_inplace(part, 0.4, {7, 2}, first);
      CHECK(same_bits(part, clone(whole.slice(0, first, 80000))));
    }
}

TEST_CASE("dropout: counters beyond 32 bits") {
  const RngKey key{0x123456789abcdef0u, 0xfedcba9876543210u};
  const int64_t begin = (int64_t{4} << 32) - 37, n = 200;
  std::vector<float> kept(static_cast<size_t>(n), -1), expected;
  for (int64_t i = begin; i < begin + n; ++i)
    expected.push_back(uniform(key, static_cast<uint64_t>(i)) >= 0.25f ? 4.0f / 3 : 0.0f);
  simd::dropout_factors(simd::drop_of(0.25, key), kept.data(), begin, begin + n);
  CHECK(kept == expected);
}

TEST_CASE("dropout: p = 0 changes nothing, p = 1 leaves zeros even of infinities, NaN stays") {
  const Tensor x = Tensor::from<float>({1.0f, -2.0f, static_cast<float>(kInf)}, {3});
  CHECK(same_bits(dropout(x, 0, {1, 1}), x));
  CHECK(error(dropout(x, 1, {1, 1}), {0, 0, 0}) == 0);
  CHECK(std::isnan(dropout(Tensor::full({1}, kNan), 0, {1, 1}).item()));
  CHECK(dropout(Tensor::empty({0, 3}), 0.5, {1, 1}).numel() == 0);
  CHECK(dropout(Tensor::empty({4}, DType::f32, kMeta), 0.5, {1, 1}).device() == kMeta);
}

TEST_CASE("dropout: errors name the op") {
  const Tensor x = Tensor::empty({2});
  for (const double p : {-0.1, 1.1, kNan})
    CHECK_THROWS_WITH_AS(dropout(x, p, {}),
                         doctest::Contains("[dropout] expected a probability in [0, 1], got"),
                         Error);
  CHECK_THROWS_WITH_AS(dropout(Tensor::empty({2}, DType::f16), 0.5, {}),
                       doctest::Contains("[dropout] expected x of dtype f32, f64 or bf16"), Error);
}

}  // namespace frugal::ops

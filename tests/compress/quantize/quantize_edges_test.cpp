// Values and sizes at the edges.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "compress/quantize/quantize.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {
constexpr float kFloatInf = std::numeric_limits<float>::infinity();
const float kFloatNan = std::nanf("");
}  // namespace

TEST_CASE("a group with NaN or an infinity is visible as a whole, others are untouched") {
  for (GroupAxis axis : {GroupAxis::column, GroupAxis::row})
    for (int bits : {1, 2, 4, 5, 8, 16})
      for (float bad :
           {kFloatNan, -kFloatNan, kFloatInf, -kFloatInf, std::numeric_limits<float>::max()}) {
        CAPTURE(bits);
        CAPTURE(bad);
        std::vector<float> x = normals(512 * 20, 1);
        const size_t at = 300 * 20 + 7;
        x[at] = bad;
        const Quantizer codec({bits, 256, axis});
        const PackedCase result = pack(codec, x, {512, 20});
        CHECK(codec.nonfinite_groups() == 1);
        const std::vector<double> y = result.values();
        for (size_t i = 0; i < x.size(); ++i) {
          const bool same_group = axis == GroupAxis::column
                                      ? i / (256 * 20) == at / (256 * 20) && i % 20 == at % 20
                                      : i / 256 == at / 256;
          REQUIRE(std::isnan(y[i]) == same_group);
        }
        codec.pack(Tensor::from(x, {512, 20}), {});
        CHECK(codec.nonfinite_groups() == 2);
      }
  const Quantizer codec;
  const std::vector<double> y = pack(codec, std::vector<float>(5, kFloatInf), {5}).values();
  for (double value : y) CHECK(!std::isfinite(value));
}

TEST_CASE("constant groups come back within a 2^-7 step of the constant and unbiased") {
  for (float value : {0.0f, -0.0f, 1.0f, 0.1f, -0.1f, 3.14159f, -1e30f, 1e-30f, 1e-44f, 0x1p-126f,
                      -2.99e38f, 1.5e38f})
    for (int bits : {1, 2, 4, 8, 16}) {
      if (bits == 1 && std::abs(value) > max_magnitude(1)) continue;
      CAPTURE(value);
      CAPTURE(bits);
      const Quantizer codec({bits});
      const PackedCase result = pack(codec, std::vector<float>(512 * 4, value), {512, 4});
      CHECK(codec.nonfinite_groups() == 0);
      const double scale = result.meta(0, 0, true);
      const double v = value, ulp = std::abs(v) * 0x1p-23;
      CHECK(scale <= std::max(std::abs(v) * 0x1p-6 / (std::exp2(bits) - 1), 0x1p-126));
      double mean = 0;
      for (double y : result.values()) {
        REQUIRE(std::abs(y - v) <= scale + ulp);
        mean += (y - v) / 2048;
      }
      CHECK(std::abs(mean) <= 5 * scale * 0.5 / std::sqrt(2048.0) + ulp);
      // What bf16 holds exactly comes back exactly.
      if (static_cast<float>(BFloat16(value)) == value)
        for (double y : result.values()) REQUIRE(y == v);
    }
}

TEST_CASE("whole numbers that fit the codes are exact") {
  std::vector<float> x(256 * 3);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i / 3 % 16) - 5;
  const std::vector<double> y = pack(Quantizer({4}), x, {256, 3}).values();
  for (size_t i = 0; i < x.size(); ++i) REQUIRE(y[i] == static_cast<double>(x[i]));
}

TEST_CASE("huge and tiny ranges keep the bound and stay finite") {
  for (double magnitude : {3e38, 1.7e38, 1e38, 1e20, 1.0, 1e-20, 1e-37, 1e-38, 1e-40, 1e-44})
    for (int bits : {1, 2, 4, 7, 8, 12, 16}) {
      if (bits == 1 && magnitude > static_cast<double>(max_magnitude(1))) continue;
      CAPTURE(magnitude);
      CAPTURE(bits);
      std::vector<float> x(300 * 5);
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(magnitude * (2 * static_cast<double>(uniform({4, 0}, i)) - 1));
      for (size_t c = 0; c < 5; ++c) {
        x[c] = static_cast<float>(magnitude), x[5 + c] = -static_cast<float>(magnitude);
      }
      const Quantizer codec({bits});
      const PackedCase result = pack(codec, x, {300, 5});
      CHECK(codec.nonfinite_groups() == 0);
      const std::vector<double> y = result.values();
      for (size_t i = 0; i < x.size(); ++i) {
        const int64_t at = static_cast<int64_t>(i);
        const double scale = result.meta(at / 5 / 256, at % 5, true);
        REQUIRE(std::abs(y[i] - static_cast<double>(x[i])) <=
                scale * (1 + 1e-5) + magnitude * 0x1p-22);
        REQUIRE(std::isfinite(y[i]));
      }
    }
}

TEST_CASE("no value of an outlying group leaves the range") {
  // One far outlier: everything else falls into few codes, the ends into the first and the last.
  for (int bits : {1, 2, 4, 8, 16}) {
    std::vector<float> x = normals(256, 6, 1e-3f);
    x[100] = 1000, x[101] = -1;
    const PackedCase result = pack(Quantizer({bits}), x, {256, 1});
    const double lo = result.meta(0, 0, false), scale = result.meta(0, 0, true);
    CHECK(lo <= -1);
    CHECK(lo + scale * (std::exp2(bits) - 1) >= 1000 * (1 - 1e-6));
    for (double y : result.values()) {
      REQUIRE(y >= lo);
      REQUIRE(y <= (lo + scale * (std::exp2(bits) - 1)) * (1 + 1e-6));
    }
  }
}

TEST_CASE("other dtypes return as they came") {
  const Shape shape{130, 21};
  const std::vector<float> x = normals(shape.numel(), 9);
  const Tensor single = Tensor::from(x, shape);
  const auto check = [&](const Tensor& tensor, double rounding) {
    for (GroupAxis axis : {GroupAxis::column, GroupAxis::row})
      for (int bits : {1, 4, 11}) {
        CAPTURE(tensor.dtype());
        const Quantizer codec({bits, 256, axis});
        const auto packed = codec.pack(tensor, {});
        const Tensor y = packed->unpack();
        REQUIRE(y.dtype() == tensor.dtype());
        REQUIRE(y.shape() == shape);
        // y is what the codes of the values in f32 give, rounded once more.
        std::vector<float> floats;
        for (double value : tensor.to_vector()) floats.push_back(static_cast<float>(value));
        const std::vector<double> expected = pack(codec, floats, shape).values();
        const std::vector<double> got = y.to_vector();
        for (size_t i = 0; i < got.size(); ++i)
          REQUIRE(std::abs(got[i] - expected[i]) <= std::abs(expected[i]) * rounding + 1e-7);
      }
  };
  std::vector<double> doubles;
  std::vector<BFloat16> bfloats;
  std::vector<Float16> halves;
  for (float value : x) {
    doubles.push_back(static_cast<double>(value) * (1 + 1e-9));
    bfloats.push_back(BFloat16(value));
    halves.push_back(Float16(value));
  }
  check(Tensor::from(doubles, shape), 0);
  check(Tensor::from(bfloats, shape), 0x1p-8);
  check(Tensor::from(halves, shape), 0x1p-11);

  doubles[3] = 1e300;  // beyond f32: visible, not a number
  const Quantizer codec;
  const Tensor y = codec.pack(Tensor::from(doubles, shape), {})->unpack();
  CHECK(std::isnan(y.to_vector()[3]));
  CHECK(codec.nonfinite_groups() == 1);
}

TEST_CASE("column groups keep a small channel accurate beside a large one") {
  std::vector<float> x = normals(256 * 2, 12);
  for (size_t i = 0; i < x.size(); i += 2) x[i] *= 1e6f;
  const std::vector<double> columns = pack(Quantizer({4}), x, {256, 2}).values();
  const std::vector<double> rows = pack(Quantizer({4, 256, GroupAxis::row}), x, {256, 2}).values();
  double column_error = 0, row_error = 0;
  for (size_t i = 1; i < x.size(); i += 2) {
    column_error = std::max(column_error, std::abs(columns[i] - static_cast<double>(x[i])));
    row_error = std::max(row_error, std::abs(rows[i] - static_cast<double>(x[i])));
  }
  CHECK(column_error < 0.6);
  CHECK(row_error > 1e4);
}

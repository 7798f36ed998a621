// Packing a tensor that comes in slices of its leading axis gives the bytes of packing the whole.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/dense/bitmask.h"
#include "tests/compress/quantize/split_samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

Tensor waves_with_nan(const Shape& shape, DType dtype) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::sin(static_cast<double>(i * i % 1013)) * 3);
  values[values.size() / 2] = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from(values, shape);
  return dtype == DType::f32 ? x : Tensor::from(x.to_vector(), shape);
}

std::vector<uint8_t> payload_of(const Packed& packed) {
  const Tensor& payload = dynamic_cast<const Grouped&>(packed).payload();
  return {payload.data<uint8_t>(), payload.data<uint8_t>() + payload.numel()};
}

void check_slices(const QuantizeOptions& options, const Tensor& x, bool with_sign, int64_t units) {
  const Quantizer quantizer(options);
  std::vector<float> values;
  for (const double value : x.to_vector()) values.push_back(static_cast<float>(value));
  Sign sign{mask_of(values, x.shape(), Bits::sign), 0.25};
  SaveInfo info{.op = "test", .seq = 7, .step = 2};
  if (with_sign) info.sign = &sign;
  const auto whole = quantizer.pack(x, info);
  const int64_t counted = quantizer.nonfinite_groups();
  Sign later{{}, sign.slope};
  if (with_sign) info.sign = &later;
  const auto slices = quantizer.pack_slices(x, info);
  REQUIRE(slices != nullptr);
  REQUIRE(slices->carries_sign() == whole->carries_sign());
  const int64_t n = x.size(0), step = units * slices->unit();
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t end = std::min(n, begin + step);
    const Tensor part = x.slice(0, begin, end);
    std::vector<float> own;
    for (const double value : part.to_vector()) own.push_back(static_cast<float>(value));
    slices->add(part, slices->carries_sign() ? mask_of(own, part.shape(), Bits::sign) : Tensor());
  }
  CHECK(payload_of(*slices->finish()) == payload_of(*whole));
  CHECK(quantizer.nonfinite_groups() == 2 * counted);
  CHECK(counted > 0);
}

}  // namespace

TEST_CASE("slices give the bytes of the whole") {
  for (const Shape& shape : {Shape{12, 8, 8, 20}, Shape{7, 24, 4, 16}, Shape{300, 3}})
    for (const int bits : {1, 2, 3, 4, 8})
      for (const Rounding rounding : {Rounding::stochastic, Rounding::nearest, Rounding::dithered})
        for (const bool with_sign : {false, true})
          for (const int64_t units : {1, 2}) {
            CAPTURE(shape);
            CAPTURE(bits);
            CAPTURE(with_sign);
            QuantizeOptions options;
            options.bits = bits;
            options.group = 64;
            options.rounding = rounding;
            options.seed = 5;
            check_slices(options, waves_with_nan(shape, DType::f32), with_sign, units);
          }
  QuantizeOptions options;
  options.group = 64;
  check_slices(options, waves_with_nan({12, 8, 8, 20}, DType::f64), true, 1);
}

TEST_CASE("groups along rows need the whole tensor") {
  QuantizeOptions options;
  options.axis = GroupAxis::row;
  CHECK(Quantizer(options).pack_slices(Tensor::empty({16, 8, 8, 4}), {}) == nullptr);
}

TEST_CASE("slices that do not fit say so") {
  const Quantizer quantizer;  // groups of 256 rows: 4 items
  const auto slices = quantizer.pack_slices(Tensor::empty({16, 8, 8, 4}), {});
  REQUIRE(slices != nullptr);
  CHECK(slices->unit() == 4);
  CHECK_THROWS_WITH_AS(slices->add(Tensor::zeros({4, 8, 8, 8}), {}),
                       doctest::Contains("[quantize] expected contiguous rows"), Error);
  CHECK_THROWS_WITH_AS(slices->add(Tensor::zeros({3, 8, 8, 4}), {}),
                       doctest::Contains("[quantize] expected slices of multiples of 4 rows"),
                       Error);
}

#include "compress/quantize/rounding_schemes.h"

#include <doctest/doctest.h>

#include <cmath>

#include "compress/quantize/quantize.h"
#include "core/rng.h"
#include "ops/dense/bitmask.h"
#include "tests/integration/bias.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

Tensor normals(const Shape& shape, uint64_t seed) {
  const Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<float>()[i] = normal({seed, 0}, static_cast<uint64_t>(i));
  return x;
}

struct Moments {
  double chi_square = 0;  // of the mean error: about 1 without bias
  double variance = 0;    // of an element, on average
};

Moments moments_of(const RoundingScheme& scheme, const Tensor& x, const Sign* sign = nullptr) {
  constexpr uint64_t kDraws = 200;
  Bias bias(x.to_vector());
  Moments moments;
  for (uint64_t step = 0; step < kDraws; ++step) {
    SaveInfo info;
    info.step = step;
    info.sign = sign;
    const Tensor y = round_trip(scheme, x, 1, info);
    bias.add(y.to_vector());
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double error = y.item(i) - x.item(i);
      moments.variance +=
          error * error / static_cast<double>(kDraws) / static_cast<double>(x.numel());
    }
  }
  moments.chi_square = bias.chi_square();
  return moments;
}

}  // namespace

TEST_CASE("every scheme is unbiased but averaging") {
  const Tensor x = normals({512, 4}, 1);
  const Sign sign{ops::rectify(x, 0, true).mask, 0};
  for (const int bits : {2, 4})
    for (const RoundingScheme& scheme : rounding_schemes(bits)) {
      CAPTURE(scheme.name());
      CAPTURE(bits);
      const Moments moments = moments_of(scheme, x, &sign);
      if (scheme.unbiased())
        CHECK(moments.chi_square < 1.2);
      else
        CHECK(moments.chi_square > 10);
    }
}

TEST_CASE("what others are compared with is the quantizer, bit for bit") {
  const Tensor x = normals({600, 5}, 2);
  const Sign sign{ops::rectify(x, 0, true).mask, 0};
  for (const int bits : {2, 4})
    for (const bool split : {false, true}) {
      CAPTURE(bits);
      CAPTURE(split);
      QuantizeOptions options;
      options.bits = bits;
      options.seed = 9;
      SaveInfo info;
      info.seq = 3;
      if (split) info.sign = &sign;
      const RoundingScheme scheme{RoundingScheme::uniform, bits, 256, GroupAxis::column, 0, split};
      CHECK(round_trip(scheme, x, 9, info).to_vector() ==
            Quantizer(options).pack(x, info)->unpack().to_vector());
    }
}

TEST_CASE(
    "without a dither that stays, the variance is a twelfth of the squared step, not a sixth") {
  const Tensor x = Tensor::empty({256, 1});
  for (int64_t i = 0; i < 256; ++i) x.mut<float>()[i] = static_cast<float>(i) / 85;
  RoundingScheme scheme;
  scheme.bits = 2;  // the step is 1, up to bf16's rounding
  CHECK(moments_of(scheme, x).variance == doctest::Approx(1. / 6).epsilon(0.03));
  scheme.kind = RoundingScheme::subtractive;
  CHECK(moments_of(scheme, x).variance == doctest::Approx(1. / 12).epsilon(0.03));
}

TEST_CASE("signs in codes: no element is moved towards the other class by more than its own step") {
  const Tensor x = normals({512, 4}, 3);
  const Sign sign{ops::rectify(x, 0, true).mask, 0};
  RoundingScheme scheme{RoundingScheme::uniform, 4, 256, GroupAxis::column, 0, true};
  SaveInfo info;
  info.sign = &sign;
  const Tensor y = round_trip(scheme, x, 1, info);
  for (int64_t i = 0; i < x.numel(); ++i)
    CHECK((x.data<float>()[i] > 0) == (y.data<float>()[i] > 0));
  CHECK(RoundTripCodec(scheme, 1).pack(x, info)->unpack_sign().to_vector() ==
        sign.mask.to_vector());
}

TEST_CASE("levels lie where they take most variance away") {
  // All of the mass around 1/4 and at the ends: one level goes there.
  std::vector<double> bins(512, 0);
  bins[0] = bins[511] = 1;
  for (size_t i = 120; i < 136; ++i) bins[i] = 10;
  CHECK(fit_levels(bins, 3)[1] == doctest::Approx(0.25).epsilon(0.05));
  const std::vector<float> even = fit_levels(std::vector<double>(512, 1), 5);
  for (size_t i = 0; i < 5; ++i)
    CHECK(static_cast<double>(even[i]) ==
          doctest::Approx(0.25 * static_cast<double>(i)).epsilon(0.01));
}

TEST_CASE("bits of an element count codes, metadata and masks") {
  const std::vector<RoundingScheme> all = rounding_schemes(2);
  CHECK(all[0].bits_per_element() == 2.125);
  CHECK(all[0].bits_per_element(true) == 3.125);
  CHECK(all[1].bits_per_element(true) == 2.25);
  RoundingScheme outliers{RoundingScheme::outliers, 2, 256, GroupAxis::column, 4, false};
  CHECK(outliers.bits_per_element() == 2.5);
  CHECK_THROWS_WITH_AS(round_trip(all[0], Tensor::empty({4}, DType::f64), 1, {}),
                       doctest::Contains("[round_trip] expected"), Error);
}

// Stochastic rounding as statistics. Seeds are fixed, so a failure is a defect and not bad luck.
#include <doctest/doctest.h>

#include <cmath>

#include "compress/quantize/quantize.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

struct Moments {
  std::vector<double> mean, variance;
};

// Over `draws` streams that differ in the step.
Moments moments(const QuantizeOptions& options, const std::vector<float>& x, const Shape& shape,
                int draws) {
  const Quantizer codec(options);
  const Tensor input = Tensor::from(x, shape);
  Moments m{std::vector<double>(x.size()), std::vector<double>(x.size())};
  const Tensor out = Tensor::empty(shape);
  for (int draw = 0; draw < draws; ++draw) {
    const auto packed = codec.pack(input, entry(5, static_cast<uint64_t>(draw)));
    static_cast<const Quantized&>(*packed).unpack_into(out);
    for (size_t i = 0; i < x.size(); ++i) {
      const double error = static_cast<double>(out.data<float>()[i]) - static_cast<double>(x[i]);
      m.mean[i] += error / draws;
      m.variance[i] += error * error / draws;
    }
  }
  return m;
}

}  // namespace

TEST_CASE("each element is unbiased and has the variance f (1 - f) scale^2") {
  constexpr int draws = 3000;
  const Shape shape{128, 9};
  const std::vector<float> x = normals(shape.numel(), 21, 2);
  for (GroupAxis axis : {GroupAxis::column, GroupAxis::row})
    for (int bits : {1, 2, 3, 4, 8, 12}) {
      CAPTURE(bits);
      CAPTURE(static_cast<int>(axis));
      const QuantizeOptions options{bits, 256, axis, Rounding::stochastic, 77};
      const Moments m = moments(options, x, shape, draws);
      const PackedCase one = pack(Quantizer(options), x, shape);
      const GroupLayout& layout = one.quantized().layout();
      const double limit = bonferroni(static_cast<double>(x.size()));
      double z_sum = 0, observed = 0, expected = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const int64_t at = static_cast<int64_t>(i);
        const int64_t group = at / layout.cols / layout.group_rows;
        const int64_t column = layout.shared ? 0 : at % layout.cols;
        const double scale = one.meta(group, column, true), lo = one.meta(group, column, false);
        const double t = (static_cast<double>(x[i]) - lo) / scale, f = t - std::floor(t);
        const double variance = f * (1 - f) * scale * scale;
        // What u's 8 bits and f32 leave of bias.
        const double slack = scale * 0x1p-9 + std::abs(static_cast<double>(x[i])) * 0x1p-22;
        const double z = (m.mean[i]) / (std::sqrt(variance / draws) + slack / limit);
        REQUIRE(std::abs(z) < limit);
        z_sum += z;
        observed += m.variance[i];
        expected += variance;
      }
      // The elements together: a common drift that no single one shows, and the mean variance.
      CHECK(std::abs(z_sum) / std::sqrt(static_cast<double>(x.size())) < 5);
      CHECK(observed == doctest::Approx(expected).epsilon(0.01));
    }
}

TEST_CASE("errors of different elements are uncorrelated") {
  constexpr int draws = 4000;
  const Shape shape{64, 4};
  const std::vector<float> x(256, 0.3f);
  std::vector<float> input = x;
  input[0] = input[1] = input[2] = input[3] = 0;  // the groups' minima
  for (size_t i = 4; i < 8; ++i) input[i] = 1;
  const Quantizer codec({1});
  const Tensor tensor = Tensor::from(input, shape);
  std::vector<std::vector<double>> errors;
  for (int draw = 0; draw < draws; ++draw)
    errors.push_back(codec.pack(tensor, entry(static_cast<uint64_t>(draw)))->unpack().to_vector());
  // Rows 0 to 3 of 8 share a word of Philox. Columns 0 and 1 share a call, columns 1 and 2 do not.
  const std::vector<std::pair<size_t, size_t>> pairs = {
      {8, 12}, {12, 16}, {8, 9}, {9, 10}, {8, 40}, {32, 64}, {60, 64}, {8, 200}, {100, 101}};
  for (const auto& [a, b] : pairs) {
    double ma = 0, mb = 0, ab = 0, aa = 0, bb = 0;
    for (const auto& e : errors) ma += e[a] / draws, mb += e[b] / draws;
    for (const auto& e : errors) {
      ab += (e[a] - ma) * (e[b] - mb);
      aa += (e[a] - ma) * (e[a] - ma);
      bb += (e[b] - mb) * (e[b] - mb);
    }
    CHECK(std::abs(ab / std::sqrt(aa * bb)) * std::sqrt(draws) < 4.5);
  }
}

TEST_CASE("the dither takes all its values equally often") {
  // Element x = k / 16 of a one-bit group with scale 1 rounds up in k / 16 of the draws.
  std::vector<float> x(64 * 16, 0);
  for (size_t r = 0; r < 64; ++r)
    for (size_t c = 0; c < 16; ++c) x[r * 16 + c] = static_cast<float>(c) / 16;
  for (size_t c = 0; c < 16; ++c) x[c] = 0, x[16 + c] = 1;
  constexpr int draws = 500;
  const Quantizer codec({1});
  const Tensor tensor = Tensor::from(x, {64, 16});
  std::vector<double> ups(16, 0);
  for (int draw = 0; draw < draws; ++draw) {
    const std::vector<double> y =
        codec.pack(tensor, entry(static_cast<uint64_t>(draw)))->unpack().to_vector();
    for (size_t i = 32; i < y.size(); ++i) ups[i % 16] += y[i];
  }
  constexpr double n = 62.0 * draws;
  for (size_t c = 0; c < 16; ++c) {
    const double p = static_cast<double>(c) / 16;
    CHECK(std::abs(ups[c] - n * p) <= 4.5 * std::sqrt(n * p * (1 - p)));
  }
}

TEST_CASE("nearest rounding errs by at most half a step and less than stochastic rounding") {
  const Shape shape{256, 32};
  const std::vector<float> x = normals(shape.numel(), 31);
  for (int bits : {1, 2, 4, 6, 8}) {
    CAPTURE(bits);
    double nearest = 0, stochastic = 0;
    for (Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      const PackedCase result = pack(Quantizer({bits, 256, GroupAxis::column, rounding}), x, shape);
      const std::vector<double> y = result.values();
      for (size_t i = 0; i < x.size(); ++i) {
        const double error = std::abs(y[i] - static_cast<double>(x[i]));
        const double step = result.meta(0, static_cast<int64_t>(i) % 32, true);
        const double bound = rounding == Rounding::nearest ? step / 2 : step;
        REQUIRE(error <= bound * (1 + 1e-6) + 1e-6);
        (rounding == Rounding::nearest ? nearest : stochastic) += error * error;
      }
    }
    CHECK(nearest < 0.75 * stochastic);
  }
}

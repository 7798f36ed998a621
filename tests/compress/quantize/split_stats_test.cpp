// Split groups as statistics. Seeds are fixed, so a failure is a defect and not bad luck.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/compress/quantize/split_samples.h"

using namespace frugal;
using namespace frugal::compress;

TEST_CASE("each element of both classes is unbiased and has the variance f (1 - f) step^2") {
  constexpr int draws = 1000;
  const Shape shape{128, 6};
  for (Bits kind : {Bits::sign, Bits::random})
    for (int bits : {2, 3, 4, 8})
      for (double slope : {0.0, 0.3}) {
        const bool keeps_mean = bits == 2 && slope == 0;  // class 0 does
        CAPTURE(static_cast<int>(kind));
        CAPTURE(bits);
        CAPTURE(slope);
        std::vector<float> x = normals(shape.numel(), 21, 2);
        for (size_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(i % 6) - 2.5f;
        const Tensor input = Tensor::from(x, shape), mask = mask_of(x, shape, kind);
        QuantizeOptions options;
        options.bits = bits;
        options.seed = 77;
        const Quantizer codec(options);
        std::vector<double> mean(x.size()), square(x.size());
        const Tensor out = Tensor::empty(shape);
        for (int draw = 0; draw < draws; ++draw) {
          const SplitCase one =
              split_pack(codec, input, mask, slope, entry(5, static_cast<uint64_t>(draw)));
          one.quantized().unpack_into(out);
          for (size_t i = 0; i < x.size(); ++i) {
            const double error =
                static_cast<double>(out.data<float>()[i]) - static_cast<double>(x[i]);
            mean[i] += error / draws;
            square[i] += error * error / draws;
          }
        }
        const std::vector<SplitGroup> groups =
            split_pack(codec, input, mask, slope, entry(5)).groups();
        const double limit = bonferroni(static_cast<double>(x.size()));
        double z_sum[2] = {}, observed[2] = {}, expected[2] = {}, count[2] = {};
        for (size_t i = 0; i < x.size(); ++i) {
          const bool k = bit_at(mask, shape, static_cast<int64_t>(i));
          if (keeps_mean && !k) continue;
          const double step = groups[i].step(k), lo = static_cast<double>(groups[i].of[k].lo);
          const double t = (static_cast<double>(x[i]) - lo) / step, f = t - std::floor(t);
          const double variance = f * (1 - f) * step * step;
          // What u's 8 bits and f32 leave of bias.
          const double slack = step * 0x1p-9 + std::abs(static_cast<double>(x[i])) * 0x1p-22;
          const double z = mean[i] / (std::sqrt(variance / draws) + slack / limit);
          REQUIRE(std::abs(z) < limit);
          z_sum[k] += z, count[k] += 1;
          observed[k] += square[i], expected[k] += variance;
        }
        for (size_t k = keeps_mean ? 1 : 0; k < 2; ++k) {
          // The elements of a class together: a common drift, and the mean variance.
          REQUIRE(count[k] > 20);
          CHECK(std::abs(z_sum[k]) / std::sqrt(count[k]) < 5);
          CHECK(observed[k] == doctest::Approx(expected[k]).epsilon(0.02));
        }
      }
}

TEST_CASE("with 2 bits and slope 0, class 0 keeps its mean and class 1 has three codes") {
  const Shape shape{640, 37};  // the last group is shorter, the last vector overlaps another
  std::vector<float> x = normals(shape.numel(), 23);
  for (size_t i = 0; i < x.size(); ++i) x[i] += 0.03f * static_cast<float>(i % 37) - 0.5f;
  for (Bits kind : {Bits::sign, Bits::random})
    for (Rounding rounding : {Rounding::stochastic, Rounding::dithered, Rounding::nearest}) {
      CAPTURE(static_cast<int>(kind));
      CAPTURE(static_cast<int>(rounding));
      const Tensor mask = mask_of(x, shape, kind);
      const SplitCase result =
          split_pack(Quantizer({2, 256, GroupAxis::column, rounding}), x, shape, mask, 0);
      REQUIRE(same_bytes(result.quantized().unpack_sign(), mask));
      const std::vector<double> y = result.packed.values();
      for (int64_t row = 0; row < 640; row += 256)
        for (int64_t column = 0; column < 37; ++column) {
          const SplitGroup group = result.group_of(row, column);
          REQUIRE(group.codes.count[0] == 1);
          REQUIRE(group.codes.count[1] == 3);
          double sum = 0, count = 0, least = 0, most = -1e9;
          for (int64_t r = row; r < std::min<int64_t>(row + 256, 640); ++r) {
            const int64_t i = r * 37 + column;
            if (bit_at(mask, shape, i)) continue;
            const auto value = static_cast<double>(x[static_cast<size_t>(i)]);
            sum += value, ++count;
            least = std::min(least, value), most = std::max(most, value);
            REQUIRE(y[static_cast<size_t>(i)] == static_cast<double>(group.of[0].lo));
          }
          // bf16, and the steps in which elements are added.
          const double mean = sum / count, kept = static_cast<double>(group.of[0].lo);
          REQUIRE(std::abs(kept - mean) <= std::abs(mean) * 0x1p-8 + (most - least) / 255);
        }
    }
}

TEST_CASE("class 0 keeps codes where class 1 needs none, gradients pass it, or there are 3 bits") {
  const Shape shape{256, 2};
  const std::vector<float> x = normals(shape.numel(), 29);
  const auto codes_of_class0 = [&](Bits kind, int bits, double slope) {
    return split_pack(Quantizer({bits}), x, shape, mask_of(x, shape, kind), slope)
        .group_of(0, 0)
        .codes.count[0];
  };
  CHECK(codes_of_class0(Bits::sign, 2, 0) == 1);
  CHECK(codes_of_class0(Bits::clear, 2, 0) == 4);
  CHECK(codes_of_class0(Bits::sign, 2, 0.01) == 2);
  CHECK(codes_of_class0(Bits::sign, 3, 0) == 2);
}

TEST_CASE("at slope 0 nearly all codes serve the active side") {
  // The active half of normal values has half the range, so splitting makes its errors smaller.
  const Shape shape{256, 64};
  const std::vector<float> x = normals(shape.numel(), 31);
  const Tensor mask = mask_of(x, shape, Bits::sign);
  const auto active_error = [&](const std::vector<double>& y) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i] > 0) sum += std::pow(y[i] - static_cast<double>(x[i]), 2);
    return sum;
  };
  for (int bits : {3, 4, 8}) {
    CAPTURE(bits);
    const Quantizer codec({bits});
    const double plain = active_error(pack(codec, x, shape).values());
    const double split = active_error(split_pack(codec, x, shape, mask, 0).packed.values());
    const double equal = active_error(split_pack(codec, x, shape, mask, 1).packed.values());
    CHECK(split < 0.75 * plain);
    CHECK(split < equal);
  }
}

TEST_CASE("codes are shared out by range and slope") {
  const auto codes = [](float range0, float range1, double slope, int bits) {
    const SplitCodes c = split_codes(range0, range1, split_weights(slope), bits);
    return std::pair{c.count[0], c.count[1]};
  };
  using Pair = std::pair<int, int>;
  CHECK(codes(1, 1, 0, 4) == Pair{2, 14});
  CHECK(codes(1, 1, 1, 4) == Pair{8, 8});
  CHECK(codes(3, 1, 1, 4) == Pair{12, 4});
  CHECK(codes(1, 1, 1.0 / 3, 4) == Pair{4, 12});
  CHECK(codes(1, 1, -1.0 / 3, 4) == Pair{4, 12});
  CHECK(codes(1, 1, 3, 4) == Pair{12, 4});
  CHECK(codes(1, 1, 1e300, 4) == Pair{14, 2});
  CHECK(codes(1, 1, 1e-300, 4) == Pair{2, 14});
  CHECK(codes(0x1p127f, 0x1p127f, 1, 8) == Pair{128, 128});
  CHECK(codes(0x1p-110f, 0x1p-110f, 1, 8) == Pair{128, 128});
  CHECK(codes(0x1p127f, 0x1p-110f, 1, 8) == Pair{254, 2});
  CHECK(codes(0x1p-110f, 0x1p127f, 1, 8) == Pair{2, 254});
  for (double slope : {0.0, 0.5, 1.0, 7.0}) {
    CHECK(codes(1, 1000, slope, 2) == Pair{2, 2});
    CHECK(codes(0, 1, slope, 4) == Pair{1, 15});
    CHECK(codes(1, 0, slope, 4) == Pair{15, 1});
    CHECK(codes(-0.0f, 1, slope, 4) == Pair{0, 16});
    CHECK(codes(1, -0.0f, slope, 4) == Pair{16, 0});
    CHECK(codes(0, 0, slope, 4) == Pair{1, 1});
    CHECK(codes(0, -0.0f, slope, 4) == Pair{1, 0});
    CHECK(codes(-0.0f, 0, slope, 4) == Pair{0, 1});
    CHECK(codes(std::nanf(""), std::nanf(""), slope, 4) == Pair{1, 1});
  }
}

TEST_CASE("nearest rounding errs by at most half a step of the class") {
  const Shape shape{256, 16};
  const std::vector<float> x = normals(shape.numel(), 31);
  const Tensor mask = mask_of(x, shape, Bits::sign);
  for (int bits : {2, 4, 6, 8}) {
    const Quantizer codec({bits, 256, GroupAxis::column, Rounding::nearest});
    const SplitCase result = split_pack(codec, x, shape, mask, 0.2);
    const std::vector<double> y = result.packed.values();
    const std::vector<SplitGroup> groups = result.groups();
    for (size_t i = 0; i < x.size(); ++i)
      REQUIRE(std::abs(y[i] - static_cast<double>(x[i])) <=
              groups[i].step(x[i] > 0) / 2 * (1 + 1e-6) + 1e-6);
  }
}

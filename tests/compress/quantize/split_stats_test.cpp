// Split groups as statistics. Seeds are fixed, so a failure is a defect and not bad luck.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/compress/quantize/split_samples.h"

using namespace frugal;
using namespace frugal::compress;

TEST_CASE("each element of both classes is unbiased and has the variance of its rounding") {
  const Shape shape{128, 6};
  constexpr double every = kDrawEvery;
  for (Rounding rounding : {Rounding::stochastic, Rounding::dithered})
    for (Bits kind : {Bits::sign, Bits::random})
      for (int bits : {2, 3, 4, 8})
        for (double slope : {0.0, 0.3}) {
          const bool draws = bits == 2 && slope == 0;
          const int count_of_draws = draws ? 4000 : 1000;
          CAPTURE(static_cast<int>(rounding));
          CAPTURE(static_cast<int>(kind));
          CAPTURE(bits);
          CAPTURE(slope);
          std::vector<float> x = normals(shape.numel(), 21, 2);
          for (size_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(i % 6) - 2.5f;
          const Tensor input = Tensor::from(x, shape), mask = mask_of(x, shape, kind);
          QuantizeOptions options;
          options.bits = bits;
          options.seed = 77;
          options.rounding = rounding;
          const Quantizer codec(options);
          std::vector<double> mean(x.size()), square(x.size());
          const Tensor out = Tensor::empty(shape);
          for (int draw = 0; draw < count_of_draws; ++draw) {
            const SplitCase one =
                split_pack(codec, input, mask, slope, entry(5, static_cast<uint64_t>(draw)));
            one.quantized().unpack_into(out);
            for (size_t i = 0; i < x.size(); ++i) {
              const double error =
                  static_cast<double>(out.data<float>()[i]) - static_cast<double>(x[i]);
              mean[i] += error / count_of_draws;
              square[i] += error * error / count_of_draws;
            }
          }
          const std::vector<SplitGroup> groups =
              split_pack(codec, input, mask, slope, entry(5)).groups();
          const double limit = bonferroni(static_cast<double>(x.size()));
          double z_sum[2] = {}, observed[2] = {}, expected[2] = {}, count[2] = {};
          for (size_t i = 0; i < x.size(); ++i) {
            const bool k = bit_at(mask, shape, static_cast<int64_t>(i));
            const double range = static_cast<double>(groups[i].of[k].range);
            const double lo = static_cast<double>(groups[i].of[k].lo);
            const double value = static_cast<double>(x[i]);
            // The variance of rounding to `n` codes.
            const auto variance_of = [&](int n) {
              const double step = range / (n - 1), t = (value - lo) / step, f = t - std::floor(t);
              return rounding == Rounding::dithered ? step * step / 12 : f * (1 - f) * step * step;
            };
            double variance = variance_of(std::max(groups[i].codes.count[k], 2));
            if (draws) {
              REQUIRE(groups[i].draws);
              const double away = value - groups[i].place(k);
              const double known = k ? 1 - 1 / every : 1 / every;
              variance = (variance_of(3) + away * away * (1 - known)) / known;
            }
            // What u's 8 bits and f32 leave of bias.
            const double slack = range * 0x1p-9 + (std::abs(value) + range * every) * 0x1p-22;
            const double z = mean[i] / (std::sqrt(variance / count_of_draws) + slack / limit);
            REQUIRE(std::abs(z) < limit);
            z_sum[k] += z, count[k] += 1;
            observed[k] += square[i], expected[k] += variance;
          }
          for (size_t k = 0; k < 2; ++k) {
            // The elements of a class together: a common drift, and the mean variance.
            REQUIRE(count[k] > 20);
            CHECK(std::abs(z_sum[k]) / std::sqrt(count[k]) < 5);
            CHECK(observed[k] == doctest::Approx(expected[k]).epsilon(0.02));
          }
        }
}

TEST_CASE("each row is drawn as often as the others, whatever its neighbours are") {
  constexpr int draws = 20000;
  constexpr double p = 1.0 / kDrawEvery;
  struct Place {
    int64_t row, column;
  };
  // Neighbours of the first place, in each direction, and a place that is far.
  constexpr Place places[] = {{16, 4}, {16, 5}, {16, 3}, {24, 4}, {8, 4}, {24, 5}, {400000, 77}};
  double alone[7] = {}, both[7] = {};
  for (int draw = 0; draw < draws; ++draw) {
    const CodeStream stream = code_stream(3, entry(2, static_cast<uint64_t>(draw)));
    const bool first = is_drawn(stream, places[0].row, places[0].column);
    int in_block = 0;
    for (int64_t r = 0; r < 8; ++r) in_block += is_drawn(stream, 16 + r, 4);
    REQUIRE(in_block <= 1);
    for (size_t i = 0; i < 7; ++i) {
      const bool drawn = is_drawn(stream, places[i].row, places[i].column);
      alone[i] += drawn, both[i] += drawn && first;
    }
  }
  const double limit = bonferroni(13);
  for (size_t i = 0; i < 7; ++i) {
    CHECK(std::abs(alone[i] - draws * p) < limit * std::sqrt(draws * p * (1 - p)));
    if (i == 0) continue;
    CHECK(std::abs(both[i] - draws * p * p) < limit * std::sqrt(draws * p * p));
  }
}

TEST_CASE("where rows are drawn, all codes but one are class 0's there and class 1's elsewhere") {
  const Shape shape{640, 37};  // the last group is shorter, the last vector overlaps another
  std::vector<float> x = normals(shape.numel(), 23);
  for (size_t i = 0; i < x.size(); ++i) x[i] += 0.03f * static_cast<float>(i % 37) - 0.5f;
  for (Bits kind : {Bits::sign, Bits::random})
    for (Rounding rounding : {Rounding::stochastic, Rounding::dithered}) {
      CAPTURE(static_cast<int>(kind));
      CAPTURE(static_cast<int>(rounding));
      const Tensor mask = mask_of(x, shape, kind);
      const SplitCase result =
          split_pack(Quantizer({2, 256, GroupAxis::column, rounding}), x, shape, mask, 0);
      REQUIRE(same_bytes(result.quantized().unpack_sign(), mask));
      CHECK(result.quantized().serves_one_op());
      const std::vector<double> y = result.packed.values();
      const std::vector<SplitGroup> groups = result.groups();
      for (size_t i = 0; i < x.size(); ++i) {
        const SplitGroup& group = groups[i];
        REQUIRE(group.draws);
        const bool k = bit_at(mask, shape, static_cast<int64_t>(i));
        const double factor = static_cast<double>(drawn_factor(k ? 1 : 0));
        const double away = y[i] - group.place(k);
        if (k == group.drawn) {
          REQUIRE(std::abs(away) < 1e-6);
        } else {
          const double error = group.place(k) + away / factor - static_cast<double>(x[i]);
          const double step = group.step(k);
          REQUIRE(std::abs(error) <=
                  (rounding == Rounding::dithered ? step / 2 : step) * (1 + 1e-5) + 1e-6);
        }
      }
    }
}

TEST_CASE("no row is drawn where a class has one value, gradients pass class 0, or bits suffice") {
  const Shape shape{256, 2};
  const std::vector<float> x = normals(shape.numel(), 29);
  const auto group_of = [&](Bits kind, int bits, double slope,
                            Rounding rounding = Rounding::stochastic) {
    return split_pack(Quantizer({bits, 256, GroupAxis::column, rounding}), x, shape,
                      mask_of(x, shape, kind), slope)
        .group_of(0, 0);
  };
  CHECK(group_of(Bits::sign, 2, 0).draws);
  CHECK(!group_of(Bits::clear, 2, 0).draws);
  CHECK(group_of(Bits::clear, 2, 0).codes.count[0] == 4);
  CHECK(!group_of(Bits::sign, 2, 0.01).draws);
  CHECK(group_of(Bits::sign, 2, 0.01).codes.count[0] == 2);
  CHECK(!group_of(Bits::sign, 3, 0).draws);
  CHECK(group_of(Bits::sign, 3, 0).codes.count[0] == 2);
  CHECK(!group_of(Bits::sign, 2, 0, Rounding::nearest).draws);
}

TEST_CASE("no row is drawn where the values of a drawn row could leave the dtype") {
  const SplitWeights single = split_weights(0), half = split_weights(0, DType::f16);
  CHECK(draws_rows(single, 2, 0x1p120f, 1));
  CHECK(!draws_rows(single, 2, 0x1.02p120f, 1));
  CHECK(draws_rows(half, 2, 512, 1));
  CHECK(!draws_rows(half, 2, 514, 1));
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

// Formulas of ActNN's sensitivities against cases worked by hand.
#include "compress/policies/actnn_sensitivity.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "compress/policies/allocate.h"
#include "compress/quantize/quantize_split.h"
#include "core/parallel.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

double cost(const std::vector<double>& weights, const std::vector<int>& bits) {
  double sum = 0;
  for (size_t i = 0; i < bits.size(); ++i) sum += weights[i] * step_variance(bits[i]);
  return sum;
}

}  // namespace

TEST_CASE("ranges of samples with few rows are those of columns, too") {
  // Two samples of 16 rows and 2 columns: column 0 rises by n + 1 a row, column 1 is constant.
  std::vector<float> values;
  for (int n = 0; n < 2; ++n)
    for (int r = 0; r < 16; ++r) {
      values.push_back(static_cast<float>(r * (n + 1)));
      values.push_back(1e6f);
    }
  const Tensor x = Tensor::from(values, {2, 16, 2});
  const GroupRanges ranges = group_ranges(x, samples_of(x.shape(), false), 256);
  REQUIRE(ranges.samples.size() == 2);
  CHECK(ranges.samples[0] == doctest::Approx(15.0 * 15 / 2));
  CHECK(ranges.samples[1] == doctest::Approx(30.0 * 30 / 2));
  REQUIRE(ranges.channels.size() == 2);
  CHECK(ranges.channels[0] == doctest::Approx((15.0 * 15 + 30 * 30) / 2));
  CHECK(ranges.channels[1] == 0);
}

TEST_CASE("ranges of samples with many rows are those of columns") {
  // 40 rows of 2 columns a sample: column 0 rises by 1 a row, column 1 is the sample's number.
  std::vector<float> values;
  for (int n = 0; n < 3; ++n)
    for (int r = 0; r < 40; ++r) {
      values.push_back(static_cast<float>(r * (n + 1)));
      values.push_back(static_cast<float>(n));
    }
  const Tensor x = Tensor::from(values, {3, 40, 2});
  const Samples samples = samples_of(x.shape(), false);
  const GroupRanges whole = group_ranges(x, samples, 256);
  CHECK(whole.samples[0] == doctest::Approx(39.0 * 39 / 2));
  CHECK(whole.samples[2] == doctest::Approx(117.0 * 117 / 2));
  CHECK(whole.channels[0] == doctest::Approx((1 + 4 + 9) / 3.0 * 39 * 39));
  CHECK(whole.channels[1] == 0);
  // Groups of 32 rows and of the 8 that are left.
  CHECK(group_ranges(x, samples, 32).samples[0] ==
        doctest::Approx((32 * 31.0 * 31 + 8 * 7.0 * 7) / 80));
}

TEST_CASE("ranges are of all dtypes, and of finite groups") {
  std::vector<float> values = normals(4 * 64 * 20, 1);
  Tensor x = Tensor::from(values, {4, 64, 20});
  const Samples samples = samples_of(x.shape(), false);
  const GroupRanges single = group_ranges(x, samples, 64);
  const GroupRanges twofold = group_ranges(
      Tensor::from(std::vector<double>(values.begin(), values.end()), x.shape()), samples, 64);
  CHECK(single.samples == twofold.samples);
  const int threads = num_threads();
  set_num_threads(3);
  CHECK(group_ranges(x, samples, 64).channels == single.channels);
  set_num_threads(threads);
  x.mut<float>()[3] = INFINITY;
  const GroupRanges broken = group_ranges(x, samples, 64);
  CHECK(std::isfinite(broken.samples[0]));
  CHECK(broken.samples[0] < single.samples[0]);
  CHECK(broken.samples[1] == single.samples[1]);
  const Tensor planned = Tensor::empty(x.shape(), DType::f32, kMeta);
  CHECK(group_ranges(planned, samples, 64).samples == std::vector<double>(4, 1));
}

TEST_CASE("samples of a tensor") {
  const Samples images = samples_of({8, 4, 4, 3}, false);
  CHECK(images.count == 8);
  CHECK(images.size() == 48);
  CHECK(images.rows() == 16);
  // 64 rows for a sign, and what is left over.
  const Samples signs = samples_of({10, 4, 4, 3}, true);
  CHECK(signs.each == 4);
  CHECK(signs.count == 2);
  CHECK(signs.end(1) == 480);
  CHECK(samples_of({16, 7, 7, 3}, true).each == 8);  // a multiple of 8 rows
  // At least 16 rows.
  const Samples nodes = samples_of({5000, 16}, false);
  CHECK(nodes.each == 16);
  CHECK(nodes.count == 312);
  CHECK(nodes.end(311) == 5000 * 16);
  CHECK(samples_of({46, 1, 1, 512}, false).each == 16);
  CHECK(samples_of({50, 3, 3, 8}, false).each == 2);
  CHECK(samples_of({7, 512}, false).count == 1);
  CHECK(samples_of({20000}, false).count == 1);
  CHECK(samples_of({}, false).count == 1);
  CHECK(samples_of({0, 4}, false).count == 1);
}

TEST_CASE("bits go to the samples whose ranges are largest") {
  // With weights 100, 1, 1 the steps 1 to 2, 2 to 3 and 3 to 4 of the first are worth 88.9, 9.1 and
  // 1.6, and the first step of each other one 0.89.
  const std::vector<double> weights{1, 100, 1};
  CHECK(spread_bits(weights, 0, 1, 8, step_variance) == std::vector<int>{1, 1, 1});
  CHECK(spread_bits(weights, 3, 1, 8, step_variance) == std::vector<int>{1, 4, 1});
  CHECK(spread_bits(weights, 5, 1, 8, step_variance) == std::vector<int>{2, 4, 2});
  CHECK(spread_bits(weights, 21, 1, 8, step_variance) == std::vector<int>{8, 8, 8});
  CHECK(spread_bits(weights, 2, 2, 8, step_variance) == std::vector<int>{2, 4, 2});
  const std::vector<int64_t> extras{0, 1, 3};
  const std::vector<double> costs = spread_costs(weights, extras, 1, 8, step_variance);
  CHECK(costs[0] == doctest::Approx(34));
  CHECK(costs[1] == doctest::Approx((2 + 100.0 / 9) / 3));
  CHECK(costs[2] == doctest::Approx((2 + 100.0 / 225) / 3));
}

TEST_CASE("no other bits of samples cost less") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<double> weights;
    for (uint64_t i = 0; i < 4; ++i) weights.push_back(std::exp(3 * normal({seed, 1}, i)));
    for (const int64_t extra : {1, 2, 4, 7}) {
      double best = 1e300;
      for (int code = 0; code < 256; ++code) {
        const std::vector<int> bits{1 + code % 4, 1 + code / 4 % 4, 1 + code / 16 % 4,
                                    1 + code / 64};
        if (std::accumulate(bits.begin(), bits.end(), int64_t{0}) == 4 + extra)
          best = std::min(best, cost(weights, bits));
      }
      const std::vector<int> bits = spread_bits(weights, extra, 1, 4, step_variance);
      CHECK(std::accumulate(bits.begin(), bits.end(), int64_t{0}) == 4 + extra);
      CHECK(cost(weights, bits) == doctest::Approx(best));
    }
  }
}

TEST_CASE("widths that carry a sign are convex too, as the spreading of bits wants") {
  for (const double slope : {0.0, 0.3, 1.0})
    for (int bits = 3; bits < 16; ++bits)
      CHECK(split_variance(slope, bits - 1) - split_variance(slope, bits) >=
            split_variance(slope, bits) - split_variance(slope, bits + 1));
}

TEST_CASE("the variance of a dense layer's gradient is as foretold") {
  // dW = dy^T h with sample n's h in bits[n]: sum_n fan / 6 mean R_n^2 |dy_n|^2 / (2^b - 1)^2.
  const int64_t n = 64, width = 128;
  const int outputs = 3;
  std::vector<float> h(static_cast<size_t>(n * width)), dy = normals(n * outputs, 2);
  for (size_t i = 0; i < h.size(); ++i) h[i] = uniform({7, 0}, i);
  const Tensor x = Tensor::from(h, {n, width});
  // All rows are one sample, and a group is a column of it.
  const Samples samples{1, n, width, width, n * width};
  const GroupRanges ranges = group_ranges(x, samples, 256);
  const Quantizer quantizer({2});
  double foretold = 0;
  for (const float each : dy)
    foretold +=
        static_cast<double>(width) / 6 * ranges.samples.at(0) * each * each * step_variance(2);
  double measured = 0;
  const int draws = 200;
  for (int draw = 0; draw < draws; ++draw) {
    const Tensor y = quantizer.pack(x, entry(0, static_cast<uint64_t>(draw)))->unpack();
    for (size_t k = 0; k < outputs; ++k)
      for (int64_t c = 0; c < width; ++c) {
        double error = 0;
        for (int64_t i = 0; i < n; ++i)
          error += dy[static_cast<size_t>(i) * outputs + k] *
                   (y.item(i * width + c) - x.item(i * width + c));
        measured += error * error / draws;
      }
  }
  CHECK(measured / foretold == doctest::Approx(1).epsilon(0.05));
}

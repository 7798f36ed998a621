// Every error-bounded codec: what comes back is within its bound.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compress/bounded/bounded_fixed.h"
#include "compress/bounded/zfp_codec.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "ops/dense/copy.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Sample {
  std::string name;
  std::vector<float> values;
  Shape shape;
  double scale = 1;  // bounds are multiplied by it
};

std::vector<Sample> samples() {
  std::vector<Sample> all;
  auto add = [&](std::string name, const Shape& shape, float scale, double unit) {
    all.push_back({std::move(name), normals(shape.numel(), all.size() + 3, scale), shape, unit});
  };
  add("random", {6, 5, 7, 12}, 1, 1);
  add("image of odd extents", {3, 23, 30, 3}, 1, 1);
  add("few rows", {20, 37}, 1, 1);
  add("many rows", {1300, 5}, 1, 1);
  add("wide", {40, 300}, 1, 1);
  add("one", {1}, 1, 1);
  add("scalar", {}, 1, 1);
  add("huge", {500, 4}, 1e37f, 1e37);
  add("tiny", {500, 4}, 1e-36f, 1e-36);
  add("subnormal", {500, 4}, 1e-41f, 1e-41);
  add("half zeros", {8, 10, 10, 20}, 1, 1);
  for (float& x : all.back().values) x = std::max(x, 0.0f);
  add("channels of all ranges", {700, 9}, 1, 1);
  for (size_t i = 0; i < all.back().values.size(); ++i)
    all.back().values[i] *= std::pow(10.0f, static_cast<float>(i % 9) - 4);
  add("far from zero", {600, 3}, 1e-2f, 1e-2);
  for (float& x : all.back().values) x += 1000;
  all.push_back({"constant", std::vector<float>(900, 3.25f), {300, 3}, 1});
  all.push_back({"zero", std::vector<float>(900, 0.0f), {300, 3}, 1});
  add("not finite", {400, 4}, 1, 1);
  all.back().values[5] = kNan;
  all.back().values[6] = -std::numeric_limits<float>::infinity();
  all.back().values[17] = std::numeric_limits<float>::max();
  all.push_back({"extremes", {3e38f, -3e38f, 1e-45f, 0, -0.0f, 1}, {6}, 1e30});
  all.push_back({"empty", {}, {0, 4}, 1});
  return all;
}

void check_within(const std::vector<double>& x, const std::vector<double>& y,
                  const ErrorBound& bound, int64_t channels) {
  REQUIRE(x.size() == y.size());
  auto within = [&](size_t i) {
    if (!std::isfinite(x[i])) return std::isnan(x[i]) ? std::isnan(y[i]) : x[i] == y[i];
    return std::abs(y[i] - x[i]) <= bound.at(static_cast<int64_t>(i) % channels);
  };
  size_t bad = x.size();
  for (size_t i = x.size(); i-- > 0;)
    if (!within(i)) bad = i;
  CAPTURE(bad);
  if (bad < x.size()) CAPTURE(y[bad] - x[bad]);
  CHECK(bad == x.size());
}

}  // namespace

TEST_CASE("every error-bounded codec keeps its bound for all data") {
  for (const std::string& name : error_bounded_names())
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic})
      for (const Sample& sample : samples()) {
        CAPTURE(name);
        CAPTURE(sample.name);
        CAPTURE(static_cast<int>(rounding));
        const auto codec = make_error_bounded(name, {rounding, 7});
        const Tensor x = Tensor::from(sample.values, sample.shape);
        const int64_t channels = sample.shape.dim() == 0 ? 1 : sample.shape.back();
        std::vector<ErrorBound> bounds;
        for (double each : {0.0, 1e-7, 1e-4, 0.01, 0.3, 2.0, 100.0, kInf})
          bounds.emplace_back(each * sample.scale);
        std::vector<double> several;
        for (int64_t c = 0; c < channels; ++c)
          several.push_back(sample.scale * std::pow(3.0, static_cast<double>(c % 11) - 8));
        bounds.emplace_back(several);
        for (const ErrorBound& bound : bounds) {
          CAPTURE(bound.least());
          const auto packed = codec->pack(x, bound, entry(3));
          const Tensor y = packed->unpack();
          CHECK(y.shape() == x.shape());
          check_within(x.to_vector(), y.to_vector(), bound, channels);
        }
      }
}

TEST_CASE("rows of an error-bounded tensor are those of the whole") {
  const Tensor x = Tensor::from(normals(int64_t{40} * 9 * 10 * 12, 5), {40, 9, 10, 12});
  std::vector<double> bounds;
  for (int c = 0; c < 12; ++c) bounds.push_back(0.001 * (1 << c));
  for (const std::string& name : error_bounded_names()) {
    CAPTURE(name);
    const auto packed = make_error_bounded(name)->pack(x, ErrorBound(bounds), entry(1));
    const std::vector<double> whole = packed->unpack().to_vector();
    for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 40}, {0, 1}, {39, 40}, {3, 31}, {17, 18}, {5, 5}}) {
      const Tensor rows = packed->unpack_rows(begin, end);
      CHECK(rows.shape() == Shape{end - begin, 9, 10, 12});
      const std::vector<double> part = rows.to_vector();
      CHECK(std::equal(part.begin(), part.end(), whole.begin() + begin * 9 * 10 * 12));
    }
    CHECK_THROWS_WITH_AS(packed->unpack_rows(3, 41),
                         "[error_bounded] expected a range within the leading axis of [40, 9, 10, "
                         "12], got 3 to 41",
                         Error);
  }
}

TEST_CASE("rows of an error-bounded tensor of one axis are those of the whole") {
  const Tensor x = Tensor::from(normals(3000, 6), {3000});
  for (const std::string& name : error_bounded_names()) {
    CAPTURE(name);
    const auto packed = make_error_bounded(name)->pack(x, ErrorBound(0.01), entry(1));
    const std::vector<double> whole = packed->unpack().to_vector();
    for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 3000}, {0, 5}, {5, 3000}, {1024, 2049}, {2999, 3000}, {7, 7}}) {
      const std::vector<double> part = packed->unpack_rows(begin, end).to_vector();
      CHECK(std::equal(part.begin(), part.end(), whole.begin() + begin, whole.begin() + end));
    }
  }
}

TEST_CASE("stochastic rounding within a bound is unbiased, nearest is not") {
  const std::vector<float> x = normals(int64_t{64} * 6, 19);
  const Tensor input = Tensor::from(x, {64, 6});
  for (const char* name : {"fixed", "fixed_z", "entropy", "predicted"})
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      CAPTURE(name);
      constexpr int draws = 400;
      std::vector<double> mean(x.size(), 0);
      double square = 0;
      for (uint64_t draw = 0; draw < draws; ++draw) {
        const auto codec = make_error_bounded(name, {rounding, draw});
        const auto y = codec->pack(input, 0.4, entry(2))->unpack().to_vector();
        for (size_t i = 0; i < y.size(); ++i) {
          const double error = y[i] - static_cast<double>(x[i]);
          mean[i] += error / draws;
          square += error * error / draws;
        }
      }
      double bias = 0;
      for (double each : mean) bias += each * each;
      CHECK((bias <= 1.5 * square / draws) == (rounding == Rounding::stochastic));
    }
}

TEST_CASE("zeros of the masked form are exact and cost one bit") {
  std::vector<float> values = normals(int64_t{4096} * 16, 8);
  for (float& x : values) x = x > 0.5f ? x : 0.0f;  // 31 % are left
  const Tensor x = Tensor::from(values, {4096, 16});
  BoundedFixedOptions options;
  options.zeros = true;
  auto bytes = [](const Packed& packed) {
    return static_cast<const bounded::Payload&>(packed).payload().numel();
  };
  const auto masked = BoundedFixed(options).pack(x, 0.0013, entry(0));
  CHECK(static_cast<const PackedFixed&>(*masked).masked());
  const auto plain = BoundedFixed().pack(x, 0.0013, entry(0));
  CHECK(!static_cast<const PackedFixed&>(*plain).masked());
  // 11 bits: for all, or for 31 % and one for each.
  CHECK(bytes(*plain) == 4096 * 16 * 11 / 8 + 16 * 9);
  CHECK(bytes(*masked) < 4096 * 16 * (1 + 0.32 * 11) / 8 + 16 * 9 + 4096 / 16 * 40);
  const std::vector<double> y = masked->unpack().to_vector();
  for (size_t i = 0; i < y.size(); ++i) {
    REQUIRE(std::abs(y[i] - static_cast<double>(values[i])) <= 0.0013);
    if (values[i] == 0) REQUIRE(y[i] == 0);
  }
  // Dense data take no mask.
  const auto dense =
      BoundedFixed(options).pack(Tensor::from(normals(65536, 1), {4096, 16}), 0.0013, entry(0));
  CHECK(!static_cast<const PackedFixed&>(*dense).masked());
}

TEST_CASE("what is exactly zero stays so in coded steps") {
  std::vector<float> values = normals(int64_t{4096} * 8, 8);
  for (float& x : values) x = std::max(x, 0.0f);
  const Tensor x = Tensor::from(values, {4096, 8});
  const auto y = make_error_bounded("entropy")->pack(x, 0.07, entry(0))->unpack().to_vector();
  for (size_t i = 0; i < y.size(); ++i)
    if (values[i] == 0) REQUIRE(y[i] == 0);
}

TEST_CASE("widths are the narrowest that keep the bound, hand-worked") {
  const ErrorBoundedOptions nearest;
  // [0, 3] by 0.51: steps of 1 are 2 bits; by 0.49: 3 bits.
  CHECK(bounded::tight_code(0, 3, 0.51, nearest).width == 2);
  CHECK(bounded::tight_code(0, 3, 0.51, nearest).step == 1);
  CHECK(bounded::tight_code(0, 3, 0.49, nearest).width == 3);
  CHECK(bounded::tight_code(0, 3, 1.51, nearest).width == 0);
  CHECK(bounded::tight_code(0, 3, 1.51, nearest).lo == 1.5f);
  CHECK(bounded::tight_code(0, 3, 1.51, {Rounding::stochastic, 0}).width == 2);
  CHECK(bounded::tight_code(2, 2, 0, nearest).width == 0);
  CHECK(bounded::tight_code(0, 3, 1e-9, nearest).width == bounded::kRaw);
  ErrorBoundedOptions clip;
  clip.clip = true;
  clip.max_bits = 5;
  CHECK(bounded::tight_code(0, 3, 1e-9, clip).width == 5);
  // m = 3, bound 0.1: log2 3 - log2 0.1 - 1 = 1.585 + 3.322 - 1 = 3.907: f = 3.
  CHECK(published_width(3, 0.1) == 4);
  CHECK(published_width(3, 1e-9) == 16);
  CHECK(published_width(3, 50) == 2);
  CHECK(published_width(3, kInf) == 2);
  CHECK(published_width(3, 0) == 16);
}

TEST_CASE("the published codes keep the bound, except at the largest value") {
  BoundedFixedOptions options;
  options.rule = WidthRule::published;
  // m = 1, bound 0.126: f = trunc(2.99 - 1) = 1. The public program executes steps of 2^-2.
  const Tensor x = Tensor::from(std::vector<float>{1, -1, 0.2f, -0.24f, 0.1f, 0}, {6, 1});
  const auto y = BoundedFixed(options).pack(x, 0.126, entry(0))->unpack().to_vector();
  CHECK(y == std::vector<double>{0.75, -1, 0.25, -0.25, 0, 0});
  std::vector<float> values = normals(4000, 5);
  values[7] = 9;
  const Tensor many = Tensor::from(values, {4000, 1});
  for (const double bound : {0.5, 0.1, 0.03, 0.004, 0.0011}) {
    CAPTURE(bound);
    const auto back = BoundedFixed(options).pack(many, bound, entry(0))->unpack().to_vector();
    double worst = 0;
    for (size_t i = 0; i < values.size(); ++i)
      if (i != 7) worst = std::max(worst, std::abs(back[i] - static_cast<double>(values[i])));
    CHECK(worst <= bound);
    CHECK(worst > bound / 5);  // half a step is between 1/4 and 1/1 of the bound
    CHECK(9 - back[7] == doctest::Approx(std::ldexp(9, -published_width(9, bound))));
  }
}

TEST_CASE("bytes do not depend on the number of threads") {
  const int threads = num_threads();
  std::vector<float> values = normals(int64_t{3000} * 24, 8);
  for (size_t i = 0; i < values.size(); i += 3) values[i] = 0;
  const Tensor x = Tensor::from(values, {3000, 24});
  std::vector<double> bounds;
  for (int c = 0; c < 24; ++c) bounds.push_back(0.002 * (c + 1));
  for (const std::string& name : error_bounded_names()) {
    CAPTURE(name);
    std::vector<std::vector<double>> payloads;
    for (int n : {1, 3}) {
      set_num_threads(n);
      const auto packed = make_error_bounded(name, {Rounding::stochastic, 5})
                              ->pack(x, ErrorBound(bounds), entry(4));
      payloads.push_back(static_cast<const bounded::Payload&>(*packed).payload().to_vector());
    }
    CHECK(payloads[0] == payloads[1]);
  }
  set_num_threads(threads);
}

TEST_CASE("other dtypes go through f32, and payloads are accounted as packed and can move") {
  const Tensor x = Tensor::from(normals(2000, 8), {500, 4});
  for (const std::string& name : error_bounded_names()) {
    CAPTURE(name);
    for (const DType dtype : {DType::f64, DType::bf16, DType::f16}) {
      const Tensor other = ops::cast(x, dtype);
      const Tensor y = make_error_bounded(name)->pack(other, 0.05, entry(0))->unpack();
      CHECK(y.dtype() == dtype);
      const double rounding = dtype == DType::f64 ? 1e-7 : 0.02;
      check_within(other.to_vector(), y.to_vector(), 0.05 + rounding, 4);
    }
    const int64_t before = allocator(kCpu).report().of(Category::packed);
    auto packed = make_error_bounded(name)->pack(x, 0.05, entry(0));
    const int64_t bytes = static_cast<const bounded::Payload&>(*packed).payload().numel();
    CHECK(allocator(kCpu).report().of(Category::packed) >= before + bytes);
    const auto values = packed->unpack().to_vector();
    auto& movable = static_cast<Movable&>(*packed);
    Tensor away = movable.take_payload();
    movable.put_payload(std::move(away));
    CHECK(packed->unpack().to_vector() == values);
    packed = nullptr;
    CHECK(allocator(kCpu).report().of(Category::packed) == before);
    const Tensor planned = Tensor::empty({64, 8}, DType::f32, kMeta);
    CHECK(make_error_bounded(name)->pack(planned, 0.1, entry(0))->unpack().device() == kMeta);
  }
}

TEST_CASE("error-bounded codecs refuse what they cannot take") {
  const Tensor x = Tensor::from(normals(12, 1), {4, 3});
  for (const std::string& name : error_bounded_names()) {
    CAPTURE(name);
    const auto codec = make_error_bounded(name);
    CHECK_THROWS_AS(codec->pack(x.transpose(0, 1), 1, {}), Error);
    CHECK_THROWS_AS(codec->pack(Tensor::empty({3}, DType::i64), 1, {}), Error);
    CHECK_THROWS_AS(codec->pack({}, 1, {}), Error);
    CHECK_THROWS_AS(codec->pack(x, ErrorBound({1, 2}), {}), Error);
    CHECK_THROWS_AS(codec->pack(x, -1, {}), Error);
    CHECK_THROWS_AS(codec->pack(x, std::nan(""), {}), Error);
  }
  CHECK_THROWS_WITH(BoundedFixed().pack(x, ErrorBound({1, 2}), {}),
                    "[bounded_fixed] expected one bound or one for each of 3 channels, got 2");
  BoundedFixedOptions wide;
  wide.of.max_bits = 17;
  CHECK_THROWS_WITH(BoundedFixed{wide}, "[bounded_fixed] expected max_bits in 1..16, got 17");
  BoundedFixedOptions turned;
  turned.of.min_bits = 9;
  turned.of.max_bits = 8;
  CHECK_THROWS_WITH(BoundedFixed{turned}, "[bounded_fixed] expected min_bits in 0..8, got 9");
  CHECK_THROWS_AS(make_error_bounded("sz"), Error);
}

TEST_CASE("smooth images take fewer bytes with zfp, and smaller steps cost more everywhere") {
  std::vector<float> values;
  for (int i = 0; i < 8 * 32 * 32 * 4; ++i) {
    const int c = i % 4, w = i / 4 % 32, h = i / 128 % 32;
    values.push_back(static_cast<float>(std::sin(0.1 * w + c) * std::cos(0.13 * h)));
  }
  const Tensor x = Tensor::from(values, {8, 32, 32, 4});
  auto bytes = [&](const std::string& name, double bound) {
    const auto packed = make_error_bounded(name)->pack(x, bound, entry(0));
    return static_cast<const bounded::Payload&>(*packed).payload().numel();
  };
  for (const std::string& name : error_bounded_names()) {
    CAPTURE(name);
    CHECK(bytes(name, 1e-3) < bytes(name, 1e-5));
  }
  if (has_zfp()) CHECK(bytes("zfp", 1e-3) < bytes("fixed", 1e-3));
}

#include "tests/compress/codec_table.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/memory.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

// The extremes of the group of element i, for the bound.
std::pair<double, double> extremes(const CodecRow& row, const std::vector<double>& x, int64_t rows,
                                   int64_t cols, int64_t i) {
  const bool shared = row.shares_lanes;
  std::pair<double, double> found{x[static_cast<size_t>(i)], x[static_cast<size_t>(i)]};
  for (int64_t k = 0; k < rows * cols; ++k) {
    const bool same =
        shared ? k / 256 == i / 256 : k % cols == i % cols && k / cols / 256 == i / cols / 256;
    if (!same) continue;
    found.first = std::min(found.first, x[static_cast<size_t>(k)]);
    found.second = std::max(found.second, x[static_cast<size_t>(k)]);
  }
  return found;
}

}  // namespace

TEST_CASE("names are unique and can be found") {
  std::set<std::string> names;
  for (const CodecRow& row : codec_table()) {
    CHECK(names.insert(row.name).second);
    CHECK(&find_codec(row.name) == &row);
  }
  CHECK(names.contains("identity"));
  for (const char* name :
       {"q1", "q4", "q16", "q2-row", "q8-nearest", "q3-row-nearest", "q5-dithered"})
    CHECK(names.contains(name));
  CHECK_THROWS_AS(find_codec("q17"), Error);
}

TEST_CASE("every codec keeps its bound, shape and dtype, packs into `packed`, and frees it") {
  struct Case {
    int64_t rows, cols;
    float scale, offset;
  };
  const std::vector<Case> cases = {{1, 1, 1, 0},      {1, 5, 1, 0},      {70, 3, 1, 0},
                                   {300, 2, 50, 0},   {64, 17, 1, 1000}, {3, 200, 1e-3f, -7},
                                   {65, 4, 1e30f, 0}, {80, 2, 1e-38f, 0}};
  for (const CodecRow& row : codec_table())
    for (const Case& c : cases) {
      CAPTURE(row.name);
      CAPTURE(c.rows);
      CAPTURE(c.cols);
      std::vector<float> floats = normals(c.rows * c.cols, 17, c.scale);
      for (float& value : floats) value += c.offset;
      const Tensor x = Tensor::from(floats, {c.rows, c.cols});
      const int64_t before = allocator(kCpu).report().of(Category::packed);
      const auto codec = row.make(row, 3);
      auto packed = codec->pack(x, entry(1));
      CHECK(allocator(kCpu).report().of(Category::packed) > before);
      const Tensor y = packed->unpack();
      CHECK(y.shape() == x.shape());
      CHECK(y.dtype() == x.dtype());
      CHECK(y.storage()->category() == Category::workspace);
      const std::vector<double> values = x.to_vector(), rebuilt = y.to_vector();
      for (size_t i = 0; i < values.size(); ++i) {
        const auto [min, max] = extremes(row, values, c.rows, c.cols, static_cast<int64_t>(i));
        REQUIRE(std::abs(rebuilt[i] - values[i]) <= row.bound(min, max, row.bits));
        if (row.lossless) REQUIRE(rebuilt[i] == values[i]);
      }
      packed = nullptr;
      CHECK(allocator(kCpu).report().of(Category::packed) == before);
    }
}

TEST_CASE("the mean over seeds is the input where a row says unbiased") {
  constexpr int draws = 400;
  const std::vector<float> x = normals(64 * 6, 19);
  const Tensor input = Tensor::from(x, {64, 6});
  for (const CodecRow& row : codec_table()) {
    if (!row.unbiased) continue;
    CAPTURE(row.name);
    std::vector<double> mean(x.size(), 0), square(x.size(), 0);
    for (int draw = 0; draw < draws; ++draw) {
      const auto codec = row.make(row, static_cast<uint64_t>(draw));
      const std::vector<double> y = codec->pack(input, entry(2))->unpack().to_vector();
      for (size_t i = 0; i < y.size(); ++i) {
        const double error = y[i] - static_cast<double>(x[i]);
        mean[i] += error / draws;
        square[i] += error * error / draws;
      }
    }
    double observed = 0, expected = 0;
    for (size_t i = 0; i < mean.size(); ++i) observed += mean[i] * mean[i], expected += square[i];
    // Unbiased: the squared mean error is the variance over the draws, and f32's rounding.
    CHECK(observed <= 1.5 * expected / draws + 1e-12);
  }
}

TEST_CASE("nearest rows are the same whatever the seed, stochastic ones are not") {
  const Tensor x = Tensor::from(normals(64 * 4, 23), {64, 4});
  for (const CodecRow& row : codec_table()) {
    CAPTURE(row.name);
    const auto a = row.make(row, 1)->pack(x, entry(0))->unpack().to_vector();
    const auto b = row.make(row, 2)->pack(x, entry(0))->unpack().to_vector();
    CHECK((a == b) == (row.lossless || !row.unbiased));
  }
}

TEST_CASE("the identity codec copies any dtype bit for bit and accounts on meta") {
  const auto codec = find_codec("identity").make(find_codec("identity"), 0);
  const Tensor x = Tensor::from(std::vector<double>{1, std::nan(""), -0.0, 1e300}, {2, 2});
  const Tensor y = codec->pack(x, {})->unpack();
  CHECK(std::memcmp(x.raw(), y.raw(), 32) == 0);
  CHECK(y.storage()->id() != x.storage()->id());
  const auto packed = codec->pack(Tensor::empty({8, 8}, DType::f32, kMeta), {});
  CHECK(packed->unpack().device() == kMeta);
  CHECK_THROWS_AS(codec->pack(x.transpose(0, 1), {}), Error);
}

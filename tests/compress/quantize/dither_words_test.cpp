// The random bytes of the quantizer: their distribution, what elements share, and the bias that 256
// values of u leave. Seeds are fixed, so a failure is a defect and not bad luck.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "tests/compress/quantize/split_samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

// The byte behind u of an element, or -1 where u is not one of 256 values.
int byte_of(const CodeStream& stream, int64_t row, int64_t column) {
  const float h = element_dither(stream, true, row, column) * 256 - 0.5f;
  return h == std::floor(h) && h >= 0 && h < 256 ? static_cast<int>(h) : -1;
}

constexpr int64_t kRows = 2048, kCols = 64;

struct Bytes {
  explicit Bytes(const CodeStream& stream) {
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < kCols; ++c) at.push_back(byte_of(stream, r, c));
  }
  int of(int64_t row, int64_t column) const {
    return at[static_cast<size_t>(row * kCols + column)];
  }
  std::vector<int> at;
};

// How far chi-square of `counts` is from its mean, in its standard deviations.
double excess(const std::vector<double>& counts) {
  double n = 0, chi = 0;
  for (double count : counts) n += count;
  const double expected = n / static_cast<double>(counts.size());
  for (double count : counts) chi += (count - expected) * (count - expected) / expected;
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (chi - freedom) / std::sqrt(2 * freedom);
}

// Two bytes of each of many pairs of elements: no correlation, and independent halves.
void check_independent(const std::vector<std::array<int, 2>>& pairs) {
  double product = 0;
  std::vector<double> high(256), low(256), mixed(256);
  for (const auto& [a, b] : pairs) {
    product += (a - 127.5) * (b - 127.5);
    ++high[static_cast<size_t>((a & 0xf0) | b >> 4)];
    ++low[static_cast<size_t>((a & 15) << 4 | (b & 15))];
    ++mixed[static_cast<size_t>((a & 0xf0) | (b & 15))];
  }
  const double variance = (256.0 * 256 - 1) / 12;
  CHECK(std::abs(product) / variance / std::sqrt(static_cast<double>(pairs.size())) < 4.5);
  CHECK(std::abs(excess(high)) < 5);
  CHECK(std::abs(excess(low)) < 5);
  CHECK(std::abs(excess(mixed)) < 5);
}

CodeStream stream_of(uint64_t seed, uint64_t step, uint64_t seq) {
  return code_stream(seed, entry(seq, step));
}

}  // namespace

TEST_CASE("the bytes of the dither are uniform") {
  const Bytes bytes(stream_of(5, 1, 2));
  REQUIRE(std::find(bytes.at.begin(), bytes.at.end(), -1) == bytes.at.end());
  std::vector<double> all(256), by_row(8 * 256), by_column(4 * 256);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kCols; ++c) {
      const auto h = static_cast<size_t>(bytes.of(r, c));
      ++all[h];
      ++by_row[static_cast<size_t>(r % 8) * 256 + h];
      ++by_column[static_cast<size_t>(c % 4) * 256 + h];
    }
  CHECK(std::abs(excess(all)) < 5);
  CHECK(std::abs(excess(by_row)) < 5);
  CHECK(std::abs(excess(by_column)) < 5);
}

TEST_CASE("the bytes of neighbouring rows, columns and blocks are independent") {
  const Bytes bytes(stream_of(5, 1, 2));
  // Rows 0 to 3 of 8 share a word, columns 2p and 2p + 1 a call of Philox.
  for (const auto& apart : std::vector<std::array<int64_t, 2>>{
           {1, 0}, {2, 0}, {3, 0}, {4, 0}, {8, 0}, {0, 1}, {0, 2}, {1, 1}, {4, 1}, {8, 2}}) {
    const int64_t down = apart[0], beside = apart[1];
    CAPTURE(down);
    CAPTURE(beside);
    // Bytes within a pair of columns, and of two pairs.
    std::vector<std::array<int, 2>> within, across;
    for (int64_t r = 0; r + down < kRows; ++r)
      for (int64_t c = 0; c + beside < kCols; ++c)
        (c / 2 == (c + beside) / 2 ? within : across)
            .push_back({bytes.of(r, c), bytes.of(r + down, c + beside)});
    if (!within.empty()) check_independent(within);
    if (!across.empty()) check_independent(across);
  }
}

TEST_CASE("the bytes of different streams are independent") {
  const Bytes base(stream_of(5, 1, 2));
  for (const CodeStream& other : {stream_of(6, 1, 2), stream_of(5, 2, 2), stream_of(5, 1, 3)}) {
    const Bytes there(other);
    std::vector<std::array<int, 2>> pairs;
    for (size_t i = 0; i < base.at.size(); ++i) pairs.push_back({base.at[i], there.at[i]});
    check_independent(pairs);
  }
}

namespace {

constexpr int64_t kMany = 8192;  // rows of one group, in which each byte occurs

// Rebuilds `value` for each of the 256 bytes and gives the mean. Rows 0 and 2, and 1 and 3, hold
// the ends of the range: of the plain group, or of both classes of a split one.
double mean_over_bytes(float value, int bits, Rounding rounding, bool split) {
  std::vector<float> x(kMany, value);
  x[0] = x[1] = -1, x[2] = x[3] = 2;
  const Shape shape{kMany, 1};
  const Quantizer codec({bits, kMany, GroupAxis::column, rounding, 3});
  const Tensor mask = mask_of(shape, [](size_t i) { return i % 2 == 1; });
  const Sign sign{mask, 0.3};
  SaveInfo info = entry(2, 1);
  if (split) info.sign = &sign;
  const std::vector<double> y = codec.pack(Tensor::from(x, shape), info)->unpack().to_vector();
  const CodeStream stream = code_stream(3, info);
  std::array<std::optional<double>, 256> rebuilt;
  for (int64_t r = split ? 5 : 4; r < kMany; r += split ? 2 : 1) {
    const auto h = static_cast<size_t>(byte_of(stream, r, 0));
    const double here = y[static_cast<size_t>(r)];
    if (rebuilt[h]) REQUIRE(*rebuilt[h] == here);
    rebuilt[h] = here;
  }
  double sum = 0;
  for (const std::optional<double>& one : rebuilt) {
    REQUIRE(one);
    sum += *one;
  }
  return sum / 256;
}

}  // namespace

TEST_CASE("the mean over all values of u differs from the value by at most 1 / 512 of a step") {
  for (Rounding rounding : {Rounding::stochastic, Rounding::dithered})
    for (bool split : {false, true})
      for (int bits : {1, 2, 4, 8, 12, 16}) {
        if (split && bits == 1) continue;
        CAPTURE(static_cast<int>(rounding));
        CAPTURE(split);
        CAPTURE(bits);
        // The step of class 1 in a split group: see split_codes().
        const SplitCodes codes = split_codes(3, 3, split_weights(0.3), bits);
        const double step = 3.0 / (split ? codes.count[1] - 1 : (1 << bits) - 1);
        double most = 0;
        for (int i = 0; i < 40; ++i) {
          // The step is rounded up to 8 bits. f32 rounds values and, twice, levels.
          const float value = static_cast<float>(-0.9 + i * 0.07 + i * step / 512);
          const double error =
              std::abs(mean_over_bytes(value, bits, rounding, split) - static_cast<double>(value));
          REQUIRE(error <= step * ((1 + 0x1p-7) / 512 + std::ldexp(1, bits - 23)) + 0x1p-20);
          most = std::max(most, error);
        }
        if (bits <= 8) CHECK(most > step / 1024);  // the bound is not much too large
      }
}

#include "compress/entropy/rans.h"

#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>
#include <numeric>
#include <vector>

#include "core/rng.h"

using namespace frugal;
using namespace frugal::compress::rans;

namespace {

// Bytes of a distribution: geometric with `ratio`, 1 for uniform.
std::vector<uint8_t> draw(size_t size, double ratio, uint64_t seed) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) {
    const double u = static_cast<double>(uniform({seed, 0}, i));
    const double value = ratio == 1 ? u * 256 : std::log(1 - u) / std::log(ratio);
    bytes[i] = static_cast<uint8_t>(std::min(value, 255.0));
  }
  return bytes;
}

Histogram histogram_of(const std::vector<uint8_t>& bytes) {
  Histogram histogram{};
  count_bytes(bytes.data(), bytes.size(), histogram);
  return histogram;
}

// The stream of segments that share a table, with what is read beyond it.
std::vector<uint8_t> encode(const std::vector<std::vector<uint8_t>>& segments,
                            const EncodeTable& table) {
  size_t size = 0;
  for (const auto& segment : segments) size += segment.size();
  std::vector<uint8_t> buffer(stream_bound(size));
  uint8_t* const end = buffer.data() + buffer.size();
  Encoder encoder(end);
  for (size_t s = segments.size(); s-- > 0;)
    encoder.put(segments[s].data(), segments[s].size(), table);
  std::vector<uint8_t> stream(encoder.finish(), end);
  stream.resize(stream.size() + kReadBeyond);
  return stream;
}

}  // namespace

TEST_CASE("histograms and their entropy") {
  const std::vector<uint8_t> bytes = {3, 3, 3, 3, 7, 7, 255};
  const Histogram histogram = histogram_of(bytes);
  CHECK(histogram[3] == 4);
  CHECK(histogram[7] == 2);
  CHECK(histogram[255] == 1);
  CHECK(std::accumulate(histogram.begin(), histogram.end(), int64_t{0}) == 7);
  // 4/7 log2(7/4) + 2/7 log2(7/2) + 1/7 log2(7)
  CHECK(entropy(histogram) == doctest::Approx(1.378783));
  CHECK(entropy(Histogram{}) == 0);
  CHECK(entropy(histogram_of({5, 5})) == 0);
}

TEST_CASE("frequencies add up, leave no byte out and cost little more than the entropy") {
  for (double ratio : {0.01, 0.3, 0.8, 0.97, 1.0})
    for (size_t size : std::initializer_list<size_t>{2, 300, 100000}) {
      CAPTURE(ratio);
      CAPTURE(size);
      auto bytes = draw(size, ratio, 5);
      bytes[0] = 200, bytes[1] = 201;  // two rare ones
      const Histogram histogram = histogram_of(bytes);
      const Frequencies shares = frequencies(histogram);
      CHECK(std::accumulate(shares.begin(), shares.end(), 0) == 4096);
      for (size_t b = 0; b < 256; ++b) CHECK((shares[b] > 0) == (histogram[b] > 0));
      const double least = entropy(histogram) * static_cast<double>(size);
      CHECK(coded_bits(histogram, shares) >= least * (1 - 1e-12));
      CHECK(coded_bits(histogram, shares) <= least * 1.01 + 0.002 * static_cast<double>(size));
    }
}

TEST_CASE("streams of any length and distribution come back and are as long as predicted") {
  for (double ratio : {0.001, 0.3, 0.9, 1.0})
    for (size_t size : std::initializer_list<size_t>{1, 7, 8, 9, 100, 4099, 70000}) {
      CAPTURE(ratio);
      CAPTURE(size);
      auto bytes = draw(size, ratio, size);
      Histogram histogram = histogram_of(bytes);
      ++histogram[17], ++histogram[18];  // two at least
      const Frequencies shares = frequencies(histogram);
      const auto stream = encode({bytes}, EncodeTable(shares));
      std::vector<uint8_t> decoded(size);
      Decoder(stream.data()).get(decoded.data(), size, DecodeTable(shares));
      CHECK(decoded == bytes);
      const double predicted = coded_bits(histogram_of(bytes), shares) / 8;
      CHECK(static_cast<double>(stream.size()) <= predicted * 1.002 + 4 * kStates + 2 + 1);
    }
}

TEST_CASE("segments with tables of their own share a stream") {
  const auto a = draw(1003, 0.5, 1), b = draw(517, 0.95, 2), c = draw(40, 0.5, 3);
  Histogram first = histogram_of(a);
  count_bytes(c.data(), c.size(), first);
  const Frequencies shares = frequencies(first), other = frequencies(histogram_of(b));
  const EncodeTable encode_first(shares), encode_other(other);
  std::vector<uint8_t> buffer(stream_bound(a.size() + b.size() + c.size()));
  uint8_t* const end = buffer.data() + buffer.size();
  Encoder encoder(end);
  encoder.put(c.data(), c.size(), encode_first);
  encoder.put(b.data(), b.size(), encode_other);
  encoder.put(a.data(), a.size(), encode_first);
  std::vector<uint8_t> stream(encoder.finish(), end);
  stream.resize(stream.size() + kReadBeyond);

  Decoder decoder(stream.data());
  const DecodeTable decode_first(shares), decode_other(other);
  std::vector<uint8_t> x(a.size()), y(b.size()), z(c.size());
  decoder.get(x.data(), x.size(), decode_first);
  decoder.get(y.data(), y.size(), decode_other);
  decoder.get(z.data(), z.size(), decode_first);
  CHECK(x == a);
  CHECK(y == b);
  CHECK(z == c);
}

TEST_CASE("every frequency codes every byte") {
  // Two bytes, one of frequency f: the divisions by f and by what is left are exact.
  for (uint16_t f = 1; f < 4096; f = static_cast<uint16_t>(f + (f < 64 || f > 4032 ? 1 : 37))) {
    Frequencies shares{};
    shares[0] = f;
    shares[1] = static_cast<uint16_t>(4096 - f);
    std::vector<uint8_t> bytes(600);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uniform({9, f}, i) < 0.5f;
    const auto stream = encode({bytes}, EncodeTable(shares));
    std::vector<uint8_t> decoded(bytes.size());
    Decoder(stream.data()).get(decoded.data(), decoded.size(), DecodeTable(shares));
    REQUIRE(decoded == bytes);
  }
}

#include "compress/entropy/rans.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <numeric>
#include <vector>

#include "compress/quantize/quantize_kernels.h"
#include "core/error.h"
#include "core/rng.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;
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
  Counter counter;
  counter.add(bytes.data(), bytes.size());
  counter.add_to(histogram);
  return histogram;
}

// The stream of segments that share a table.
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
  return stream;
}

// A segment and the frequencies of its table.
struct Segment {
  std::vector<uint8_t> bytes;
  Frequencies shares;
};

// What rans.h says, one byte after the other.
std::vector<uint8_t> encode_plainly(const std::vector<Segment>& segments) {
  std::vector<uint32_t> states(32, 1u << 15);
  std::vector<uint16_t> words;  // the last one first
  for (size_t s = segments.size(); s-- > 0;)
    for (size_t i = segments[s].bytes.size(); i-- > 0;) {
      const Frequencies& shares = segments[s].shares;
      const uint8_t byte = segments[s].bytes[i];
      const uint32_t start = std::accumulate(shares.begin(), shares.begin() + byte, 0u);
      uint32_t& x = states[i % 32];
      if (uint64_t{x} >= uint64_t{shares[byte]} << 19) {
        words.push_back(static_cast<uint16_t>(x));
        x >>= 16;
      }
      x = x / shares[byte] * 4096 + start + x % shares[byte];
    }
  std::vector<uint8_t> stream(128 + 2 * words.size());
  std::memcpy(stream.data(), states.data(), 128);
  std::reverse(words.begin(), words.end());
  if (!words.empty()) std::memcpy(stream.data() + 128, words.data(), 2 * words.size());
  return stream;
}

// Two streams are coded together as each one alone.
void check_two(const std::vector<Segment>& a, const std::vector<Segment>& b) {
  const std::vector<Segment>* const both[] = {&a, &b};
  std::vector<EncodeTable> encode_tables;
  std::vector<DecodeTable> decode_tables;
  encode_tables.reserve(a.size() + b.size()), decode_tables.reserve(a.size() + b.size());
  std::vector<EncodeSegment> put[2];
  std::vector<DecodeSegment> get[2];
  std::vector<std::vector<uint8_t>> decoded[2];
  std::vector<uint8_t> buffer[2];
  for (size_t k : {0, 1}) {
    size_t size = 0;
    for (const Segment& segment : *both[k]) {
      size += segment.bytes.size();
      encode_tables.emplace_back(segment.shares);
      decode_tables.emplace_back(segment.shares);
      decoded[k].emplace_back(segment.bytes.size());
      put[k].push_back({segment.bytes.data(), segment.bytes.size(), &encode_tables.back()});
      get[k].push_back({decoded[k].back().data(), segment.bytes.size(), &decode_tables.back()});
    }
    std::reverse(put[k].begin(), put[k].end());
    buffer[k].resize(stream_bound(size));
  }
  Encoder first(buffer[0].data() + buffer[0].size()), second(buffer[1].data() + buffer[1].size());
  Encoder::put_two(first, put[0], second, put[1]);
  const std::vector<uint8_t> streams[] = {{first.finish(), buffer[0].data() + buffer[0].size()},
                                          {second.finish(), buffer[1].data() + buffer[1].size()}};
  for (size_t k : {0, 1}) REQUIRE(streams[k] == encode_plainly(*both[k]));
  // The buffers end with the streams: a sanitizer sees what reads beyond them.
  Decoder one(streams[0].data(), streams[0].data() + streams[0].size());
  Decoder other(streams[1].data(), streams[1].data() + streams[1].size());
  Decoder::get_two(one, get[0], other, get[1]);
  for (size_t k : {0, 1})
    for (size_t s = 0; s < both[k]->size(); ++s) REQUIRE(decoded[k][s] == (*both[k])[s].bytes);
}

Frequencies shares_of(const std::vector<uint8_t>& bytes) {
  Histogram histogram = histogram_of(bytes);
  ++histogram[17], ++histogram[18];  // two at least
  return frequencies(histogram);
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
  CHECK(rans::entropy(histogram) == doctest::Approx(1.378783));
  CHECK(rans::entropy(Histogram{}) == 0);
  CHECK(rans::entropy(histogram_of({5, 5})) == 0);
}

TEST_CASE("every instruction set counts the same") {
  const Targets restore;
  std::vector<std::string> targets = simd_targets();
  targets.emplace_back();  // the best one that there is
  for (const std::string& target : targets) {
    CAPTURE(target);
    use_simd_target(target);
    for (double ratio : {0.001, 0.3, 0.9, 1.0}) {
      CAPTURE(ratio);
      Counter counter;
      Histogram expected{}, counted{};
      uint64_t seed = 0;
      for (size_t size : std::initializer_list<size_t>{0, 1, 7, 700, 1340, 2048, 5000, 65536, 3}) {
        const auto bytes = draw(size, ratio, ++seed);
        counter.add(bytes.data(), size);
        for (uint8_t byte : bytes) ++expected[byte];
        counted = {};
        counter.add_to(counted);
        REQUIRE(counted == expected);
      }
    }
  }
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
      const double least = rans::entropy(histogram) * static_cast<double>(size);
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
      const Frequencies shares = shares_of(bytes);
      const auto stream = encode({bytes}, EncodeTable(shares));
      std::vector<uint8_t> decoded(size);
      Decoder(stream.data(), stream.data() + stream.size())
          .get(decoded.data(), size, DecodeTable(shares));
      CHECK(decoded == bytes);
      const double predicted = coded_bits(histogram_of(bytes), shares) / 8;
      CHECK(static_cast<double>(stream.size()) <= predicted * 1.002 + 4 * kStates + 1);
    }
}

TEST_CASE("segments with tables of their own share a stream") {
  const auto a = draw(1003, 0.5, 1), b = draw(517, 0.95, 2), c = draw(40, 0.5, 3);
  Histogram first = histogram_of(a);
  Counter counter;
  counter.add(c.data(), c.size());
  counter.add_to(first);
  const Frequencies shares = frequencies(first), other = frequencies(histogram_of(b));
  const EncodeTable encode_first(shares), encode_other(other);
  std::vector<uint8_t> buffer(stream_bound(a.size() + b.size() + c.size()));
  uint8_t* const end = buffer.data() + buffer.size();
  Encoder encoder(end);
  encoder.put(c.data(), c.size(), encode_first);
  encoder.put(b.data(), b.size(), encode_other);
  encoder.put(a.data(), a.size(), encode_first);
  std::vector<uint8_t> stream(encoder.finish(), end);

  Decoder decoder(stream.data(), stream.data() + stream.size());
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
    Decoder(stream.data(), stream.data() + stream.size())
        .get(decoded.data(), decoded.size(), DecodeTable(shares));
    REQUIRE(decoded == bytes);
  }
}

TEST_CASE("every instruction set writes the same bytes, and reads them and nothing behind them") {
  const Targets restore;
  std::vector<std::vector<Segment>> streams;
  for (double ratio : {0.001, 0.3, 0.9, 0.995, 1.0})
    for (size_t size : std::initializer_list<size_t>{0, 1, 31, 32, 33, 64, 100, 4099, 70000}) {
      const auto bytes = draw(size, ratio, size);
      streams.push_back({{bytes, shares_of(bytes)}});
    }
  for (uint64_t seed = 0; seed < 40; ++seed) {  // segments of any size
    streams.emplace_back();
    for (uint64_t s = 0; s < 1 + seed % 5; ++s) {
      const auto size = static_cast<size_t>(uniform({seed, 1}, s) * (s % 2 == 0 ? 3000 : 70));
      const auto bytes = draw(size, uniform({seed, 2}, s), 50 * seed + s);
      streams.back().push_back({bytes, shares_of(bytes)});
    }
  }
  // Two bytes, one of frequency f: divisions by f and by what is left, of the largest states too.
  for (uint16_t f = 1; f < 4096; f = static_cast<uint16_t>(f + (f < 64 || f > 4032 ? 1 : 37))) {
    Frequencies shares{};
    shares[0] = f;
    shares[1] = static_cast<uint16_t>(4096 - f);
    std::vector<uint8_t> bytes(600);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uniform({9, f}, i) < 0.5f;
    streams.push_back({{bytes, shares}});
  }
  std::vector<std::string> targets = simd_targets();
  REQUIRE(!targets.empty());
  targets.emplace_back();  // the best one that the coder has, which may be none of these
  for (const std::string& target : targets) {
    CAPTURE(target);
    use_simd_target(target);
    for (size_t s = 0; s + 1 < streams.size(); ++s) check_two(streams[s], streams[s + 1]);
    for (const std::vector<Segment>& segments : streams) {
      size_t size = 0;
      for (const Segment& segment : segments) size += segment.bytes.size();
      std::vector<uint8_t> buffer(stream_bound(size));
      uint8_t* const end = buffer.data() + buffer.size();
      Encoder encoder(end);
      for (size_t s = segments.size(); s-- > 0;)
        encoder.put(segments[s].bytes.data(), segments[s].bytes.size(),
                    EncodeTable(segments[s].shares));
      const std::vector<uint8_t> stream(encoder.finish(), end);
      REQUIRE(stream == encode_plainly(segments));
      // The buffer ends with the stream: a sanitizer sees what reads beyond it.
      Decoder decoder(stream.data(), stream.data() + stream.size());
      for (const Segment& segment : segments) {
        std::vector<uint8_t> decoded(segment.bytes.size());
        decoder.get(decoded.data(), decoded.size(), DecodeTable(segment.shares));
        REQUIRE(decoded == segment.bytes);
      }
    }
  }
}

TEST_CASE("what follows a stream does not matter, and a stream that ends early reads as zeros") {
  const Targets restore;
  const auto bytes = draw(5000, 0.9, 3);
  const Frequencies shares = shares_of(bytes);
  const DecodeTable table(shares);
  const std::vector<uint8_t> stream = encode({bytes}, EncodeTable(shares));
  for (const std::string& target : simd_targets()) {
    CAPTURE(target);
    use_simd_target(target);
    for (size_t kept : {stream.size(), stream.size() - 2, stream.size() / 2, size_t{100}}) {
      std::vector<uint8_t> cut = stream, zeros = stream;
      std::fill(cut.begin() + static_cast<std::ptrdiff_t>(kept), cut.end(), uint8_t{0xee});
      std::fill(zeros.begin() + static_cast<std::ptrdiff_t>(kept), zeros.end(), uint8_t{0});
      zeros.resize(20000);
      std::vector<uint8_t> a(bytes.size()), b(bytes.size());
      Decoder(cut.data(), cut.data() + kept).get(a.data(), a.size(), table);
      Decoder(zeros.data(), zeros.data() + zeros.size()).get(b.data(), b.size(), table);
      CHECK(a == b);
      CHECK((a == bytes) == (kept == stream.size()));
    }
  }
}

TEST_CASE("frequencies that do not add up are no table") {
  Frequencies shares{};
  shares[0] = 4000;
  CHECK_THROWS_WITH_AS(DecodeTable{shares},
                       "[entropy] expected frequencies with a sum of 4096, got 4000", Error);
  shares[1] = 4000;  // would be written beyond the table
  CHECK_THROWS_AS(DecodeTable{shares}, Error);
}

TEST_CASE("bytes with contexts come back, one stream or two, and each context has its own table") {
  constexpr int kSymbolBits = 5;
  std::vector<uint8_t> bytes, contexts;
  const std::vector<uint8_t> drawn = draw(5000, 0.5, 3), chosen = draw(5000, 1, 4);
  for (size_t i = 0; i < drawn.size(); ++i) {
    const auto context = static_cast<uint8_t>(chosen[i] % 7);  // the eighth one never occurs
    // Context 3 has one symbol alone, and the others have the same ones at other places.
    const int symbol = context == 3 ? 9 : (drawn[i] + 4 * context) % 32;
    contexts.push_back(context);
    bytes.push_back(static_cast<uint8_t>(context << kSymbolBits | symbol));
  }
  const Frequencies shares = context_frequencies(histogram_of(bytes), kSymbolBits);
  for (size_t context = 0; context < 8; ++context) {
    int sum = 0;
    for (size_t s = 0; s < 32; ++s) sum += shares[context * 32 + s];
    CHECK(sum == (context == 7 ? 0 : static_cast<int>(kScale)));
  }
  const EncodeTable table(shares);
  const ContextTable decoding(shares, kSymbolBits);
  const std::vector<uint8_t> stream = encode({bytes, bytes}, table);
  // A geometric byte of ratio 1/2 has 2 bits.
  CHECK(static_cast<double>(stream.size()) < 2 * 5000 * 2.05 / 8 * 6 / 7 + 200);
  for (const bool together : {false, true}) {
    CAPTURE(together);
    Decoder a(stream.data(), stream.data() + stream.size());
    Decoder b(stream.data(), stream.data() + stream.size());
    for (int part = 0; part < 2; ++part) {
      std::vector<uint8_t> x(bytes.size()), y(bytes.size());
      if (together) {
        Decoder::get_two(a, {x.data(), contexts.data()}, b, {y.data(), contexts.data()}, x.size(),
                         decoding);
      } else {
        a.get({x.data(), contexts.data()}, x.size(), decoding);
        b.get({y.data(), contexts.data()}, y.size(), decoding);
      }
      CHECK(x == bytes);
      CHECK(y == bytes);
    }
  }
  Frequencies wrong = shares;
  ++wrong[0];
  CHECK_THROWS_WITH_AS(ContextTable(wrong, kSymbolBits),
                       "[entropy] expected frequencies of a context with a sum of 0 or 4096, got "
                       "4097",
                       Error);
}

#include "data/fetch/sha256.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "core/error.h"
#include "data/formats/file_bytes.h"

namespace frugal::data {
namespace {

// The constants are the first 32 fractional bits of roots of the first primes (FIPS 180-4, 4.2.2
// and 5.3.3); long double arithmetic is not exact everywhere, so integers find them: the largest r
// with r^k <= p * 2^(32 k).
__extension__ using Wide = unsigned __int128;

uint32_t fractional_root(uint64_t prime, int k) {
  uint64_t lo = 0, hi = uint64_t{1} << 37;
  auto fits = [&](uint64_t r) {  // a cube is below 2^111
    return k == 2 ? Wide{r} * r <= Wide{prime} << 64 : Wide{r} * r * r <= Wide{prime} << 96;
  };
  while (hi - lo > 1) {
    const uint64_t middle = (lo + hi) / 2;
    (fits(middle) ? lo : hi) = middle;
  }
  return static_cast<uint32_t>(lo);
}

struct Constants {
  std::array<uint32_t, 64> round{};
  std::array<uint32_t, 8> start{};
  Constants() {
    size_t found = 0;
    for (uint64_t candidate = 2; found < round.size(); ++candidate) {
      bool prime = true;
      for (uint64_t d = 2; d * d <= candidate; ++d) prime = prime && candidate % d != 0;
      if (!prime) continue;
      if (found < start.size()) start[found] = fractional_root(candidate, 2);
      round[found++] = fractional_root(candidate, 3);
    }
  }
};

void compress(std::array<uint32_t, 8>& state, const uint8_t* block, const Constants& constants) {
  std::array<uint32_t, 64> w{};
  for (size_t i = 0; i < 16; ++i)
    w[i] = static_cast<uint32_t>(block[4 * i]) << 24 |
           static_cast<uint32_t>(block[4 * i + 1]) << 16 |
           static_cast<uint32_t>(block[4 * i + 2]) << 8 | block[4 * i + 3];
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + constants.round[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> add{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += add[i];
}

const Constants& constants() {
  static const Constants made;
  return made;
}

}  // namespace

Sha256::Sha256() : state_(constants().start) {}

void Sha256::update(const void* data, size_t bytes) {
  const auto* in = static_cast<const uint8_t*>(data);
  bytes_ += bytes;
  while (bytes > 0) {
    const size_t take = std::min(bytes, block_.size() - filled_);
    std::copy_n(in, take, block_.begin() + static_cast<std::ptrdiff_t>(filled_));
    filled_ += take;
    in += take;
    bytes -= take;
    if (filled_ < block_.size()) return;
    compress(state_, block_.data(), constants());
    filled_ = 0;
  }
}

std::string Sha256::hex() const {
  Sha256 end = *this;
  const uint64_t bits = bytes_ * 8;
  constexpr uint8_t one = 0x80, zero = 0;
  end.update(&one, 1);
  while (end.filled_ != 56) end.update(&zero, 1);
  for (int shift = 56; shift >= 0; shift -= 8) {
    const auto byte = static_cast<uint8_t>(bits >> shift);
    end.update(&byte, 1);
  }
  std::string hex;
  for (uint32_t word : end.state_)
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
  return hex;
}

std::string sha256_hex(std::string_view text) {
  Sha256 sum;
  sum.update(text.data(), text.size());
  return sum.hex();
}

std::string sha256_of_file(const std::string& path) {
  const FileHandle file = open_file("sha256", path);
  std::vector<uint8_t> buffer(size_t{1} << 20);
  Sha256 sum;
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get()))
    sum.update(buffer.data(), got);
  FRUGAL_CHECK(!std::ferror(file.get()), "[sha256] cannot read {}", path);
  return sum.hex();
}

}  // namespace frugal::data

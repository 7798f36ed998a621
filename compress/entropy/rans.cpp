#include "compress/entropy/rans.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"

namespace frugal::compress::rans {

void count_bytes(const uint8_t* bytes, size_t size, Histogram& histogram) {
  // Four counters take turns. With one, each byte of a run of equal bytes would wait for the
  // increment before it.
  std::array<std::array<uint32_t, 256>, 4> counts;
  constexpr size_t kMost = size_t{1} << 31;
  for (size_t done = 0; done < size;) {
    const size_t here = std::min(size - done, kMost);
    for (auto& count : counts) count.fill(0);
    size_t i = 0;
    for (; i + 4 <= here; i += 4)
      for (size_t k = 0; k < 4; ++k) ++counts[k][bytes[done + i + k]];
    for (; i < here; ++i) ++counts[0][bytes[done + i]];
    for (size_t b = 0; b < 256; ++b)
      histogram[b] += int64_t{counts[0][b]} + counts[1][b] + counts[2][b] + counts[3][b];
    done += here;
  }
}

double entropy(const Histogram& histogram) {
  double total = 0, sum = 0;
  for (int64_t count : histogram) total += static_cast<double>(count);
  for (int64_t count : histogram)
    if (count > 0)
      sum -= static_cast<double>(count) * std::log2(static_cast<double>(count) / total);
  return total > 0 ? sum / total : 0;
}

Frequencies frequencies(const Histogram& histogram) {
  double total = 0;
  for (int64_t count : histogram) total += static_cast<double>(count);
  Frequencies shares{};
  int32_t left = kScale;
  for (size_t b = 0; b < 256; ++b) {
    if (histogram[b] == 0) continue;
    const double share = static_cast<double>(histogram[b]) / total * kScale;
    shares[b] = static_cast<uint16_t>(std::max(std::floor(share), 1.0));
    left -= shares[b];
  }
  // The shares must add up. The difference comes from rounding and from rare bytes, which get at
  // least 1. It is given out one by one to the bytes that gain most, or taken from those that lose
  // least. The gain is n log((f +- 1) / f), about n / (f +- 1/2).
  std::vector<std::pair<double, size_t>> order;
  while (left != 0) {
    order.clear();
    for (size_t b = 0; b < 256; ++b) {
      if (shares[b] == 0 || (left < 0 && shares[b] == 1)) continue;
      const double n = static_cast<double>(histogram[b]);
      order.emplace_back(left > 0 ? -n / (shares[b] + 0.5) : n / (shares[b] - 0.5), b);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [loss, b] : order) {
      if (left == 0) break;
      shares[b] = static_cast<uint16_t>(shares[b] + (left > 0 ? 1 : -1));
      left += left > 0 ? -1 : 1;
    }
  }
  return shares;
}

double coded_bits(const Histogram& histogram, const Frequencies& frequencies) {
  double bits = 0;
  for (size_t b = 0; b < 256; ++b)
    if (histogram[b] > 0)
      bits += static_cast<double>(histogram[b]) * (kScaleBits - std::log2(frequencies[b]));
  return bits;
}

EncodeTable::EncodeTable(const Frequencies& frequencies) : of{} {
  uint32_t start = 0;
  for (size_t b = 0; b < 256; ++b) {
    const uint32_t f = frequencies[b];
    if (f == 0) continue;
    // x / f = x * reciprocal >> (31 + shift), exact below 2^31.
    uint32_t shift = 0;
    while (f > 1u << shift) ++shift;
    const uint64_t reciprocal = ((uint64_t{1} << (31 + shift)) + f - 1) / f;
    of[b] = {f * (kLow >> kScaleBits) << 16, static_cast<uint32_t>(reciprocal), start, kScale - f,
             31 + shift};
    start += f;
  }
}

DecodeTable::DecodeTable(const Frequencies& frequencies) : of{} {
  uint32_t slot = 0;
  for (uint32_t b = 0; b < 256; ++b)
    for (uint32_t k = 0; k < frequencies[b]; ++k)
      of[slot++] = b | uint32_t{frequencies[b]} << 8 | k << 20;
  FRUGAL_ASSERT(slot == kScale);
}

Encoder::Encoder(uint8_t* end) : at_(end) { states_.fill(kLow); }

namespace {

// All bits are 1 if a < b, and 0 otherwise. A branch would be mispredicted often. REQUIRES: a and b
// below 2^31.
inline uint32_t mask_less(uint32_t a, uint32_t b) { return 0u - ((a - b) >> 31); }

inline uint32_t encode(uint32_t x, const EncodeTable::Entry& entry, uint8_t*& at) {
  // Always writes the word. It becomes part of the stream only if the state was too large.
  const auto word = static_cast<uint16_t>(x);
  std::memcpy(at - 2, &word, 2);
  const uint32_t large = ~mask_less(x, entry.limit);
  at -= large & 2;
  x ^= (x ^ x >> 16) & large;
  const auto quotient = static_cast<uint32_t>(uint64_t{x} * entry.reciprocal >> entry.shift);
  return x + entry.start + quotient * entry.rest;
}

inline uint32_t decode(uint32_t x, uint8_t& byte, const uint32_t* table, const uint8_t*& at) {
  const uint32_t entry = table[x % kScale];
  byte = static_cast<uint8_t>(entry);
  x = (entry >> 8) % kScale * (x >> kScaleBits) + (entry >> 20);
  uint16_t word;
  std::memcpy(&word, at, 2);
  const uint32_t small = mask_less(x, kLow);
  at += small & 2;
  return x ^ ((x ^ (x << 16 | word)) & small);
}

}  // namespace

void Encoder::put(const uint8_t* bytes, size_t size, const EncodeTable& table) {
  std::array<uint32_t, kStates> x = states_;
  uint8_t* at = at_;
  size_t i = size;
  for (; i % kStates != 0; --i) {
    uint32_t& state = x[(i - 1) % kStates];
    state = encode(state, table.of[bytes[i - 1]], at);
  }
  for (; i > 0; i -= kStates)
    for (size_t k = kStates; k-- > 0;) x[k] = encode(x[k], table.of[bytes[i - kStates + k]], at);
  states_ = x;
  at_ = at;
}

uint8_t* Encoder::finish() {
  at_ -= sizeof states_;
  std::memcpy(at_, states_.data(), sizeof states_);
  return at_;
}

Decoder::Decoder(const uint8_t* stream) : at_(stream + sizeof states_) {
  std::memcpy(states_.data(), stream, sizeof states_);
}

void Decoder::get(uint8_t* bytes, size_t size, const DecodeTable& table) {
  // The states stay in memory. Eight states and the values of a step do not fit into the registers
  // of x86-64.
  uint32_t* const x = states_.data();
  const uint8_t* at = at_;
  const uint32_t* of = table.of.data();
  size_t i = 0;
  for (; i + kStates <= size; i += kStates)
    for (size_t k = 0; k < kStates; ++k) x[k] = decode(x[k], bytes[i + k], of, at);
  for (; i < size; ++i) x[i % kStates] = decode(x[i % kStates], bytes[i], of, at);
  at_ = at;
}

}  // namespace frugal::compress::rans

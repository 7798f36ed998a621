#include "compress/entropy/rans.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.h"

namespace frugal::compress::rans {

void Counter::add(const uint8_t* bytes, size_t size) {
  constexpr size_t kMost = size_t{1} << 31;
  while (size > 0) {
    const size_t here = std::min(size, kMost);
    if (counted_ + here > kMost) {
      Histogram all{};
      add_to(all);
      earlier_ = all;
      for (auto& count : counts_) count.fill(0);
      counted_ = waits_ = 0;
    }
    add_few(bytes, here);
    counted_ += here;
    bytes += here, size -= here;
  }
}

void Counter::add_few(const uint8_t* bytes, size_t size) {
  if (!counts_blocks()) return count(bytes, size);
  while (size > 0) {
    if (waits_ == 0 && size >= kCountBlock) {
      count_block(bytes, counts_[0].data());
      bytes += kCountBlock, size -= kCountBlock;
      continue;
    }
    const size_t here = std::min(size, kCountBlock - waits_);
    std::memcpy(waiting_.data() + waits_, bytes, here);
    bytes += here, size -= here, waits_ += here;
    if (waits_ < kCountBlock) break;
    count_block(waiting_.data(), counts_[0].data());
    waits_ = 0;
  }
}

void Counter::count(const uint8_t* bytes, size_t size) {
  // Eight counters take turns. With one, each byte of a run of equal bytes would wait for the
  // increment before it.
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes + i, 8);
    for (auto& count : counts_) {
      ++count[word & 0xff];
      word >>= 8;
    }
  }
  for (; i < size; ++i) ++counts_[0][bytes[i]];
}

void Counter::add_to(Histogram& histogram) const {
  for (size_t b = 0; b < 256; ++b) {
    int64_t sum = earlier_[b];
    for (const auto& count : counts_) sum += count[b];
    histogram[b] += sum;
  }
  for (size_t i = 0; i < waits_; ++i) ++histogram[waiting_[i]];
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
    const size_t changes = std::min(order.size(), static_cast<size_t>(std::abs(left)));
    if (changes < order.size())
      std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(changes),
                       order.end());
    for (size_t i = 0; i < changes; ++i) {
      const size_t b = order[i].second;
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

EncodeTable::EncodeTable(const Frequencies& frequencies)
    : of{}, frequency(frequencies), start{}, parts{} {
  uint32_t begin = 0;
  for (size_t b = 0; b < 256; ++b) {
    of[b] = frequency[b] | begin << 16;
    start[b] = static_cast<uint16_t>(begin);
    const uint32_t both = frequency[b] | begin << kScaleBits;
    for (size_t k = 0; k < 3; ++k) parts[k][b] = static_cast<uint8_t>(both >> 8 * k);
    begin = (begin + frequency[b]) % kScale;  // the next context begins at 0
  }
}

Frequencies context_frequencies(const Histogram& histogram, int symbol_bits) {
  const size_t symbols = size_t{1} << symbol_bits;
  Frequencies all{};
  for (size_t first = 0; first < histogram.size(); first += symbols) {
    Histogram part{};
    size_t occur = 0, last = 0;
    for (size_t s = 0; s < symbols; ++s) {
      part[s] = histogram[first + s];
      if (part[s] > 0) ++occur, last = s;
    }
    if (occur == 0) continue;
    if (occur == 1) part[last ^ 1] = 1;  // a frequency is less than kScale
    const Frequencies of = frequencies(part);
    std::copy_n(of.begin(), symbols, all.begin() + static_cast<std::ptrdiff_t>(first));
  }
  return all;
}

ContextTable::ContextTable(const Frequencies& frequencies, int symbol_bits) {
  const uint32_t symbols = 1u << symbol_bits;
  of.resize((frequencies.size() >> symbol_bits) * kScale);
  for (uint32_t first = 0; first < frequencies.size(); first += symbols) {
    uint32_t* const begin = of.data() + (first >> symbol_bits) * kScale;
    uint32_t sum = 0;
    for (uint32_t b = first; b < first + symbols; ++b) {
      for (uint32_t k = 0; k < frequencies[b] && sum + k < kScale; ++k)
        begin[sum + k] = b | uint32_t{frequencies[b]} << 8 | k << 20;
      sum += frequencies[b];
    }
    FRUGAL_CHECK(sum == 0 || sum == kScale,
                 "[entropy] expected frequencies of a context with a sum of 0 or {}, got {}",
                 kScale, sum);
  }
}

DecodeTable::DecodeTable(const Frequencies& frequencies) {
  const uint32_t sum = std::accumulate(frequencies.begin(), frequencies.end(), 0u);
  FRUGAL_CHECK(sum == kScale, "[entropy] expected frequencies with a sum of {}, got {}", kScale,
               sum);
  uint32_t* slot = of.data();
  for (uint32_t b = 0; b < 256; ++b)
    for (uint32_t k = 0; k < frequencies[b]; ++k)
      *slot++ = b | uint32_t{frequencies[b]} << 8 | k << 20;
}

}  // namespace frugal::compress::rans

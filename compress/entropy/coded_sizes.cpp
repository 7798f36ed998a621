#include "compress/entropy/coded_sizes.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace frugal::compress {

void CodedSizes::saw(uint64_t seq, Size size) {
  int64_t& now = seen_[seq][size.bits].now;
  now = std::max(now, size.bytes);
}

std::optional<CodedSizes::Size> CodedSizes::most(uint64_t seq, int bits) const {
  const auto found = seen_.find(seq);
  if (found == seen_.end()) return {};
  const auto after = found->second.upper_bound(bits);
  if (after == found->second.begin()) return {};
  const auto& [width, seen] = *std::prev(after);
  return Size{width, std::max(seen.now, seen.before)};
}

void CodedSizes::next_period() {
  for (auto& [seq, widths] : seen_) {
    std::erase_if(widths, [](const auto& each) { return each.second.now == 0; });
    for (auto& [bits, seen] : widths) seen = {0, seen.now};
  }
}

std::vector<double> CodedSizes::numbers() const {
  std::vector<double> numbers;
  for (const auto& [seq, widths] : seen_)
    for (const auto& [bits, seen] : widths)
      for (const double number : {static_cast<double>(seq), static_cast<double>(bits),
                                  static_cast<double>(seen.now), static_cast<double>(seen.before)})
        numbers.push_back(number);
  return numbers;
}

void CodedSizes::restore(std::span<const double> numbers) {
  constexpr double kLargest = 0x1p53;
  constexpr int kMaxBits = 16;
  FRUGAL_CHECK(
      numbers.size() % 4 == 0 &&
          std::all_of(numbers.begin(), numbers.end(),
                      [](double x) { return x >= 0 && x <= kLargest && x == std::trunc(x); }),
      "[budget] expected sizes as numbers() gives them, got {} numbers", numbers.size());
  seen_.clear();
  for (size_t i = 0; i < numbers.size(); i += 4) {
    FRUGAL_CHECK(numbers[i + 1] >= 1 && numbers[i + 1] <= kMaxBits,
                 "[budget] expected sizes at 1 to 16 bits, got {}", numbers[i + 1]);
    seen_[static_cast<uint64_t>(numbers[i])][static_cast<int>(numbers[i + 1])] = {
        static_cast<int64_t>(numbers[i + 2]), static_cast<int64_t>(numbers[i + 3])};
  }
}

}  // namespace frugal::compress

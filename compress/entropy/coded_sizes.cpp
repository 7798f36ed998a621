#include "compress/entropy/coded_sizes.h"

#include <algorithm>

#include "compress/quantize/group_layout.h"
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

std::vector<CodedSizes::Entry> CodedSizes::entries() const {
  std::vector<Entry> entries;
  for (const auto& [seq, widths] : seen_)
    for (const auto& [bits, seen] : widths) entries.push_back({seq, bits, seen.now, seen.before});
  return entries;
}

void CodedSizes::restore(const std::vector<Entry>& entries) {
  for (const Entry& entry : entries)
    FRUGAL_CHECK(
        entry.bits >= 1 && entry.bits <= kMaxBits && entry.now >= 0 && entry.before >= 0,
        "[budget] expected bytes of at least 0 at 1 to 16 bits for tensor {}, got {} and {} at {}",
        entry.seq, entry.now, entry.before, entry.bits);
  seen_.clear();
  for (const Entry& entry : entries) seen_[entry.seq][entry.bits] = {entry.now, entry.before};
}

}  // namespace frugal::compress

#include "compress/quantize/code_map.h"

#include <algorithm>
#include <array>

namespace frugal::compress::entropy {

namespace {
constexpr int64_t kBlockBytes = 16384;
}

CodeMap::CodeMap(const std::vector<Grouped::Part>& parts) {
  std::array<size_t, 17> table_of{};  // by width, plus 1; 0: none yet
  for (const Grouped::Part& part : parts) {
    const GroupLayout& layout = part.layout;
    const Planes planes = planes_of(layout.bits);
    size_t& table = table_of[static_cast<size_t>(layout.bits)];
    if (table == 0) {
      table = tables_ + 1;
      tables_ += static_cast<size_t>(planes.count);
    }
    const int64_t metadata = layout.meta_offset(layout.groups);
    places_.push_back({part.offset, layout, planes, groups_, part.offset + metadata, codes_,
                       metadata_, static_cast<int64_t>(table - 1)});
    for (int64_t g = 0; g < layout.groups; ++g, ++groups_) {
      for (int64_t left = layout.code_bytes(layout.rows_of(g)); left > 0;) {
        if (blocks_.empty() || blocks_.back().bytes == kBlockBytes)
          blocks_.push_back(
              {groups_, groups_, codes_, 0, static_cast<int64_t>(places_.size()) - 1});
        Block& block = blocks_.back();
        const int64_t bytes = std::min(left, kBlockBytes - block.bytes);
        block.last = groups_ + 1;
        block.bytes += bytes;
        codes_ += bytes;
        left -= bytes;
      }
    }
    metadata_ += metadata;
  }
}

int64_t CodeMap::place_of(int64_t group) const {
  const auto after =
      std::upper_bound(places_.begin(), places_.end(), group,
                       [](int64_t g, const Place& place) { return g < place.first; });
  return after - places_.begin() - 1;
}

}  // namespace frugal::compress::entropy

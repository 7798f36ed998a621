#include "compress/quantize/code_map.h"

#include <algorithm>
#include <array>

namespace frugal::compress::entropy {

namespace {

constexpr int64_t kMostBlockBytes = 65536;
constexpr int64_t kTogether = 4;

// Blocks of about equal size. More than two are a multiple of four, so that a few threads have
// about equally much to do.
int64_t block_bytes(const std::vector<Grouped::Part>& parts) {
  int64_t all = 0;
  for (const Grouped::Part& part : parts) {
    const GroupLayout& layout = part.layout;
    if (layout.groups == 0) continue;
    all += (layout.groups - 1) * layout.code_bytes(layout.group_rows) +
           layout.code_bytes(layout.rows_of(layout.groups - 1));
  }
  int64_t blocks = (all + kMostBlockBytes - 1) / kMostBlockBytes;
  if (blocks > 2) blocks = (blocks + kTogether - 1) / kTogether * kTogether;
  constexpr int64_t kUnit = 64;
  return blocks == 0 ? 0 : (all + blocks * kUnit - 1) / (blocks * kUnit) * kUnit;
}

}  // namespace

CodeMap::CodeMap(const std::vector<Grouped::Part>& parts) {
  const int64_t most = block_bytes(parts);
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
        if (blocks_.empty() || blocks_.back().bytes == most)
          blocks_.push_back(
              {groups_, groups_, codes_, 0, static_cast<int64_t>(places_.size()) - 1});
        Block& block = blocks_.back();
        const int64_t bytes = std::min(left, most - block.bytes);
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

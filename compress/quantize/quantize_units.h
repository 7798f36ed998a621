// How the CPU kernels divide a layout into units of work: a unit is a row group of about 64
// columns. Internal.
#pragma once
#include <algorithm>
#include <utility>

#include "compress/quantize/group_layout.h"

namespace frugal::compress {

inline constexpr int kStrip =
    64;  // columns of a unit: 64 KiB of f32 in 256 rows, which is half of a small L2 cache
inline constexpr int kLanes =
    16;  // columns of the widest vector; the width of a vector never changes a result
inline constexpr int kMostColumns = kStrip + kLanes;  // the most columns of a unit, see strips_of()
inline constexpr uint32_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57;  // the multipliers of Philox 4x32
inline constexpr uint32_t kW0 = 0x9E3779B9, kW1 = 0xBB67AE85;  // its key increments

struct Unit {
  int64_t group, row0, rows, col0;
  int cols;
};
// The last unit of a row group also takes columns that are too few for a vector.
inline int64_t strips_of(const GroupLayout& layout) {
  const int64_t whole = layout.cols / kStrip, rest = layout.cols % kStrip;
  return std::max<int64_t>(whole + (rest >= kLanes ? 1 : 0), 1);
}
inline Unit unit_at(const GroupLayout& layout, int64_t index) {
  const int64_t strips = strips_of(layout), group = index / strips;
  const int64_t strip = index % strips, col0 = strip * kStrip;
  return {group, group * layout.group_rows, layout.rows_of(group), col0,
          static_cast<int>(strip + 1 < strips ? kStrip : layout.cols - col0)};
}

inline int64_t units_of(const GroupLayout& layout) { return layout.groups * strips_of(layout); }

// The units of `count` row groups from `first` on; `count` negative: of all from there on.
inline std::pair<int64_t, int64_t> units_of_groups(const GroupLayout& layout, int64_t first,
                                                   int64_t count) {
  const int64_t end = count < 0 ? layout.groups : first + count;
  return {first * strips_of(layout), end * strips_of(layout)};
}

// The units that hold elements of [begin, end) of the view.
inline std::pair<int64_t, int64_t> units_in(const GroupLayout& layout, int64_t begin, int64_t end) {
  if (begin >= end) return {0, 0};
  const int64_t group = layout.group_rows * layout.cols;
  return {begin / group * strips_of(layout), ((end - 1) / group + 1) * strips_of(layout)};
}

// The blocks of 8 rows of `unit` that hold elements of [begin, end). REQUIRES: a block begins at
// `begin`.
struct BlockRange {
  int64_t begin, end;
};
inline BlockRange blocks_in(const GroupLayout& layout, const Unit& unit, int64_t begin,
                            int64_t end) {
  const int64_t first = begin / layout.cols - unit.row0;
  const int64_t rows = (end + layout.cols - 1) / layout.cols - unit.row0;
  return {std::max<int64_t>(first, 0) / 8, (std::min(rows, unit.rows) + 7) / 8};
}

// Whether stores bypass the caches. Where no cache holds the memory that is overwritten, that saves
// reading it. Counting the pass that reads the result next, it takes 0.6 times as long there, and
// 1.3 times as long where a cache still holds the memory: smaller results. Such stores need whole
// aligned vectors.
inline bool bypasses_caches(const GroupLayout& layout, const void* x, int64_t elements) {
  constexpr int64_t kLarge = int64_t{2} << 20;
  return layout.cols % kLanes == 0 && reinterpret_cast<uintptr_t>(x) % 64 == 0 &&
         elements >= kLarge;
}

// The least number of units for a thread: 64 Ki elements.
inline int64_t grain_of(const GroupLayout& layout) {
  const int64_t per_unit = layout.group_rows * std::min<int64_t>(layout.cols, kStrip);
  return std::max<int64_t>((int64_t{64} << 10) / std::max<int64_t>(per_unit, 1), 1);
}

}  // namespace frugal::compress

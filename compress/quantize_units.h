// How the CPU kernels cut a layout into units of work: a row group of up to 64 columns. Internal.
#pragma once
#include <algorithm>

#include "compress/group_layout.h"

namespace frugal::compress {

inline constexpr int kStrip =
    64;  // columns of a unit: 64 KiB of f32 in 256 rows, half of a small L2
inline constexpr int kLanes =
    16;  // columns of the widest vector; SIMD width never changes a result
inline constexpr uint32_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57;  // Philox 4x32's multipliers
inline constexpr uint32_t kW0 = 0x9E3779B9, kW1 = 0xBB67AE85;  // and key increments

struct Unit {
  int64_t group, row0, rows, col0;
  int cols;
};
inline int64_t strips_of(const GroupLayout& layout) { return (layout.cols + kStrip - 1) / kStrip; }
inline Unit unit_at(const GroupLayout& layout, int64_t index) {
  const int64_t strips = strips_of(layout), group = index / strips;
  const int64_t col0 = index % strips * kStrip;
  return {group, group * layout.group_rows, layout.rows_of(group), col0,
          static_cast<int>(std::min<int64_t>(kStrip, layout.cols - col0))};
}

inline int64_t units_of(const GroupLayout& layout) { return layout.groups * strips_of(layout); }

// Units per thread at least: 64 Ki elements.
inline int64_t grain_of(const GroupLayout& layout) {
  const int64_t per_unit = layout.group_rows * std::min<int64_t>(layout.cols, kStrip);
  return std::max<int64_t>((int64_t{64} << 10) / std::max<int64_t>(per_unit, 1), 1);
}

}  // namespace frugal::compress

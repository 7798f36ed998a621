// How a quantized tensor lies in memory. This is part of the format: every backend writes these
// bytes.
//
// View. Column axis: the tensor is [rows, cols] with cols = the last extent; a group is up to
// `group` consecutive rows of one column, however few rows there are. So a group never mixes
// channels. Row axis: the elements in order, seen as rows of 16 lanes (the last row may be short);
// a group is up to `group` consecutive elements, with `group` rounded up to a multiple of 128.
//
// Payload, u8. First the metadata, for each row group: bf16 lo[k], then bf16 scale[k], with k =
// cols on the column axis and 1 on the row axis. Then the codes, row group after row group. The
// bits of a code are split into planes of 8, 4, 2 and 1 bits (3 = 2+1, 7 = 4+2+1, 16 = 8+8), the
// widest first; the first plane takes the lowest bits. In a row group of n rows, a plane of width w
// is ceil(n * w / 8) byte rows of `cols` bytes. Byte [i][c] holds the 8 / w rows from i * 8 / w on
// of column c, with the first row in the lowest bits. Missing rows and lanes hold code 0. A plane
// of width 1 is laid out like ops/dense/bitmask.h.
//
// Split groups (compress/quantize/quantize_split.h) use the column axis and hold two classes of
// elements. The metadata of a row group is then bf16 lo0[k], range0[k], lo1[k], range1[k];
// everything else is the same.
#pragma once
#include <array>
#include <cstdint>

#include "compress/quantize/quantize_options.h"
#include "core/shape.h"

namespace frugal::compress {

inline constexpr int64_t kRowAxisLanes = 16;
inline constexpr int kMaxBits = 16;  // the widest code
// Policies keep tensors of fewer rows raw: with 8 rows, the metadata of groups by column takes half
// of the bytes that codes of 4 bits take.
inline constexpr int64_t kLeastRows = 8;

// The widths of the planes of a code, widest first. REQUIRES: 1 <= bits <= kMaxBits.
struct Planes {
  std::array<int, 4> width{};
  int count = 0;
};
constexpr Planes planes_of(int bits) {
  Planes planes;
  for (int width : {8, 8, 4, 2, 1}) {
    if (bits < width || planes.count == 4) continue;
    planes.width[static_cast<size_t>(planes.count++)] = width;
    bits -= width;
  }
  return planes;
}

struct GroupLayout {
  int64_t numel = 0;
  int64_t rows = 0;        // rows of the view
  int64_t cols = 0;        // columns of the view, which are bytes in a byte row
  int64_t group_rows = 0;  // rows of a full row group, a multiple of 8
  int64_t groups = 0;      // row groups
  int bits = 0;
  bool shared = false;  // row axis: the lanes of a row group share one lo and scale
  bool split = false;   // a group has two classes of elements

  constexpr int64_t rows_of(int64_t group) const {
    return group + 1 < groups ? group_rows : rows - group * group_rows;
  }
  constexpr int64_t metas() const {
    return shared ? 1 : cols;
  }  // columns of a row group's metadata
  constexpr int64_t meta_offset(int64_t group) const { return group * metas() * (split ? 8 : 4); }
  constexpr int64_t code_offset(int64_t group) const {
    return meta_offset(groups) + group * (group_rows / 8 * bits) * cols;
  }
  int64_t code_bytes(int64_t rows_in_group) const;  // bytes of the codes of one row group
  int64_t bytes() const;                            // bytes of the payload
};

// The number of rows of a tensor of this shape, seen as [rows, C] with C its last extent.
int64_t rows_of(const Shape& shape);

// Whether groups along `axis` are groups of one column for a tensor of this shape.
bool groups_by_column(const Shape& shape, GroupAxis axis);

// REQUIRES: options that Quantizer accepts.
GroupLayout make_layout(const Shape& shape, GroupAxis axis, int64_t group, int bits);

// Whether the groups of `layout`, made for `shape`, can be split by a bitmask. That needs at least
// 2 bits, the column axis, and a mask whose byte rows are the blocks of 8 rows of the view
// (ops/dense/bitmask.h).
bool can_split(const GroupLayout& layout, const Shape& shape);

}  // namespace frugal::compress

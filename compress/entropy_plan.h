// The format of entropy-coded payloads and how each tensor's is chosen. Internal.
//
// Payload: the metadata, the end of each block's stream (int64), a table for each plane, the
// streams, and kReadBeyond bytes. A stream is the bytes of raw planes, then those of the coder; or,
// if that is no less, the codes as they are.
#pragma once
#include <array>
#include <cstdint>

#include "compress/group_layout.h"
#include "compress/rans.h"

namespace frugal::compress::entropy {

// Row groups are coded in blocks.
int64_t groups_per_block(const GroupLayout& layout);
int64_t blocks_of(const GroupLayout& layout);
inline constexpr int64_t kGrain = 4;  // blocks per thread at least

struct Block {
  int64_t first, last;    // row groups
  int64_t offset, bytes;  // of their codes
};
Block block_at(const GroupLayout& layout, int64_t index);

// Bytes [offset, offset + size) of the payload: one plane of one row group.
struct Segment {
  size_t plane;
  int64_t offset, size;
};

// Of row groups [first, last), in order.
template <class F>
void for_segments(const GroupLayout& layout, int64_t first, int64_t last, F&& f) {
  const Planes planes = planes_of(layout.bits);
  for (int64_t g = first; g < last; ++g) {
    int64_t offset = layout.code_offset(g);
    for (size_t p = 0; p < static_cast<size_t>(planes.count); ++p) {
      const int64_t size = (layout.rows_of(g) * planes.width[p] + 7) / 8 * layout.cols;
      f(Segment{p, offset, size});
      offset += size;
    }
  }
}

enum class Kind : uint8_t { raw, constant, coded };

// What is done with a plane.
struct Plan {
  Kind kind = Kind::raw;
  uint8_t byte = 0;  // constant
  rans::Frequencies frequencies{};
  double bits = 0;  // predicted
  int64_t table_bytes() const;
};
Plan plan_of(const rans::Histogram& histogram);
// Both return where the next table begins.
uint8_t* write_table(const Plan& plan, uint8_t* to);
const uint8_t* read_table(const uint8_t* from, Plan& plan);

// Of each plane.
using Histograms = std::array<rans::Histogram, 4>;
Histograms count_planes(const uint8_t* payload, const GroupLayout& layout);

// The share of the payload that coding would save, guessed from evenly spread pieces of it.
double estimate(const uint8_t* payload, const GroupLayout& layout);

}  // namespace frugal::compress::entropy

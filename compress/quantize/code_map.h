// Where the codes of a packed tensor lie, for coding them by entropy: the planes of row groups
// (group_layout.h), one part after the other. Internal.
#pragma once
#include <cstdint>
#include <vector>

#include "compress/quantize/grouped.h"
#include "core/host_device.h"

namespace frugal::compress::entropy {

struct Place {         // where a part lies
  int64_t offset = 0;  // where it begins in the payload
  GroupLayout layout;
  Planes planes;
  int64_t first = 0;          // number of its first row group
  int64_t codes = 0, at = 0;  // where its codes begin in the payload, and among all codes
  int64_t metadata = 0;       // where its metadata begin among the metadata of all parts
  int64_t table = 0;          // the table of its first plane
};
// A run of bytes that are coded together. It may begin and end anywhere.
struct Block {
  int64_t first = 0, last = 0;  // row groups of which some bytes belong to it
  int64_t at = 0, bytes = 0;    // the run, among all codes
  int64_t place = 0;            // the part that holds the first row group
};
// One plane of one row group, at `offset` in the payload and `at` among all codes.
struct Segment {
  int64_t table = 0;
  int64_t offset = 0, at = 0, size = 0;
};

// Walks over the segments of a block, in order, or with kBackwards from the last one to the first.
// Also for kernels.
template <bool kBackwards>
class SegmentWalk {
 public:
  // places: those of all parts.
  FRUGAL_HD SegmentWalk(const Place* places, const Block& block)
      : place_(places + block.place),
        begin_(block.at),
        end_(block.at + block.bytes),
        group_(kBackwards ? block.last - 1 : block.first),
        left_(block.last - block.first) {
    find_place();
  }
  FRUGAL_HD bool next(Segment& segment) {
    while (left_ > 0) {
      segment = here();
      const bool group_ends = kBackwards ? plane_ == 0 : plane_ + 1 == place_->planes.count;
      plane_ += kBackwards ? -1 : 1;
      if (group_ends) {
        group_ += kBackwards ? -1 : 1;
        --left_;
        find_place();
      }
      if (cut(segment)) return true;
    }
    return false;
  }

 private:
  // Cuts the segment to the block. Returns false if nothing is left.
  FRUGAL_HD bool cut(Segment& segment) const {
    const int64_t before = begin_ > segment.at ? begin_ - segment.at : 0;
    const int64_t end = segment.at + segment.size < end_ ? segment.at + segment.size : end_;
    segment.offset += before;
    segment.at += before;
    segment.size = end - segment.at;
    return segment.size > 0;
  }
  FRUGAL_HD void find_place() {
    if (left_ == 0) return;
    while (group_ < place_->first) --place_;
    while (group_ >= place_->first + place_->layout.groups) ++place_;
    plane_ = kBackwards ? place_->planes.count - 1 : 0;
  }
  FRUGAL_HD Segment here() const {
    const GroupLayout& layout = place_->layout;
    const int64_t group = group_ - place_->first, rows = layout.rows_of(group);
    int64_t offset = place_->codes + group * (layout.group_rows / 8 * layout.bits) * layout.cols;
    int64_t size = 0;
    for (int p = 0; p <= plane_; ++p) {
      offset += size;
      size = (rows * place_->planes.width[static_cast<size_t>(p)] + 7) / 8 * layout.cols;
    }
    return {place_->table + plane_, offset, offset - place_->codes + place_->at, size};
  }

  const Place* place_;
  int64_t begin_, end_;  // the block, among all codes
  int64_t group_, left_;
  int plane_ = 0;
};

// The codes of all row groups of all parts, in order, without the metadata, cut into blocks of at
// most 64 KiB. Larger blocks would leave threads without work, smaller ones cost bytes: each has 32
// states.
class CodeMap {
 public:
  explicit CodeMap(const std::vector<Grouped::Part>& parts);

  const std::vector<Place>& places() const { return places_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  int64_t block_count() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t groups() const { return groups_; }
  int64_t metadata_bytes() const { return metadata_; }
  int64_t code_bytes() const { return codes_; }
  size_t tables() const { return tables_; }
  bool is_one_part() const { return places_.size() == 1; }

  // Calls f(segment) for the segments of a block, of blocks [first, last), or of a row group, in
  // order.
  template <class F>
  void for_segments(const Block& block, F&& f) const {
    Segment segment;
    SegmentWalk<false> walk(places_.data(), block);
    while (walk.next(segment)) f(segment);
  }
  template <class F>
  void for_segments(int64_t first, int64_t last, F&& f) const {
    Block run = blocks_[static_cast<size_t>(first)];
    const Block& end = blocks_[static_cast<size_t>(last - 1)];
    run.last = end.last;
    run.bytes = end.at + end.bytes - run.at;
    for_segments(run, f);
  }
  template <class F>
  void for_segments_of_group(int64_t group, F&& f) const {
    for_segments(Block{group, group + 1, 0, codes_, place_of(group)}, f);
  }

 private:
  int64_t place_of(int64_t group) const;

  std::vector<Place> places_;
  std::vector<Block> blocks_;
  int64_t groups_ = 0, metadata_ = 0, codes_ = 0;
  size_t tables_ = 0;
};

// The most tables there can be: one for each plane of each width.
constexpr int most_tables() {
  int count = 0;
  for (int bits = 1; bits <= 16; ++bits) count += planes_of(bits).count;
  return count;
}

}  // namespace frugal::compress::entropy

// Where the codes of a packed tensor lie, for coding them: planes of row groups (group_layout.h),
// of one part after the other. Internal.
#pragma once
#include <cstdint>
#include <vector>

#include "compress/quantize/grouped.h"
#include "core/host_device.h"

namespace frugal::compress::entropy {

struct Place {         // of a part
  int64_t offset = 0;  // in the payload
  GroupLayout layout;
  Planes planes;
  int64_t first = 0;          // its first row group
  int64_t codes = 0, at = 0;  // where its codes begin: in the payload, among the codes
  int64_t metadata = 0;       // where its metadata begin, among those of all parts
  int64_t table = 0;          // of its first plane
};
// Bytes that are coded together: a run of them, wherever it begins and ends.
struct Block {
  int64_t first = 0, last = 0;  // row groups that have some
  int64_t at = 0, bytes = 0;    // among the codes
  int64_t place = 0;            // of the first row group
};
// One plane of one row group: at `offset` in the payload, `at` among the codes.
struct Segment {
  int64_t table = 0;
  int64_t offset = 0, at = 0, size = 0;
};

// What a block has of the planes of its row groups, in order or the last one first. In kernels too.
template <bool kBackwards>
class SegmentWalk {
 public:
  // places: of all parts.
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
  // To the block. False if nothing is left.
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
  int64_t begin_, end_;  // among the codes
  int64_t group_, left_;
  int plane_ = 0;
};

// The codes of all row groups of all parts, in order, without the metadata, cut into blocks.
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

  // f(segment) of a block, or of blocks [first, last), or of a row group, in order.
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

// At most: a table for each plane of each width.
constexpr int most_tables() {
  int count = 0;
  for (int bits = 1; bits <= 16; ++bits) count += planes_of(bits).count;
  return count;
}

}  // namespace frugal::compress::entropy

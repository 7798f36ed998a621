// The format of entropy-coded payloads and how each tensor's is chosen. Internal.
//
// Payload: the metadata of each part, the end of each block's stream (int64), a table for each
// plane of each width, the streams, and kReadBeyond bytes. A stream is the bytes of raw planes,
// then those of the coder; or, if that is no less, the codes as they are.
#pragma once
#include <cstdint>
#include <vector>

#include "compress/grouped.h"
#include "compress/rans.h"

namespace frugal::compress::entropy {

inline constexpr int64_t kGrain = 4;  // blocks per thread at least

// Where the codes of a payload lie: those of all row groups of all parts, in order, without the
// metadata, cut into blocks of whole row groups.
class CodeMap {
 public:
  explicit CodeMap(std::vector<Grouped::Part> parts);

  struct Block {
    int64_t first, last;  // row groups
    int64_t at, bytes;    // among the codes
  };
  const std::vector<Block>& blocks() const { return blocks_; }
  int64_t block_count() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t groups() const { return groups_; }
  int64_t metadata_bytes() const { return metadata_; }
  int64_t code_bytes() const { return codes_; }
  size_t tables() const { return tables_; }
  bool is_one_part() const { return places_.size() == 1; }

  // One plane of one row group: at `offset` in the payload, `at` among the codes.
  struct Segment {
    size_t table;
    int64_t offset, at, size;
  };
  // Of row groups [first, last), in order.
  template <class F>
  void for_segments(int64_t first, int64_t last, F&& f) const {
    for (size_t i = part_of(first); first < last; ++i) {
      const Place& place = places_[i];
      const GroupLayout& layout = place.layout;
      const Planes planes = planes_of(layout.bits);
      for (int64_t g = first - place.first; first < last && g < layout.groups; ++g, ++first) {
        int64_t offset = place.offset + layout.code_offset(g);
        for (size_t p = 0; p < static_cast<size_t>(planes.count); ++p) {
          const int64_t size = (layout.rows_of(g) * planes.width[p] + 7) / 8 * layout.cols;
          f(Segment{place.table + p, offset, offset - place.codes + place.at, size});
          offset += size;
        }
      }
    }
  }

  // Between a payload and the bytes of its metadata, one part after the other.
  void copy_metadata(const uint8_t* payload, uint8_t* to) const;
  void put_metadata(const uint8_t* from, uint8_t* payload) const;
  // Moves the codes of all parts together. Returns where they begin; of more than one part, the
  // metadata are lost.
  uint8_t* close_up(uint8_t* payload) const;

 private:
  struct Place {
    int64_t offset;  // of the part in the payload
    GroupLayout layout;
    int64_t first;      // its first row group
    int64_t codes, at;  // where its codes begin: in the payload, among the codes
    size_t table;       // of its first plane
  };
  size_t part_of(int64_t group) const;

  std::vector<Place> places_;
  std::vector<Block> blocks_;
  int64_t groups_ = 0, metadata_ = 0, codes_ = 0;
  size_t tables_ = 0;
};

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

// Of each table.
std::vector<rans::Histogram> count_planes(const uint8_t* payload, const CodeMap& map);

// The share of the codes that coding would save, guessed from evenly spread pieces of them.
double estimate(const uint8_t* payload, const CodeMap& map);

}  // namespace frugal::compress::entropy

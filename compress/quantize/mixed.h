// Mixed widths: a tensor whose samples are packed at different widths, in one payload.
//
// Samples of one width are gathered, in their order, into segments of whole row groups
// (group_layout.h) as far as they go, about 64 Ki elements each; neighbours that are whole row
// groups are taken where they lie. A segment is packed as a tensor of its own, with its own random
// stream; a sample is thus rounded together with others of its width only. Widths and places are
// beside the payload, 4 bytes a sample. Where all samples have one width, the result is the plain
// quantizer's.
#pragma once
#include <deque>
#include <span>

#include "compress/quantize/quantize.h"

namespace frugal::compress {

// The samples of a tensor: `count` runs of `each` entries of the leading axis, the last one with
// what is left over.
struct Samples {
  int64_t count = 1, each = 1;
  int64_t stride = 0;  // elements of an entry of the leading axis
  int64_t cols = 1;    // the last extent
  int64_t numel = 0;
  int64_t size() const { return each * stride; }
  int64_t rows() const { return cols > 0 ? size() / cols : 0; }
  int64_t begin(int64_t n) const { return n * size(); }
  int64_t end(int64_t n) const { return n + 1 == count ? numel : begin(n + 1); }
};
inline constexpr int64_t kMaxSamples = 1024;
// One entry of the leading axis each, or several where there are more than kMaxSamples. Codes that
// carry a sign want at least 64 rows of [rows, C] in a sample, a multiple of 8.
Samples samples_of(const Shape& shape, bool with_sign);

struct MixedOptions {
  int64_t group = 256;  // these three: see QuantizeOptions
  Rounding rounding = Rounding::stochastic;
  uint64_t seed = 0;
};

// How samples of these widths lie in a payload.
struct MixedLayout {
  struct Segment {
    int64_t first = 0, count = 0;  // in `order`
    int64_t offset = 0;            // in the payload, a multiple of 16
    GroupLayout layout;
    CodeStream stream;  // of its rounding
  };
  Samples samples;
  std::vector<int32_t> order;  // samples by width, then by number
  std::vector<Segment> segments;
  int64_t bytes = 0;   // of the payload
  bool split = false;  // the codes carry a sign
};

// Thread safety: as Quantizer.
class MixedQuantizer {
 public:
  explicit MixedQuantizer(const MixedOptions& options = {});  // Errors: those of Quantizer
  // widths: of each sample of samples_of(tensor's shape, info.sign is set). The result is Grouped.
  // Errors: those of Quantizer::pack; another number of widths; a width outside 1..16.
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info,
                               std::span<const int> widths) const;
  // The bytes that pack() would allocate.
  int64_t packed_bytes(const Shape& shape, std::span<const int> widths,
                       bool with_sign = false) const;
  // Whether codes of such a tensor carry a sign if every width has 2 bits or more.
  bool can_carry_sign(const Shape& shape) const;
  const Quantizer& uniform(int bits) const;  // Errors: a width outside 1..16
  // Groups packed so far that held a non-finite value.
  int64_t nonfinite_groups() const;

 private:
  MixedLayout layout_of(const Shape& shape, std::span<const int> widths, bool with_sign) const;

  MixedOptions options_;
  std::deque<Quantizer> uniform_;  // of 1 to 16 bits
  mutable NonfiniteCount nonfinite_;
};

}  // namespace frugal::compress

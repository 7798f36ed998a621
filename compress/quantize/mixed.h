// Mixed widths: the samples of a tensor are packed at different widths, in one payload.
//
// Samples of one width are gathered, in their order, into segments of about 64 Ki elements; a
// segment has whole row groups (group_layout.h) as far as possible. Neighbouring samples that are
// whole row groups are read in place. A segment is packed as a tensor of its own, with its own
// random stream. So a sample shares groups only with samples of its width. Widths and places are
// kept beside the payload, 4 bytes for each sample. If all samples have one width, the result is
// that of the plain quantizer.
#pragma once
#include <deque>
#include <span>

#include "compress/quantize/quantize.h"

namespace frugal::compress {

// How a tensor is divided into samples: `count` runs of `each` entries of the leading axis. The
// last one has the entries that are left.
struct Samples {
  int64_t count = 1, each = 1;
  int64_t stride = 0;  // elements in one entry of the leading axis
  int64_t cols = 1;    // the last extent
  int64_t numel = 0;
  int64_t size() const { return each * stride; }
  int64_t rows() const { return cols > 0 ? size() / cols : 0; }
  int64_t begin(int64_t n) const { return n * size(); }
  int64_t end(int64_t n) const { return n + 1 == count ? numel : begin(n + 1); }
};
inline constexpr int64_t kMaxSamples = 1024;
// A sample is one entry of the leading axis. It is several entries in three cases: there are more
// than kMaxSamples of them; an entry has fewer than 16 rows of [rows, C], whose groups would take
// more bytes for metadata than for codes; or codes carry a sign, which needs at least 64 rows, a
// multiple of 8.
Samples samples_of(const Shape& shape, bool with_sign);

struct MixedOptions {
  int64_t group = 256;  // this key and the next two are those of QuantizeOptions
  Rounding rounding = Rounding::stochastic;
  uint64_t seed = 0;
};

// How samples of given widths lie in a payload.
struct MixedLayout {
  struct Segment {
    int64_t first = 0, count = 0;  // the place of its samples in `order`
    int64_t offset = 0;            // where it begins in the payload, a multiple of 16
    GroupLayout layout;
    CodeStream stream;  // draws its rounding
  };
  Samples samples;
  std::vector<int32_t> order;  // numbers of the samples, ordered by width and then by number
  std::vector<Segment> segments;
  int64_t bytes = 0;   // bytes of the payload
  bool split = false;  // the codes carry a sign
};

// Thread safety: as for Quantizer.
class MixedQuantizer {
 public:
  explicit MixedQuantizer(const MixedOptions& options = {});  // Errors: those of Quantizer
  // widths: one for each sample of samples_of(shape of tensor, whether info.sign is set). The
  // result is Grouped.  Errors: those of Quantizer::pack; another number of widths; a width outside
  // 1..16.
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info,
                               std::span<const int> widths) const;
  // The bytes that pack() would allocate.
  int64_t packed_bytes(const Shape& shape, std::span<const int> widths,
                       bool with_sign = false) const;
  // Whether the codes of a tensor of this shape carry a sign if every width is at least 2 bits.
  bool can_carry_sign(const Shape& shape) const;
  const Quantizer& uniform(int bits) const;  // Errors: a width outside 1..16
  // Groups packed so far that held a value that is not finite.
  int64_t nonfinite_groups() const;

 private:
  MixedLayout layout_of(const Shape& shape, std::span<const int> widths, bool with_sign) const;

  MixedOptions options_;
  std::deque<Quantizer> uniform_;  // for widths of 1 to 16 bits
  mutable NonfiniteCount nonfinite_;
};

}  // namespace frugal::compress

// Uniform steps, coded by entropy: x^ = q step with q = floor(x / step + u). A step is nearly twice
// the bound if values round to nearest, and else nearly the bound. Zero stays zero, and frequent
// values take few bits.
//
// Payload, u8: 9 bytes for each channel (f32 least q or value, f32 step, u8 width of q - least q),
// the end of each chunk (int64), tables, chunks. Columns are sorted by width (bounded_channels.h).
// Columns of one width share a table for the low byte and one for the high byte of their codes. A
// chunk has about 131072 elements: bytes that are not coded, one rANS stream (rans.h), and columns
// that are kept unchanged.
// Ref: those of compress/entropy/rans.h; Sullivan 1996 on uniform thresholds with entropy coding.
#pragma once
#include "compress/bounded/bounded_channels.h"

namespace frugal::compress {

class BoundedEntropy final : public ErrorBounded {
 public:
  explicit BoundedEntropy(const ErrorBoundedOptions& options = {}) : options_(options) {}
  std::unique_ptr<bounded::Payload> pack(const Tensor& tensor, const ErrorBound& bound,
                                         const SaveInfo& info) const override;

 private:
  ErrorBoundedOptions options_;
};

}  // namespace frugal::compress

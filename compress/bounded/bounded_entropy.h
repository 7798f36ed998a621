// Uniform steps of twice the bound, entropy coded: x^ = q step with q = floor(x / step + u), so
// that zero stays zero and what is frequent takes few bits.
//
// Payload, u8: 9 bytes a channel (f32 least q or value, f32 step, u8 width of q - least q), the end
// of each chunk (int64), tables, chunks. Columns are sorted by width (bounded_channels.h); those of
// one width share a table for the low and one for the high byte of their codes. A chunk, of about
// 32768 elements, is what is not coded, one rANS stream (rans.h), and columns kept as they are.
// Ref: as of compress/entropy/rans.h; Sullivan 1996 on uniform thresholds with entropy coding.
#pragma once
#include "compress/bounded/bounded_channels.h"

namespace frugal::compress {

class BoundedEntropy final : public ErrorBounded {
 public:
  explicit BoundedEntropy(const ErrorBoundedOptions& options = {}) : options_(options) {}
  std::unique_ptr<Packed> pack(const Tensor& tensor, const ErrorBound& bound,
                               const SaveInfo& info) const override;

 private:
  ErrorBoundedOptions options_;
};

}  // namespace frugal::compress

// GradientCodec: gradients as a few bits per element on their way between ranks.
#pragma once
#include "compress/quantize/nonfinite_count.h"
#include "distributed/wire_codec.h"

namespace frugal::train {

struct GradientCodecOptions {
  int bits = 8;         // 1..16
  int64_t group = 256;  // consecutive elements with one range: a multiple of 128 up to 65536
  uint64_t seed = 0;    // the run's
};

// Writes codes of the quantizer (compress/quantize/quantize.h): groups of consecutive elements,
// stochastic rounding, 4 bytes for each group beside the codes. The random words follow from the
// seed and the key. A decoded element is less than (max - min) / (2^bits - 1) * 1.02 + |min| / 128
// of its group away. A group with NaN, an infinity or a value beyond 3e38 becomes NaN in every
// element.
class GradientCodec final : public distributed::WireCodec {
 public:
  explicit GradientCodec(const GradientCodecOptions& options);  // Errors: an option out of range
  int64_t bytes(int64_t elements) const override;
  // Errors: another dtype than f32, other lengths, devices or not contiguous.
  void encode(const Tensor& x, const distributed::WireKey& key, const Tensor& codes) const override;
  void decode(const Tensor& codes, const Tensor& x) const override;
  // Groups encoded so far that held a value that is not finite.
  int64_t nonfinite_groups() const { return nonfinite_.value(); }

 private:
  GradientCodecOptions options_;
  mutable compress::NonfiniteCount nonfinite_;
};

}  // namespace frugal::train

// Fixed-point codes with a width for each channel. This is AutoQuant. With `zeros` it is
// AutoQuantZ: zeros are exact and stored as 1-bit masks where that takes fewer bytes.
//
// Width rules:
//   tight:      the narrowest codes over [min, max] that keep the bound. Where zeros have a mask,
//               the range is that of the other values.
//   published:  codes over [-m, m), m = max|x|. The paper has f = clip(trunc(-log2 bound + log2 m -
//               1), 1, 15) bits after the point and one for the sign. Its public program executes
//               one bit more: the step is m 2^-(f+1), and codes have f + 2 bits here. The program
//               counts f + 1 bits in its rates. Half a step is below the bound, with two
//               exceptions: m itself is off by a step, because its code is clipped, and for f = 15
//               the step may be too large. Codes end at 16 bits here, so f = 15 has the step of
//               f = 14.
//
// Payload, u8: 9 bytes for each channel (f32 lo, f32 step, u8 width), and blocks of 8 rows of the
// view (bounded_channels.h): codes, with columns sorted by width. With masks: the end of each block
// (int64), then for each block one byte of mask for each column and the codes of the other values;
// the codes of each width are packed without gaps.
// Ref: Evans & Aamodt 2021 (AC-GC).
#pragma once
#include "compress/bounded/bounded_channels.h"

namespace frugal::compress {

enum class WidthRule : uint8_t { tight, published };

// The width f + 1 that the paper counts.
int published_width(double max_abs, double bound);

struct BoundedFixedOptions {
  ErrorBoundedOptions of;
  WidthRule rule = WidthRule::tight;
  bool zeros = false;
};

class BoundedFixed final : public ErrorBounded {
 public:
  explicit BoundedFixed(const BoundedFixedOptions& options = {});  // Errors: widths not in 0..16
  std::unique_ptr<bounded::Payload> pack(const Tensor& tensor, const ErrorBound& bound,
                                         const SaveInfo& info) const override;

 private:
  BoundedFixedOptions options_;
};

class PackedFixed final : public bounded::Payload {
 public:
  // codes: one for each channel, or one for all. They are kept beside the payload, so that
  // unpacking on CUDA need not wait for them.
  PackedFixed(Tensor payload, const Shape& shape, DType dtype, const bounded::View& view,
              std::vector<bounded::Code> codes, bool masked)
      : Payload(std::move(payload), shape, dtype),
        view_(view),
        codes_(std::move(codes)),
        masked_(masked) {}
  bool masked() const { return masked_; }
  const std::vector<bounded::Code>& codes() const { return codes_; }

 private:
  void decode(int64_t begin, int64_t end, float* out) const override;
  bool decodes_on_cuda() const override { return true; }
  bounded::View view_;
  std::vector<bounded::Code> codes_;
  bool masked_;
};

}  // namespace frugal::compress

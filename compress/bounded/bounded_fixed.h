// Fixed-point codes of a width for each channel: AutoQuant, and with `zeros` AutoQuantZ, whose
// zeros are 1-bit masks and exact, where that takes fewer bytes.
//
// Width rules:
//   tight:      the narrowest codes over [min, max] that keep the bound; of the range of what is
//               not zero where those have a mask
//   published:  codes over [-m, m], m = max|x|, with f = clip(trunc(-log2 bound + log2 m - 1), 1,
//               15) bits after the point and one for the sign. They do not keep the bound: trunc
//               makes steps of up to 4 bounds, rounded by half of that, and m itself comes a step
//               short.
//
// Payload, u8: 9 bytes a channel (f32 lo, f32 step, u8 width), and blocks of 8 rows of the view
// (bounded_channels.h): codes, columns sorted by width. With masks: the end of each block (int64),
// then for each a byte of mask a column and the codes of the others, those of each width closed up.
// Ref: Evans & Aamodt 2021 (AC-GC).
#pragma once
#include "compress/bounded/bounded_channels.h"

namespace frugal::compress {

enum class WidthRule : uint8_t { tight, published };

// The published width.
int published_width(double max_abs, double bound);

struct BoundedFixedOptions {
  ErrorBoundedOptions of;
  WidthRule rule = WidthRule::tight;
  bool zeros = false;
};

class BoundedFixed final : public ErrorBounded {
 public:
  explicit BoundedFixed(const BoundedFixedOptions& options = {});  // Errors: widths not in 0..16
  std::unique_ptr<Packed> pack(const Tensor& tensor, const ErrorBound& bound,
                               const SaveInfo& info) const override;

 private:
  BoundedFixedOptions options_;
};

class PackedFixed final : public bounded::Payload {
 public:
  // codes: of each channel, or one for all; beside the payload, so that unpacking on CUDA need not
  // wait for them.
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

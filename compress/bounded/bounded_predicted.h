// A lattice that dither moves, coded by what neighbours predict: x^ = (q + 1/2 - u) step with
// q = floor(x / step + u). u is drawn again when values are unpacked. So whatever x is, its error
// is even over +-step / 2, and no other error depends on it: it keeps the bound, has no bias, and
// has the variance step^2 / 12. With nearest rounding u is 1/2, and zeros stay zeros.
//
//   |x^ - x| <= bound:            step = 2 bound
//   and variance <= bound^2 / 4:  step = sqrt(3) bound (ErrorBoundedOptions::expected)
//
// This is 1 bit, and 0.8 bits, less than stochastic rounding takes for the same. Prediction changes
// bytes and no values. Each value is predicted from the rebuilt values of its left, upper and upper
// left neighbour in its channel, with weights that are best for the channel (rows of other tensors
// than images have a left neighbour alone). What is coded is the difference of q and the code of
// the predicted value. Its distribution depends on where between two codes the dither moves the
// predicted value to: there are eight such places, each with frequencies of its own. So the code
// makes use of u. Where a step is as large as the deviation of the values, this saves a third of
// the bits.
//
// Payload, u8. One byte says whether values are coded. If not, because that would take more bytes,
// the f32 values follow. Else: the number of classes (u8); for each class the shift of its
// residuals (int8, predicted_kernels.h); tables, of which classes with a shift above 0 share one;
// the members of channels, each for all channels or once where they are alike (u8 class, or kept as
// it is, or constant; f32 step, or value of a constant channel; int32 mean; 3 weights as int8); the
// end of each chunk (int64); chunks. Channels of a class take about the same bits. A chunk has the
// values that are kept, the number of residuals that are too large (u32), their codes (int32), the
// low bits of residuals as planes of bytes, and one rANS stream (rans.h) of all pixels in order.
// Ref: Roberts 1962 and Ziv 1985 (dither that is taken away again, with entropy coding); Zamir,
// Kochman and Erez 2008 (prediction from what was rebuilt).
#pragma once
#include "compress/bounded/error_bounded.h"

namespace frugal::compress {

class BoundedPredicted final : public ErrorBounded {
 public:
  explicit BoundedPredicted(const ErrorBoundedOptions& options = {}) : options_(options) {}
  std::unique_ptr<bounded::Payload> pack(const Tensor& tensor, const ErrorBound& bound,
                                         const SaveInfo& info) const override;

 private:
  ErrorBoundedOptions options_;
};

}  // namespace frugal::compress

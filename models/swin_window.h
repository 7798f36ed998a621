// The windows of an image in which a Swin block attends. Ref: Liu et al. 2021, section 3.2.
#pragma once
#include "autograd/variable.h"

namespace frugal::models {

// For images [N, H, W, C]: zeros fill up the last row and column of windows; then the image is
// turned up and left by `shift`, but not along a side that one window covers.
class Windows {
 public:
  Windows(const Shape& image, int64_t side, int64_t shift);
  int64_t count() const { return rows_ * columns_; }
  int64_t tokens() const { return side_ * side_; }
  bool padded() const;

  Variable part(const Variable& x) const;  // [N, H, W, C] -> [N, tokens, count, C]
  Variable join(const Variable& y) const;  // and back

  // [count * heads, tokens, tokens]: -100 between tokens of a window that only the shift brought
  // together, else 0. Undefined where nothing was shifted.
  Tensor apart(int64_t heads, Device device, DType dtype) const;

 private:
  int64_t n_, height_, width_, channels_, side_;
  int64_t rows_, columns_;  // of windows
  int64_t row_shift_, column_shift_;
};

// [side^4] i64: for each pair of a window's tokens the row of the table of (2 side - 1)^2 offsets.
Tensor relative_positions(int64_t side, Device device);

}  // namespace frugal::models

// The windows of an image within which a Swin block attends. Ref: Liu et al. 2021, section 3.2.
#pragma once
#include "autograd/variable.h"

namespace frugal::models {

// For images [N, H, W, C]. Zeros fill up the last row and the last column of windows. Then the
// image is rolled up and to the left by `shift`, except along a side that one window covers.
class Windows {
 public:
  Windows(const Shape& image, int64_t side, int64_t shift);
  int64_t count() const { return rows_ * columns_; }
  int64_t tokens() const { return side_ * side_; }
  bool padded() const;

  Variable part(const Variable& x) const;  // [N, H, W, C] -> [N, tokens, count, C]
  Variable join(const Variable& y) const;  // the inverse of part()

  // [count * heads, tokens, tokens]: -100 between tokens that are in one window only because of the
  // shift, else 0. Undefined if there is no shift.
  Tensor apart(int64_t heads, Device device, DType dtype) const;

 private:
  int64_t n_, height_, width_, channels_, side_;
  int64_t rows_, columns_;  // how many windows lie below and beside one another
  int64_t row_shift_, column_shift_;
};

// [side^4] i64: for each pair of tokens of a window, the row in the table of (2 side - 1)^2
// offsets.
Tensor relative_positions(int64_t side, Device device);

}  // namespace frugal::models

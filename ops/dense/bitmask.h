// 1-bit masks: how sign and range masks are kept for backward, ceil(numel / 8) bytes.
//
// Layout. n elements whose last axis is C: if n / C is a multiple of 8 the mask has rows = n / C
// and cols = C, else rows = 8 and cols = ceil(n / 8). Element i is bit (i / cols) % 8 of byte [(i /
// cols) / 8, i % cols], so that eight rows of one column share a byte and SIMD lanes run across
// columns.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

struct BitmaskLayout {
  int64_t rows = 0, cols = 0;
  int64_t bytes() const { return rows / 8 * cols; }
  bool by_rows = false;  // the first of the two layouts: columns are channels
};
BitmaskLayout bitmask_layout(const Shape& shape);

// [rows / 8, cols] u8, uninitialised.
Tensor empty_bitmask(const Shape& shape, Device device);

// y = x where x > 0 or NaN, else slope * x; the mask says where. f32 or f64.
struct Rectified {
  Tensor y, mask;  // mask undefined unless asked for
};
Rectified rectify(const Tensor& x, double slope, bool want_mask);
void rectify_kernel(Cpu, const Tensor& x, double slope, const Tensor& y, const Tensor& mask);
void rectify_kernel(Cuda, const Tensor& x, double slope, const Tensor& y, const Tensor& mask);

// y = min(max(x, lo), hi), NaN stays; the mask says where lo <= x <= hi (or NaN).  Errors: lo > hi.
Rectified clamp(const Tensor& x, double lo, double hi, bool want_mask);
void clamp_kernel(Cpu, const Tensor& x, double lo, double hi, const Tensor& y, const Tensor& mask);
void clamp_kernel(Cuda, const Tensor& x, double lo, double hi, const Tensor& y, const Tensor& mask);

// x where the mask is set, else slope * x: the backward and the linear replay of the above.
// Errors: a mask of another layout than x's.
Tensor select_by_mask(const Tensor& x, const Tensor& mask, double slope);
void select_by_mask_kernel(Cpu, const Tensor& x, const Tensor& mask, double slope, const Tensor& y);
void select_by_mask_kernel(Cuda, const Tensor& x, const Tensor& mask, double slope,
                           const Tensor& y);

}  // namespace frugal::ops

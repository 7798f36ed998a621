// 1-bit masks of ceil(numel / 8) bytes. Backward passes keep signs and ranges in this form.
//
// Layout of a mask for n elements whose last axis is C: if n / C is a multiple of 8, the mask has
// rows = n / C and cols = C, else rows = 8 and cols = ceil(n / 8). Element i is bit (i / cols) % 8
// of byte [(i / cols) / 8, i % cols]. So eight rows of one column share a byte, and SIMD lanes lie
// across columns.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

struct BitmaskLayout {
  int64_t rows = 0, cols = 0;
  int64_t bytes() const { return rows / 8 * cols; }
  bool by_rows = false;  // whether it is the first of the two layouts, where columns are channels
};
BitmaskLayout bitmask_layout(const Shape& shape);

// [rows / 8, cols] u8, uninitialised.
Tensor empty_bitmask(const Shape& shape, Device device);

// y = x where x > 0 or NaN, else slope * x. A bit of the mask is set where y = x. f32 or f64.
struct Rectified {
  Tensor y, mask;  // mask undefined unless asked for
};
Rectified rectify(const Tensor& x, double slope, bool want_mask);
void rectify_kernel(Cpu, const Tensor& x, double slope, const Tensor& y, const Tensor& mask);
void rectify_kernel(Cuda, const Tensor& x, double slope, const Tensor& y, const Tensor& mask);

// y = min(max(x, lo), hi); NaN stays NaN. A bit of the mask is set where lo <= x <= hi, or x is
// NaN.  Errors: lo > hi.
Rectified clamp(const Tensor& x, double lo, double hi, bool want_mask);
void clamp_kernel(Cpu, const Tensor& x, double lo, double hi, const Tensor& y, const Tensor& mask);
void clamp_kernel(Cuda, const Tensor& x, double lo, double hi, const Tensor& y, const Tensor& mask);

// x where the mask is set, else slope * x. This is the backward pass of the ops above, and their
// linear rebuild.  Errors: the mask's layout is not that of x.
Tensor select_by_mask(const Tensor& x, const Tensor& mask, double slope);
// The functions below write over x, which is contiguous. Its version rises.
// rectify(): returns the mask.
Tensor rectify_over(const Tensor& x, double slope);
void select_by_mask_over(const Tensor& x, const Tensor& mask, double slope);
// select_by_mask() with slope 0 of a part of a tensor: x holds its elements from `first` on. The
// mask of the whole tensor has the second layout. On the CPU and meta.
void select_part_by_mask(const Tensor& x, const Tensor& mask, int64_t first);
// y may be x in the kernels.
void select_by_mask_kernel(Cpu, const Tensor& x, const Tensor& mask, double slope, const Tensor& y);
void select_by_mask_kernel(Cuda, const Tensor& x, const Tensor& mask, double slope,
                           const Tensor& y);

}  // namespace frugal::ops

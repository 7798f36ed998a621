// Regions of interest of feature maps, as cells of equal number. NHWC.
#pragma once
#include <array>

#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

struct RoiAlignGrid {
  int64_t height = 7, width = 7;  // cells
  double scale = 1;               // from the network's input to the feature map
  RoiAlignOptions options = {};
};

// x [N, H, W, C] f32, bf16 or f64; boxes [R, 5] f32 (f64 with f64): picture, x1, y1, x2, y2
// in pixels of the input -> y [R, height, width, C]. A cell is the mean of bilinear samples at
// equal distances; a sample more than a pixel outside the map is 0.
// Errors: other shapes, dtypes and devices; a picture outside [0, N) (CUDA does not wait to check
// this; the cells are 0).  Ref: He et al. 2017; torchvision's roi_align.
Tensor roi_align(const Tensor& x, const Tensor& boxes, const RoiAlignGrid& grid);
// dy [R, height, width, C] -> dx of x_shape. Each pixel adds what it gave, box by box, so bits do
// not depend on threads.
Tensor roi_align_backward(const Tensor& dy, const Tensor& boxes, const Shape& x_shape,
                          const RoiAlignGrid& grid);
void roi_align_kernel(Cpu, const Tensor& x, const Tensor& boxes, const RoiAlignGrid& grid,
                      const Tensor& y);
void roi_align_kernel(Cuda, const Tensor& x, const Tensor& boxes, const RoiAlignGrid& grid,
                      const Tensor& y);
void roi_align_backward_kernel(Cpu, const Tensor& dy, const Tensor& boxes, const RoiAlignGrid& grid,
                               const Tensor& dx);
void roi_align_backward_kernel(Cuda, const Tensor& dy, const Tensor& boxes,
                               const RoiAlignGrid& grid, const Tensor& dx);

}  // namespace frugal::ops

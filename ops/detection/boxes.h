// Boxes of detection networks: [..., 4], x1, y1, x2, y2 in pixels, f32 and f64 (on CUDA f32). No
// function here has a gradient: they work beside the graph.
// Ref: torchvision's ops.boxes and its BoxCoder.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

// Intersection over union of each box of a [A, 4] with each box of b [B, 4] -> [A, B]. NaN for two
// boxes without area.  Errors: shapes other than these; tensors of two dtypes or devices.
Tensor box_iou(const Tensor& a, const Tensor& b);
// The generalized one: minus the share of the hull that neither box covers.  Errors: the same.
// Ref: Rezatofighi et al. 2019.
Tensor box_giou(const Tensor& a, const Tensor& b);
void box_overlaps_kernel(Cpu, const Tensor& a, const Tensor& b, bool generalized, const Tensor& y);
void box_overlaps_kernel(Cuda, const Tensor& a, const Tensor& b, bool generalized, const Tensor& y);

// boxes [N, 4] as seen from references [N, 4] -> [N, 4]: differences of the centres in widths and
// heights of the reference, and logarithms of the ratios of widths and heights, each times its
// weight.  Errors: other shapes, dtypes or devices.
Tensor encode_boxes(const Tensor& boxes, const Tensor& references, const BoxCoding& coding = {});
// The inverse. codes [N, K * 4] -> [N, K * 4], K boxes for each reference. Widths and heights grow
// by 1000 / 16 at most.  Errors: the same.
Tensor decode_boxes(const Tensor& codes, const Tensor& references, const BoxCoding& coding = {});
void encode_boxes_kernel(Cpu, const Tensor& boxes, const Tensor& references, const BoxCoding&,
                         const Tensor& y);
void encode_boxes_kernel(Cuda, const Tensor& boxes, const Tensor& references, const BoxCoding&,
                         const Tensor& y);
void decode_boxes_kernel(Cpu, const Tensor& codes, const Tensor& references, const BoxCoding&,
                         const Tensor& y);
void decode_boxes_kernel(Cuda, const Tensor& codes, const Tensor& references, const BoxCoding&,
                         const Tensor& y);

}  // namespace frugal::ops

// The differentiable functions of detection networks. Each function's formula stands in its .cpp
// (autograd/functions/), forward and backward side by side. What works beside the graph (matching,
// suppression, coding of boxes) is in ops/detection.
#pragma once
#include <array>
#include <cstdint>

#include "autograd/variable.h"
#include "ops/options.h"

namespace frugal {

// Losses (functions/detection_loss.cpp): sums over rows, each with a weight. weights [R] with the
// dtype of the loss (f32 for bf16), or undefined: 1. A row of weight 0 adds nothing. All of them
// give a scalar.  Saves: d(loss)/d(x).
// logits [R, K], classes [R] i64, -1: none. The focal loss of each logit. The gradient is written
// over logits that are moved in and that nobody else holds.  Ref: Lin et al. 2017.
Variable sigmoid_focal_loss(Variable logits, const Tensor& classes, const Tensor& weights = {},
                            const SigmoidFocalOptions& options = {});
// x and target [R, D]; beta 0: the sum of absolute differences.  Ref: Girshick 2015.
Variable smooth_l1_loss(const Variable& x, const Tensor& target, const Tensor& weights = {},
                        double beta = 1);
// 1 - GIoU of boxes x and target [R, 4].  Ref: Rezatofighi et al. 2019.
Variable giou_loss(const Variable& x, const Tensor& target, const Tensor& weights = {});
// giou_loss() of boxes that are given as codes [R, 4]. Row i is decoded from row i % A of
// references [A, 4] and compared with row matches[i] of boxes [T, 4]. A row whose match is below 0
// has no box and adds nothing. Codes are decoded within the loss, so no tensor of boxes is made.
Variable coded_giou_loss(const Variable& codes, const Tensor& references, const Tensor& boxes,
                         const Tensor& matches, const Tensor& weights = {},
                         const BoxCoding& coding = {});

// The regions of interest of N pictures (functions/roi_align.cpp): x [N, H, W, C], boxes [R, 5] f32
// (picture, x1, y1, x2, y2, in pixels of the network's input) -> [R, out_h, out_w, C], means of
// bilinear samples. `scale` leads from the input's pixels to those of x.  Saves: boxes.
// Ref: He et al. 2017; torchvision's roi_align.
Variable roi_align(const Variable& x, const Tensor& boxes, std::array<int64_t, 2> out, double scale,
                   const RoiAlignOptions& options = {});

}  // namespace frugal

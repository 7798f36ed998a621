// The losses of detection networks. Each is a sum over rows, and each row has a weight: 0 for
// anchors that do not count. All of them give d(loss)/d(x) together with the loss, and the gradient
// is linear in that.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

struct WeightedLoss {
  Tensor loss;      // [] like x, f32 for bf16
  Tensor gradient;  // like x: d(loss)/d(x)
};

// logits [R, K], classes [R] i64: the class of a row, or -1 for none; weights [R] with the dtype of
// the loss, or undefined: 1. The loss of a logit x, whose answer is yes in the column of the class,
// is -alpha (1 - p)^gamma log p with p = sigmoid(x), or -(1 - alpha) p^gamma log(1 - p) for no; a
// negative alpha stands for factors of 1. The sum over all logits of weight * loss.
// overwrite: the gradient replaces the logits, which are contiguous; their version rises. Not on
// CUDA.
// Errors: other shapes, dtypes and devices; a class of K or more (CUDA does not wait to check this,
// and the loss is NaN).  Ref: Lin et al. 2017, equation 5; torchvision's sigmoid_focal_loss.
WeightedLoss sigmoid_focal(const Tensor& logits, const Tensor& classes, const Tensor& weights,
                           const SigmoidFocalOptions& options, bool overwrite = false);
void sigmoid_focal_kernel(Cpu, const Tensor& logits, const Tensor& classes, const Tensor& weights,
                          const SigmoidFocalOptions& options, const WeightedLoss& result);
void sigmoid_focal_kernel(Cuda, const Tensor& logits, const Tensor& classes, const Tensor& weights,
                          const SigmoidFocalOptions& options, const WeightedLoss& result);

// x and target [R, D], weights [R] or undefined: the sum of weight * l(x - target) with l(d) =
// d^2 / (2 beta) for |d| < beta, else |d| - beta / 2. Beta 0: |d|.
// Errors: other shapes, dtypes and devices; a negative beta.  Ref: Girshick 2015, equation 3.
WeightedLoss smooth_l1(const Tensor& x, const Tensor& target, const Tensor& weights, double beta);
void smooth_l1_kernel(Cpu, const Tensor& x, const Tensor& target, const Tensor& weights,
                      double beta, const WeightedLoss& result);
void smooth_l1_kernel(Cuda, const Tensor& x, const Tensor& target, const Tensor& weights,
                      double beta, const WeightedLoss& result);

// boxes x and target [R, 4], weights [R] or undefined: the sum of weight * (1 - GIoU).
// Errors: other shapes, dtypes and devices.  Ref: Rezatofighi et al. 2019; torchvision's
// generalized_box_iou_loss, which adds 1e-7 to both divisors.
WeightedLoss giou(const Tensor& x, const Tensor& target, const Tensor& weights);
void giou_kernel(Cpu, const Tensor& x, const Tensor& target, const Tensor& weights,
                 const WeightedLoss& result);
void giou_kernel(Cuda, const Tensor& x, const Tensor& target, const Tensor& weights,
                 const WeightedLoss& result);

// giou() of boxes that are given as codes, see decode_boxes(). codes [R, 4]; references [A, 4]: row
// i of codes is decoded from row i % A; boxes [T, 4]; matches [R] i64: the row of `boxes` for each
// row of codes. A row whose match is below 0 has no box, and its loss is 0. The gradient is that of
// the codes. References, boxes and weights have the dtype of the loss. Errors: other shapes, dtypes
// and devices; R that is no multiple of A; a match of T or more (CUDA does not wait to check this,
// and the loss is NaN).
WeightedLoss coded_giou(const Tensor& codes, const Tensor& references, const Tensor& boxes,
                        const Tensor& matches, const Tensor& weights, const BoxCoding& coding);
// What a row's loss is made of, beside its code. All are contiguous; `weights` may be undefined.
struct CodedBoxes {
  Tensor references, boxes, matches, weights;
};
void coded_giou_kernel(Cpu, const Tensor& codes, const CodedBoxes& boxes, const BoxCoding& coding,
                       const WeightedLoss& result);
void coded_giou_kernel(Cuda, const Tensor& codes, const CodedBoxes& boxes, const BoxCoding& coding,
                       const WeightedLoss& result);

}  // namespace frugal::ops

// Non-maximum suppression. Beside the graph.  Ref: torchvision's nms and batched_nms.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace frugal::ops {

// Takes boxes [N, 4] by falling scores [N] (equal ones in their order), leaves out those that
// overlap one that was taken by more than `threshold`, and gives the rows that were taken, in this
// order: [K] i64 on the device of boxes. With groups [N] i64, only boxes of one group suppress each
// other. On `meta`, where nothing overlaps, K is N. Waits for the device.
// Errors: other shapes, dtypes and devices; a NaN among the scores.
Tensor nms(const Tensor& boxes, const Tensor& scores, double threshold, const Tensor& groups = {});
// order [N] i64: the rows by falling scores. suppresses [N, ceil(N / 64)] i64: bit j of word w in
// row i is set where box order[i] suppresses box order[64 w + j], for 64 w + j > i.
void nms_kernel(Cpu, const Tensor& boxes, const Tensor& order, const Tensor& groups,
                double threshold, const Tensor& suppresses);
void nms_kernel(Cuda, const Tensor& boxes, const Tensor& order, const Tensor& groups,
                double threshold, const Tensor& suppresses);

}  // namespace frugal::ops

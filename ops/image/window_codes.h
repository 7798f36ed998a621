// Indices of cells in windows of at most 16 cells, two in a byte. On the CPU and on meta.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

// index: u8, contiguous, each below 16 -> u8 [ceil(numel / 2)].
Tensor halve_window_index(const Tensor& index);
// The index again, of shape `shape`.
Tensor whole_window_index(const Tensor& halves, const Shape& shape);

}  // namespace frugal::ops

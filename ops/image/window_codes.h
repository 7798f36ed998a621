// Indices of cells in small windows, several in a byte.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

// Bits that hold the index of one of `cells` cells and divide a byte: 1, 2, 4 or 8.
// REQUIRES: 1 to 256 cells.
int window_index_bits(int64_t cells);
// index: u8, contiguous, each below 2^bits -> u8 [ceil(numel bits / 8)]. The first index of a byte
// is in its lowest bits. bits: 1, 2 or 4.
Tensor pack_window_index(const Tensor& index, int bits);
// The index again, of shape `shape`.
Tensor unpack_window_index(const Tensor& packed, int bits, const Shape& shape);

void pack_window_index_kernel(Cpu, const Tensor& index, int bits, const Tensor& packed);
void pack_window_index_kernel(Cuda, const Tensor& index, int bits, const Tensor& packed);
void unpack_window_index_kernel(Cpu, const Tensor& packed, int bits, const Tensor& index);
void unpack_window_index_kernel(Cuda, const Tensor& packed, int bits, const Tensor& index);

}  // namespace frugal::ops

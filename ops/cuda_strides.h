// Where the elements of strided tensors lie, for kernels. For .cu files.
#pragma once
#include "core/cuda_kernel.h"

namespace frugal::ops::cuda {

using namespace frugal::cuda;

// The offsets, in elements, of a flat index into up to kOperands tensors of one shape.
template <int kOperands>
struct Strided {
  static constexpr int kAxes = 8;
  int axes = 0;
  int64_t extent[kAxes];
  int64_t stride[kAxes][kOperands];

  __device__ __forceinline__ void at(int64_t i, int64_t (&offset)[kOperands]) const {
    for (int64_t& o : offset) o = 0;
    for (int axis = axes - 1; axis >= 0; --axis) {
      const int64_t place = i % extent[axis];
      i /= extent[axis];
      for (int o = 0; o < kOperands; ++o) offset[o] += place * stride[axis][o];
    }
  }
};

// Of tensors with these strides, axes joined where all allow it.
template <int kOperands>
Strided<kOperands> strided(const char* op, const Shape& shape,
                           const Shape* const (&strides)[kOperands]) {
  Strided<kOperands> out;
  for (int axis = 0; axis < shape.dim(); ++axis) {
    if (shape[axis] == 1) continue;
    bool joins = out.axes > 0;
    for (int o = 0; joins && o < kOperands; ++o)
      joins = out.stride[out.axes - 1][o] == shape[axis] * (*strides[o])[axis];
    FRUGAL_CHECK(joins || out.axes < Strided<kOperands>::kAxes,
                 "[{}] expected at most {} axes that cannot be joined, got shape {}", op,
                 Strided<kOperands>::kAxes, shape);
    if (!joins) out.extent[out.axes++] = 1;
    out.extent[out.axes - 1] *= shape[axis];
    for (int o = 0; o < kOperands; ++o) out.stride[out.axes - 1][o] = (*strides[o])[axis];
  }
  return out;
}

}  // namespace frugal::ops::cuda

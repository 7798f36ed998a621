// Finds the elements of strided tensors in kernels. For .cu files.
#pragma once
#include <bit>
#include <limits>

#include "core/cuda/cuda_kernel.h"

namespace frugal::ops::cuda {

using namespace frugal::cuda;

// Divides numbers below 2^31 by a number that is known before: a product and a shift instead of
// some twenty instructions.  Ref: Granlund & Montgomery 1994.
struct Divisor {
  uint32_t factor = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(uint32_t d) : shift(static_cast<uint32_t>(std::bit_width(d - 1))) {
    factor = static_cast<uint32_t>((((uint64_t{1} << shift) - d) << 32) / d + 1);
  }
  __device__ __forceinline__ uint32_t of(uint32_t n) const {
    return (static_cast<uint32_t>(static_cast<uint64_t>(n) * factor >> 32) + n) >> shift;
  }
};

// Maps a flat index to offsets, in elements, into up to kOperands tensors of one shape.
template <int kOperands>
struct Strided {
  static constexpr int kAxes = 8;
  int axes = 0;
  bool narrow = false;  // flat indices are below 2^31
  int64_t extent[kAxes];
  Divisor divisor[kAxes];
  int64_t stride[kAxes][kOperands];

  __device__ __forceinline__ void at(int64_t i, int64_t (&offset)[kOperands]) const {
    for (int64_t& o : offset) o = 0;
    if (axes == 0) return;
    if (narrow) {
      auto left = static_cast<uint32_t>(i);
      for (int axis = axes - 1; axis > 0; --axis) {
        const uint32_t whole = divisor[axis].of(left);
        step(axis, left - whole * static_cast<uint32_t>(extent[axis]), offset);
        left = whole;
      }
      return step(0, left, offset);
    }
    for (int axis = axes - 1; axis > 0; --axis) {
      step(axis, i % extent[axis], offset);
      i /= extent[axis];
    }
    step(0, i, offset);
  }

  // Must be called after the extents are set.
  void finish() {
    int64_t all = 1;
    for (int axis = 0; axis < axes; ++axis) all *= extent[axis];
    narrow = all <= std::numeric_limits<int32_t>::max() && all > 0;
    for (int axis = 0; narrow && axis < axes; ++axis)
      divisor[axis] = Divisor(static_cast<uint32_t>(extent[axis]));
  }

  // Makes a flat index count runs of `size` elements. In each operand a run is `size` neighbours,
  // or one element for all where the last stride is 0. Returns false and changes nothing where the
  // extents do not allow runs.
  bool into_runs(int64_t size) {
    if (axes == 0 || extent[axes - 1] % size != 0) return false;
    for (int o = 0; o < kOperands; ++o) {
      if (!is_run(o) && stride[axes - 1][o] != 0) return false;
      for (int axis = 0; is_run(o) && axis < axes - 1; ++axis)
        if (stride[axis][o] % size != 0) return false;
    }
    extent[axes - 1] /= size;
    for (int64_t& last : stride[axes - 1]) last *= size;
    finish();
    return true;
  }
  bool is_run(int operand) const { return axes > 0 && stride[axes - 1][operand] == 1; }

 private:
  __device__ __forceinline__ void step(int axis, int64_t place,
                                       int64_t (&offset)[kOperands]) const {
#pragma unroll
    for (int o = 0; o < kOperands; ++o) offset[o] += place * stride[axis][o];
  }
};

// The offsets for tensors with these strides. Axes are joined where all tensors allow it.
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
  out.finish();
  return out;
}

}  // namespace frugal::ops::cuda

// Elementwise comparison: tensors of any one dtype (on CUDA without f16) to a tensor of bool.
#pragma once
#include "core/host_device.h"
#include "core/tensor.h"

namespace frugal::ops {

enum class Compare : uint8_t { eq, ne, lt, le, gt, ge };

// a op b, of the broadcast shape, bool. NaN differs from everything, itself included.
// Errors: dtypes, devices or shapes that do not go together.
Tensor compare(Compare op, const Tensor& a, const Tensor& b);
// x op value, where x's dtype rounds `value` as it rounds x.  Errors: x holds whole numbers and
// `value` is none of its dtype.
Tensor compare(Compare op, const Tensor& x, double value);

// a and b of y's shape, strided; y contiguous.
void compare_kernel(Cpu, Compare op, const Tensor& a, const Tensor& b, const Tensor& y);
void compare_kernel(Cuda, Compare op, const Tensor& a, const Tensor& b, const Tensor& y);

// Does `a op b` hold?
template <class T>
FRUGAL_HD bool holds(Compare op, T a, T b) {
  switch (op) {
    case Compare::eq:
      return a == b;
    case Compare::ne:
      return a != b;
    case Compare::lt:
      return a < b;
    case Compare::le:
      return a <= b;
    case Compare::gt:
      return a > b;
    case Compare::ge:
      break;
  }
  return a >= b;
}

}  // namespace frugal::ops

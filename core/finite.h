// Tests of one number, for host loops and CUDA kernels.
#pragma once
#include "core/host_device.h"

namespace frugal {

// Neither NaN nor an infinity: the difference of either with itself is NaN.
template <class T>
FRUGAL_HD bool is_finite(T x) {
  return x - x == 0;
}

// NaN alone differs from itself.
template <class T>
FRUGAL_HD bool is_nan(T x) {
  return x != x;
}

}  // namespace frugal

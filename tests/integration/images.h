// Images for tests of what steps of convolutions hold.
#pragma once
#include <cmath>

#include "core/tensor.h"

namespace frugal {

inline constexpr int64_t kN = 24, kSide = 16, kC = 16;
inline constexpr int64_t kImage = kSide * kSide * kC * 4, kFull = kN * kImage;  // bytes

// Nothing on meta.
inline Tensor values(const Shape& shape, Device device, int seed) {
  Tensor x = Tensor::empty(shape, DType::f32, device);
  for (int64_t i = 0; device == kCpu && i < x.numel(); ++i)
    x.mut<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i * 7 + seed * 31) * 0.37));
  return x;
}

}  // namespace frugal

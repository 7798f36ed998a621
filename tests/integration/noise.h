// Normal values for tests of gradients.
#pragma once
#include "core/rng.h"
#include "core/tensor.h"

namespace frugal {

inline Tensor noise(const Shape& shape, uint64_t stream, double scale = 1) {
  Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<float>()[i] = static_cast<float>(scale) * normal({12, stream}, static_cast<uint64_t>(i));
  return x;
}

}  // namespace frugal

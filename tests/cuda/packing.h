// What the tests of packing on CUDA share: the same on the CPU, bit for bit.
#pragma once
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "compress/bounded/error_bounded.h"
#include "compress/quantize/quantize.h"
#include "core/rng.h"
#include "ops/dense/bitmask.h"
#include "tests/cuda/gpu.h"

namespace frugal::gpu {

inline bool same_bits(const Tensor& expected, const Tensor& got) {
  if (!expected.defined() || !got.defined()) return expected.defined() == got.defined();
  const Tensor here = to_device(got, kCpu);
  return expected.shape() == here.shape() && expected.dtype() == here.dtype() &&
         (here.nbytes() == 0 ||
          std::memcmp(expected.raw(), here.raw(), static_cast<size_t>(here.nbytes())) == 0);
}

// How the bits of two tensors differ, for messages.
inline std::string difference(const Tensor& expected, const Tensor& got) {
  if (!expected.defined() || !got.defined()) return "one of them is undefined";
  const Tensor here = to_device(got, kCpu);
  if (expected.shape() != here.shape()) return "they have different shapes";
  const std::vector<double> a = expected.to_vector(), b = here.to_vector();
  size_t count = 0, worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) ++count;
    if (std::abs(a[i] - b[i]) > std::abs(a[worst] - b[worst])) worst = i;
  }
  if (a.empty()) return "both are empty";
  return fmt::format("{} of {} elements differ, most of all number {}: {} and {}", count, a.size(),
                     worst, a[worst], b[worst]);
}

// Normal values, `scale` wide around `mean`, f32 or bf16.
inline Tensor normals(const Shape& shape, DType dtype, uint64_t seed, float scale = 3,
                      float mean = 0) {
  const Tensor x = Tensor::empty(shape, dtype);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float value = mean + scale * normal({seed, 0}, static_cast<uint64_t>(i));
    if (dtype == DType::bf16)
      x.mut<BFloat16>()[i] = BFloat16(value);
    else
      x.mut<float>()[i] = value;
  }
  return x;
}

inline void put(const Tensor& x, int64_t at, float value) {
  if (x.dtype() == DType::bf16)
    x.mut<BFloat16>()[at] = BFloat16(value);
  else
    x.mut<float>()[at] = value;
}

// Makes a bitmask for a tensor of this shape, from bytes that differ.
inline Tensor mask_of(const Shape& shape) {
  const Tensor mask = ops::empty_bitmask(shape, kCpu);
  for (int64_t i = 0; i < mask.numel(); ++i) mask.mut<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
  return mask;
}

// Each returns the payload: of what a quantizer packed, of what an error-bounded codec packed.
inline const Tensor& payload(const Packed& packed) {
  return static_cast<const compress::Grouped&>(packed).payload();
}
inline const Tensor& bounded_payload(const Packed& packed) {
  return static_cast<const compress::bounded::Payload&>(packed).payload();
}

}  // namespace frugal::gpu

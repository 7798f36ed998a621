// Kernels that do an op's work in the pass that packs or unpacks what it saved (autograd/fused.h).
// CUDA alone has them.
#pragma once
#include "autograd/fused.h"
#include "compress/quantize/quantize_kernels.h"

namespace frugal::compress {

// y of PackJob::x; see MapForward. REQUIRES: groups of at most 256 rows, for which a block of
// threads holds x whole.
struct MapJob {
  std::optional<ops::Unary> function;
  const float* affine = nullptr;
  const void* residual = nullptr;
  bool relu = false;
  void* y = nullptr;
  uint8_t* mask = nullptr;  // of relu, unless the codes carry it
};
void quantize_mapped_kernel(Cuda, const PackJob& job, const MapJob& map);
// Where layout.split: the bits to carry are those of map.relu.
void split_quantize_mapped_kernel(Cuda, const PackJob& job, const MapJob& map);
// What MapForward asks for, into tensors that it says.
void quantize_mapped(const PackJob& job, const MapForward& map);

// UnpackJob::x is what is written.
struct UnaryJob {
  UnpackJob codes;
  ops::Unary function;
  const void* dy = nullptr;  // null: f(x)
  bool estimates = false;    // takes away what the variance adds
};
void unary_codes_kernel(Cuda, const UnaryJob& job);

// `mask`: null where all bits are set, or those of the codes count.
struct NormSumsJob {
  UnpackJob codes;  // all of them
  const Tensor &dy, &mean, &g, &partial;
  Tensor mask;
  bool mask_in_codes = false;
};
void norm_sums_codes_kernel(Cuda, const NormSumsJob& job);

struct NormGradientJob {
  UnpackJob codes;
  const void* dy = nullptr;
  const float* affine = nullptr;  // [4, cols]
  const uint8_t* mask = nullptr;
  bool mask_in_codes = false;
};
void norm_gradient_codes_kernel(Cuda, const NormGradientJob& job);

}  // namespace frugal::compress

// Kernels that compute from x while they pack or unpack x (autograd/packed_pass.h). The CPU has
// those of Combine and Sums. A new shape of pass is a job and a kernel here, and an overload of
// Quantized::run().
#pragma once
#include "autograd/packed_pass.h"
#include "compress/quantize/quantize_kernels.h"

namespace frugal::compress {

// PackedPass::Map, if there is a function, or ::Affine of PackJob::x. REQUIRES: groups of at most
// 256 rows, for which a block of threads holds x whole.
struct PackPassJob {
  std::optional<ops::Unary> function;
  const float* affine = nullptr;
  const void* residual = nullptr;
  bool rectify = false;
  void* out = nullptr;
  uint8_t* kept = nullptr;  // the mask that `rectify` makes; null if the codes carry it
};
void quantize_and_run_kernel(Cuda, const PackJob& job, const PackPassJob& pass);
// Where layout.split: the bits to carry are those of what `rectify` kept.
void split_quantize_and_run_kernel(Cuda, const PackJob& job, const PackPassJob& pass);
// What the pass asks for. REQUIRES: its tensors are there.
void quantize_and_run(const PackJob& job, const PackedPass& pass);

// UnpackJob::x is what is written.
struct MapJob {
  UnpackJob codes;
  ops::Unary function;
  const void* dy = nullptr;  // null: f(x)
  bool estimates = false;    // takes away what the variance adds
};
void map_codes_kernel(Cuda, const MapJob& job);

// `mask`: null where all bits are set, or those of the codes count.
struct CombineJob {
  UnpackJob codes;
  const void* y = nullptr;
  const float* k = nullptr;  // [4, cols]
  const uint8_t* mask = nullptr;
  bool mask_in_codes = false;
};
// f32 or bf16. Cpu: at least kLanes columns.
void combine_codes_kernel(Cpu, const CombineJob& job);
void combine_codes_kernel(Cuda, const CombineJob& job);

// `y`, `out` and `mask` begin at the first element of `codes`, and so does the first chunk.
struct ColumnSumsJob {
  UnpackJob codes;  // on CUDA, all codes of the tensor
  const Tensor &y, &center, &out, &partial;
  int64_t chunk_rows;
  Tensor mask;  // see CombineJob
  bool mask_in_codes = false;
};
// Cpu: as combine_codes_kernel().
void column_sums_codes_kernel(Cpu, const ColumnSumsJob& job);
void column_sums_codes_kernel(Cuda, const ColumnSumsJob& job);

}  // namespace frugal::compress

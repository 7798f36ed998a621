// What group_ranges() adds up of a tensor, on each device.
#pragma once
#include "compress/policies/actnn_sensitivity.h"
#include "core/device.h"

namespace frugal::compress {

struct RangeJob {
  const void* x = nullptr;
  DType dtype = DType::f32;
  Samples samples;
  int64_t group = 256;
  // Rows of a group of `take` that are looked at: each of these, from the first on.
  static constexpr int64_t kLookedRows = 64;
};

// sums[n * samples.cols + c], on the host: over the groups of column c of sample n, in their order,
// elements * range^2. CUDA: f32 or bf16; the CPU's terms, added in the CPU's order.
void range_sums_kernel(Cpu, const RangeJob& job, double* sums);
void range_sums_kernel(Cuda, const RangeJob& job, double* sums);

}  // namespace frugal::compress

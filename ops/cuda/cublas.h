// Matrix products by cuBLASLt, on the compute stream. The only door to that library; where CUDA is
// emulated, tests/cuda_emulator stands in for it.
#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace frugal::ops::cublas {

// A matrix of each batch item: rows `leading` elements apart, items `stride` (0: one for all).
// `transposed`: memory holds the transpose, and its rows are `leading` apart.
struct Operand {
  const void* data = nullptr;
  bool transposed = false;
  int64_t leading = 0, stride = 0;
};

// c = alpha a b + beta c + bias, of a [m, k], b [k, n], c [m, n]. Sums are f32. cuBLASLt's gelu is
// not used: its bits are not ours, and what is made by it could not be rebuilt exactly.
struct Gemm {
  int64_t m = 0, n = 0, k = 0, batch = 1;  // REQUIRES: all at least 1, batch at most kMostBatch
  DType input = DType::f32;                // of a and b: f32, by matmul_precision(), or bf16
  DType output = DType::f32;               // of c and bias: f32; bf16 only beside bf16
  Operand a, b;
  void* c = nullptr;
  int64_t c_leading = 0, c_stride = 0;
  float alpha = 1, beta = 0;
  const void* bias = nullptr;  // [n], added to each row
};
// Kernels put batch items on an axis of the grid that ends here.
inline constexpr int64_t kMostBatch = 65535;

// Whether it was done: with a bias cuBLASLt may have no kernel, and then nothing was.
// Errors: no kernel for the product alone; the library's.
[[nodiscard]] bool gemm(const Gemm& problem);

}  // namespace frugal::ops::cublas

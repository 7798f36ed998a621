// Matrix products by cuBLASLt, on the compute stream. No other file calls that library. In emulated
// builds tests/cuda_emulator stands in for it.
#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace frugal::ops::cublas {

// A matrix for each item of a batch. Rows lie `leading` elements apart, items lie `stride` elements
// apart (0: all items use one matrix). With `transposed`, memory holds the transpose, and the rows
// of the transpose lie `leading` apart.
struct Operand {
  const void* data = nullptr;
  bool transposed = false;
  int64_t leading = 0, stride = 0;
};

// c = alpha a b + beta c + bias, with a [m, k], b [k, n], c [m, n]. Sums are f32. The gelu of
// cuBLASLt is not used: its bits differ from those of our gelu, so its output could not be rebuilt
// exactly.
struct Gemm {
  int64_t m = 0, n = 0, k = 0, batch = 1;  // REQUIRES: all at least 1, batch at most kMostBatch
  DType input = DType::f32;                // dtype of a and b: f32, by matmul_precision(), or bf16
  DType output = DType::f32;               // dtype of c and bias: f32; bf16 only beside bf16
  Operand a, b;
  void* c = nullptr;
  int64_t c_leading = 0, c_stride = 0;
  float alpha = 1, beta = 0;
  const void* bias = nullptr;  // [n], added to each row
};
// Kernels put the items of a batch on an axis of the grid, and this is the longest that axis may
// be.
inline constexpr int64_t kMostBatch = 65535;

// Opens the library, which else the first product does.  Errors: it is missing; the message says
// what helps.
void open_library();

// Returns whether the product was computed. With a bias cuBLASLt may have no kernel; then nothing
// was written.
// Errors: no kernel even without a bias; errors of the library.
[[nodiscard]] bool gemm(const Gemm& problem);

}  // namespace frugal::ops::cublas

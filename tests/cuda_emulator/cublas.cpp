// Stands in for cuBLASLt: plain loops behind the same interface.
#include "ops/cuda/cublas.h"

#include "core/cuda/cuda.h"
#include "core/error.h"
#include "cuda_runtime.h"

namespace frugal::ops::cublas {
namespace {

float get(const void* data, int64_t i, DType dtype) {
  return dtype == DType::bf16 ? static_cast<float>(static_cast<const BFloat16*>(data)[i])
                              : static_cast<const float*>(data)[i];
}
void put(void* data, int64_t i, DType dtype, float value) {
  if (dtype == DType::bf16)
    static_cast<BFloat16*>(data)[i] = BFloat16(value);
  else
    static_cast<float*>(data)[i] = value;
}

int64_t place(const Operand& x, int64_t item, int64_t row, int64_t column) {
  return item * x.stride + (x.transposed ? column * x.leading + row : row * x.leading + column);
}

void run(const Gemm& p) {
  const emulator::DeviceAccess access;
  for (int64_t item = 0; item < p.batch; ++item)
    for (int64_t row = 0; row < p.m; ++row)
      for (int64_t column = 0; column < p.n; ++column) {
        float sum = 0;
        for (int64_t i = 0; i < p.k; ++i)
          sum += get(p.a.data, place(p.a, item, row, i), p.input) *
                 get(p.b.data, place(p.b, item, i, column), p.input);
        const int64_t at = item * p.c_stride + row * p.c_leading + column;
        sum *= p.alpha;
        if (p.beta != 0) sum += p.beta * get(p.c, at, p.output);
        if (p.bias != nullptr) sum += get(p.bias, column, p.output);
        put(p.c, at, p.output, sum);
      }
}

}  // namespace

void open_library() {}

// As cuBLASLt may: no kernel that adds a bias to rows of 13.
bool gemm(const Gemm& problem) {
  FRUGAL_ASSERT(problem.batch <= kMostBatch);
  if (problem.n == 13 && problem.bias != nullptr) return false;
  emulator::submit(cuda::stream(), [problem] { run(problem); });
  return true;
}

}  // namespace frugal::ops::cublas

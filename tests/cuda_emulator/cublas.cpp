// Stands in for cuBLASLt: plain loops behind the same interface.
#include "ops/cublas.h"

#include <cmath>

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

float gelu(float x) {
  const double v = x;
  return static_cast<float>(
      0.5 * v *
      (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (v + 0.044715 * v * v * v))));
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
        if (p.before != nullptr) put(p.before, row * p.n + column, p.output, sum);
        if (p.epilogue == Epilogue::relu && sum <= 0) sum = 0;
        if (p.epilogue == Epilogue::gelu_tanh) sum = gelu(sum);
        put(p.c, at, p.output, sum);
      }
}

}  // namespace

// As cuBLASLt may: no kernel that adds a bias to rows of 13.
bool gemm(const Gemm& problem) {
  if (problem.n == 13 && (problem.bias != nullptr || problem.epilogue != Epilogue::none))
    return false;
  emulator::submit([problem] { run(problem); });
  return true;
}

}  // namespace frugal::ops::cublas

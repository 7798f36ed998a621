#include "ops/linear_activation.h"

#include "ops/cublas.h"
#include "ops/cuda_cast.h"

namespace frugal::ops {

bool linear_gelu_kernel(Cuda, const LinearGelu& out, const Tensor& x, const Tensor& weight,
                        const Tensor& bias) {
  cublas::Gemm p;
  p.n = weight.size(0), p.k = weight.size(1);
  // What cuBLASLt asks of the rows of h.
  if (x.numel() == 0 || p.n == 0 || p.n % 8 != 0) return false;
  p.m = x.numel() / p.k;
  const Tensor w = cuda::in_dtype(weight, x.dtype()), row = cuda::in_dtype(bias, x.dtype());
  p.input = p.output = x.dtype();
  p.a = {x.raw(), false, p.k, 0};
  p.b = {w.raw(), true, p.k, 0};
  p.c = out.y.raw();
  p.c_leading = p.n;
  p.bias = row.defined() ? row.raw() : nullptr;
  p.epilogue = cublas::Epilogue::gelu_tanh;
  p.before = out.h.raw();
  return cublas::gemm(p);
}

}  // namespace frugal::ops

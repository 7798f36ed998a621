// Matrix products: f32 and bf16 with sums in f32 (oneDNN; on CUDA cuBLASLt; see ops/precision.h),
// on the CPU also f64 (plain loops).
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

// a [..., M, K], b [..., K, N] -> [..., M, N]. The batch axes broadcast. Transposed views are read
// without a copy. Errors: fewer than two axes, inner extents that differ, batch axes that do not
// broadcast.
Tensor matmul(const Tensor& a, const Tensor& b);
// c = a b for matrices. c may be a strip of columns of a larger matrix, whose other columns stay.
// REQUIRES: that of the kernels below; c [M, N] has elements, and K is above 0.
void multiply_into(const Tensor& c, const Tensor& a, const Tensor& b);
// REQUIRES: each operand is contiguous, or becomes contiguous when its last two axes are swapped;
// equal numbers of axes. The rows of a matrix c may lie apart, if there is no bias. An f32 operand
// beside a bf16 one is rounded to bf16; then c is f32 or bf16, else f32.
void matmul_kernel(Cpu, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias);
void matmul_kernel(Cuda, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias);
// c += a b.
void matmul_add_kernel(Cpu, const Tensor& c, const Tensor& a, const Tensor& b);
void matmul_add_kernel(Cuda, const Tensor& c, const Tensor& a, const Tensor& b);

// x [..., I], weight [O, I], bias [O] or undefined -> x weight^T + bias, [..., O]. Beside a bf16 x,
// the gradient of the weight is f32. The parameters are f32, too, or bf16 where the caller cast
// them for several products.  Errors: extents that differ.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);
Tensor linear_backward_input(const Tensor& dy, const Tensor& weight);  // [..., I]
Tensor linear_backward_weight(const Tensor& dy, const Tensor& x);      // [O, I]
// Adds linear_backward_weight() to `into`, which is contiguous, for rows that come in parts.
// Errors: extents that differ.
void add_linear_backward_weight(const Tensor& into, const Tensor& dy, const Tensor& x);
// Adds linear() without a bias, and linear_backward_input(), to `into`, which is contiguous.
// Errors: extents that differ.
void add_linear(const Tensor& into, const Tensor& x, const Tensor& weight);
void add_linear_backward_input(const Tensor& into, const Tensor& dy, const Tensor& weight);
// dy summed over all axes but the last. It is also the gradient of a convolution's bias.
Tensor linear_backward_bias(const Tensor& dy);                                  // [O]
void linear_backward_bias_kernel(Cuda, const Tensor& dy, const Tensor& dbias);  // bf16 to f32

}  // namespace frugal::ops

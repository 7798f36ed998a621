// Softmax and log-softmax along any axis. f32, bf16 and f64, which CUDA has not; sums in f64. A row
// that holds NaN or +inf, or only -inf, becomes NaN in all its elements, as in PyTorch.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

// y = exp(x) / sum(exp(x)) along `axis`, of x's shape.
Tensor softmax(const Tensor& x, int axis = -1);
// y = x - log(sum(exp(x))).
Tensor log_softmax(const Tensor& x, int axis = -1);

// dx from the gradient dy and the output y, which have one shape.
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int axis = -1);      // y (dy - <dy, y>)
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int axis = -1);  // dy - e^y sum(dy)

// REQUIRES: all tensors are contiguous. Work along the last axis.
void softmax_kernel(Cpu, const Tensor& x, const Tensor& y, bool log);
void softmax_kernel(Cuda, const Tensor& x, const Tensor& y, bool log);
void softmax_backward_kernel(Cpu, const Tensor& dy, const Tensor& y, const Tensor& dx, bool log);
void softmax_backward_kernel(Cuda, const Tensor& dy, const Tensor& y, const Tensor& dx, bool log);

}  // namespace frugal::ops

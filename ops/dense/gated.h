// Gated units: act(gate) up, elementwise. f32, bf16 and f64, which CUDA has not.
// Ref: Shazeer 2020, equations 5 and 6.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

// gate, up [...] -> y [...] = act(gate) up. If `variance`, the expected squared error of each
// element of gate, is defined, act(gate) is unary_estimate() (ops/dense/elementwise.h). Errors:
// shapes, dtypes or devices that differ.
Tensor gated(Gate kind, const Tensor& gate, const Tensor& up, const Tensor& variance = {});

// Writes y = act(gate) up into a contiguous tensor, which may be gate, up or `variance`.
// REQUIRES of both functions below: contiguous tensors of one shape.
void gated_into(Gate kind, const Tensor& gate, const Tensor& up, const Tensor& variance,
                const Tensor& y);
// Writes dgate = dy up act'(gate) and dup = dy act(gate). Either may be undefined; without dgate,
// `up` may be, too. dgate may be dy, and dup must be no other tensor here.
struct GatedGradients {
  Tensor dgate, dup;
};
void gated_backward_into(Gate kind, const Tensor& dy, const Tensor& gate, const Tensor& up,
                         const Tensor& variance, const GatedGradients& to);

void gated_kernel(Cpu, Gate kind, const Tensor& gate, const Tensor& up, const Tensor& variance,
                  const Tensor& y);
void gated_kernel(Cuda, Gate kind, const Tensor& gate, const Tensor& up, const Tensor& variance,
                  const Tensor& y);
void gated_backward_kernel(Cpu, Gate kind, const Tensor& dy, const Tensor& gate, const Tensor& up,
                           const Tensor& variance, const GatedGradients& to);
void gated_backward_kernel(Cuda, Gate kind, const Tensor& dy, const Tensor& gate, const Tensor& up,
                           const Tensor& variance, const GatedGradients& to);

}  // namespace frugal::ops

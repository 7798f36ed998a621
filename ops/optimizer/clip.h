// Clipping by the joint norm, and the check before an update. The numbers stay on the device.
#pragma once
#include <vector>

#include "core/finite.h"
#include "core/host_device.h"
#include "core/tensor.h"

namespace frugal::ops {

// The joint 2-norm of tensors on one device, as [] f64 on that device. The tensors are f32, or f64
// on the CPU. Squares are added in fixed chunks, so the result is the same for every number of
// threads. Without tensors the result is 0 on the CPU.
Tensor joint_norm(const std::vector<Tensor>& tensors);
void joint_norm_kernel(Cpu, const std::vector<Tensor>& tensors, const Tensor& norm);
void joint_norm_kernel(Cuda, const std::vector<Tensor>& tensors, const Tensor& norm);

// What clipping multiplies by: most / (norm + 1e-6) if the norm is finite and above `most`, else 1.
FRUGAL_HD double clip_factor(double norm, double most) {
  return is_finite(norm) && norm > most ? most / (norm + 1e-6) : 1;
}

// x *= clip_factor(norm, most) in place for each x. norm: [] f64.
// Tensors are contiguous; dtypes and device as in joint_norm(). Versions rise.
void clip_to(const std::vector<Tensor>& tensors, const Tensor& norm, double most);
void clip_to_kernel(Cpu, const std::vector<Tensor>& tensors, const Tensor& norm, double most);
void clip_to_kernel(Cuda, const std::vector<Tensor>& tensors, const Tensor& norm, double most);

// [] u8: 1 if the update may be made. It is 0 if norm ([] f64, or undefined) is not finite, or if
// the loss ([] f32) is not finite although at least one target counts. target: classes i64, where
// `ignored` does not count, or labels f32, where numbers below 0 do not count. All tensors are on
// one device.
Tensor may_step(const Tensor& loss, const Tensor& target, int64_t ignored, const Tensor& norm);
void may_step_kernel(Cpu, const Tensor& loss, const Tensor& target, int64_t ignored,
                     const Tensor& norm, const Tensor& flag);
void may_step_kernel(Cuda, const Tensor& loss, const Tensor& target, int64_t ignored,
                     const Tensor& norm, const Tensor& flag);

}  // namespace frugal::ops

// Clipping by the joint norm and the check before an update, with numbers that stay on the device.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace frugal::ops {

// The joint 2-norm, [] f64 on the tensors' device, of f32 tensors or on the CPU f64, of one device.
// Squares are added up in fixed chunks: the same for any thread count. Without tensors 0 on the
// CPU.
Tensor joint_norm(const std::vector<Tensor>& tensors);
void joint_norm_kernel(Cpu, const std::vector<Tensor>& tensors, const Tensor& norm);
void joint_norm_kernel(Cuda, const std::vector<Tensor>& tensors, const Tensor& norm);

// Where norm, [] f64, is finite and above most: x *= most / (norm + 1e-6) for each x in place.
// Tensors contiguous, dtypes and device as above; bumps the versions.
void clip_to(const std::vector<Tensor>& tensors, const Tensor& norm, double most);
void clip_to_kernel(Cpu, const std::vector<Tensor>& tensors, const Tensor& norm, double most);
void clip_to_kernel(Cuda, const std::vector<Tensor>& tensors, const Tensor& norm, double most);

// [] u8: 1 where a step may be made, 0 where the loss, [] f32, is not finite although a target
// counts, or norm, [] f64 or undefined, is not. target: classes i64 of which ignored does not
// count, or labels f32, of which those below 0 do not. All on one device.
Tensor may_step(const Tensor& loss, const Tensor& target, int64_t ignored, const Tensor& norm);
void may_step_kernel(Cpu, const Tensor& loss, const Tensor& target, int64_t ignored,
                     const Tensor& norm, const Tensor& flag);
void may_step_kernel(Cuda, const Tensor& loss, const Tensor& target, int64_t ignored,
                     const Tensor& norm, const Tensor& flag);

}  // namespace frugal::ops

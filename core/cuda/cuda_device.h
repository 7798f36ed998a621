// What this process asks of CUDA's devices, for code without CUDA's headers. CUDA builds only.
#pragma once

namespace frugal::cuda {

// The index of the device that this thread uses.
int current_device();
// Whether every tensor is a separate piece of the system's memory (core/cuda/cuda_memory.h).
bool one_by_one();

}  // namespace frugal::cuda

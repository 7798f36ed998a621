// What the tests of ranks with CUDA tensors share. All ranks run the same cases in the same order.
#pragma once
#include <cstdlib>

#include "distributed/nccl.h"
#include "ops/dense/copy.h"
#include "tests/cuda/gpu.h"
#include "tests/distributed/ranks.h"

namespace frugal::distributed {

// Ranks of a machine take its GPUs in turn.
inline Device gpu() { return {DeviceType::cuda, launch().rank_on_host % cuda::device_count()}; }

inline Tensor on_gpu(const Tensor& x) { return to_device(x, gpu()); }
inline Tensor on_host(const Tensor& x) { return to_device(ops::contiguous(x), kCpu); }

// Whether NCCL must serve several ranks; -1: the machine decides.
inline int expects_nccl() {
  const char* const text = std::getenv("FRUGAL_TEST_NCCL");
  return text == nullptr ? -1 : std::atoi(text);
}

}  // namespace frugal::distributed

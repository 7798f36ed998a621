// What the tests of the CUDA backend share.
#pragma once
#include <doctest/doctest.h>

#include "core/cuda_memory.h"

namespace emulator {
int64_t launches() __attribute__((weak));  // kernels run so far; none on a GPU
}

namespace frugal::gpu {

inline constexpr Device kCuda{DeviceType::cuda, 0};

// Whether there is a GPU; a printed reason where there is none.
inline bool available() {
  if (cuda::device_count() > 0) return true;
  MESSAGE("left out: this machine has no CUDA device");
  return false;
}

}  // namespace frugal::gpu

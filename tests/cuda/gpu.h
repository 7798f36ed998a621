// What the tests of the CUDA backend share.
#pragma once
#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

#include "core/cuda/cuda_memory.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "ops/precision.h"

namespace emulator {                       // none of this on a GPU
int64_t launches() __attribute__((weak));  // kernels run so far
int64_t waits() __attribute__((weak));     // how often the host waited so far
// Streams do their work later than the call that queues it; the compute stream does nothing for so
// long (cuda_emulator/include/cuda_runtime.h).
void set_late(bool on) __attribute__((weak));
void stall(int milliseconds) __attribute__((weak));
std::function<void()> hold() __attribute__((weak));  // until the returned function is called
}  // namespace emulator

namespace frugal::gpu {

inline constexpr Device kCuda{DeviceType::cuda, 0};

inline bool emulated() { return emulator::waits != nullptr; }

// Returns how often the host has waited so far. Only the emulator counts that: a GPU gives 0.
inline int64_t waits() { return emulated() ? emulator::waits() : 0; }

// Returns the bytes that live tensors take on the GPU, in all or in one category.
inline int64_t live() { return allocator(kCuda).report().live_total; }
inline int64_t live(Category category) { return allocator(kCuda).report().of(category); }

// Whether there is a GPU. Where there is none, the test fails, so that a broken driver is not taken
// for success; FRUGAL_WITHOUT_GPU=1 in the environment leaves the test out and prints why.
inline bool available() {
  if (cuda::device_count() > 0) return true;
  const char* const allowed = std::getenv("FRUGAL_WITHOUT_GPU");
  const std::string why = cuda::why_no_device();
  if (allowed == nullptr || std::string_view(allowed) != "1")
    FAIL(why << "; FRUGAL_WITHOUT_GPU=1 leaves the tests of CUDA out");
  MESSAGE("left out: " << why);
  return false;
}

// While one lives, the emulator's streams are late, as a GPU's are.
struct LateStreams {
  LateStreams() {
    if (emulated()) emulator::set_late(true);
  }
  ~LateStreams() {
    if (emulated()) emulator::set_late(false);
  }
};

// Products of f32 may round to tf32 while it lives.
struct RoundingScope {
  explicit RoundingScope(bool rounds) {
    ops::set_matmul_precision(rounds ? ops::MatmulPrecision::tf32 : ops::MatmulPrecision::f32);
  }
  ~RoundingScope() { ops::set_matmul_precision(ops::MatmulPrecision::f32); }
};

// Libraries take no workspace that they can do without while it lives.
struct NoWorkspaceScope {
  NoWorkspaceScope() { ops::set_convolution_workspace(0); }
  ~NoWorkspaceScope() { ops::set_convolution_workspace(before); }
  const int64_t before = ops::convolution_workspace();
};

// f(dtype) for what libraries compute in: f32, f32 that rounds to tf32, bf16.
template <class F>
void each_precision(F f) {
  for (const bool rounds : {false, true}) {
    CAPTURE(rounds);
    const RoundingScope scope(rounds);
    f(DType::f32);
  }
  f(DType::bf16);
}

}  // namespace frugal::gpu

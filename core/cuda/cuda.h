// The CUDA runtime with checks and owners: every status is checked, every handle has an owner. For
// .cu files.
//
// All work of a device goes to one compute stream and runs in order. So memory may be used again as
// soon as it is released. Copies that run beside the compute stream use a Stream of their own and
// Events.
#pragma once
#include <cuda_runtime.h>

#include <utility>

#include "core/cuda/cuda_grid.h"
#include "core/cuda/cuda_memory.h"
#include "core/tensor.h"

namespace frugal::cuda {

// Errors: Error "[cuda] CALL: what CUDA says". The message ends with advice() where memory is used
// up, and after a fault that only a new process can clear.
void check(cudaError_t status, const char* call);
#define FRUGAL_CUDA_CHECK(call) ::frugal::cuda::check((call), #call)
// For destructors: logs the text that check() would throw. Logs nothing while the process ends.
void report(cudaError_t status, const char* call) noexcept;
#define FRUGAL_CUDA_REPORT(call) ::frugal::cuda::report((call), #call)

// Makes `device` current for this thread.  Errors: no such device.
void use(Device device);

// The compute stream of the current device.
cudaStream_t stream();

class Event {
 public:
  explicit Event(bool timed = false);
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  void record(cudaStream_t on);
  void hold(cudaStream_t waiting) const;  // `waiting` runs what is queued on it next only after the
                                          // recorded moment
  void wait() const;                      // blocks the host until the recorded moment has passed
  bool passed() const;
  double milliseconds_since(const Event& begin) const;  // REQUIRES: both events are timed and
                                                        // passed

 private:
  cudaEvent_t event_ = nullptr;
};

// A stream beside the compute stream.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

struct Grid {
  dim3 blocks;
  int threads = 256;
  size_t shared = 0;  // bytes of dynamic_shared()
};

// Lets a kernel take `shared` bytes beside its own __shared__ variables, which count against the
// same limits: 48 KiB of a block, and more only where that was asked for. Errors: more than a block
// of the device can have.
void ask_for_shared(const void* kernel, size_t shared);

// Queues kernel(args...) on the compute stream. Does nothing if an extent of the grid is 0.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, Arguments&&... arguments) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  constexpr size_t kMayBeTooMuch = size_t{16} << 10;  // no kernel has 32 KiB of its own
  if (grid.shared > kMayBeTooMuch)
    ask_for_shared(reinterpret_cast<const void*>(kernel), grid.shared);
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared;
  config.stream = stream();
  FRUGAL_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

int multiprocessors();  // how many the current device has

// x by y blocks. Errors: more than CUDA takes.
inline dim3 as_blocks(int64_t x, int64_t y = 1) {
  return dim3(checked_blocks(x), checked_blocks(y, kMostBlocksAcross));
}

// The number of blocks for n elements, one element for each thread. Where n is large there are
// fewer blocks, and each thread strides over several elements.
inline dim3 blocks_for(int64_t n, int threads = 256) {
  return as_blocks(striding_blocks(n, threads, int64_t{multiprocessors()} * 32));
}

}  // namespace frugal::cuda

// What this process asks of CUDA's devices, for code without CUDA's headers. CUDA builds only.
#pragma once

namespace frugal::cuda {

// The index of the device that this thread uses.
int current_device();
// While one lives, what this thread queues on a device goes to another library's stream (a
// cudaStream_t; null: CUDA's default stream) and not to the compute stream. The engine's allocator
// follows the compute stream, so all memory of that work is the other library's. The device that
// was current is current again afterwards. Not nested.
class StreamScope {
 public:
  StreamScope(int device, void* stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  int before_;
};
// Whether every tensor is a separate piece of the system's memory (core/cuda/cuda_memory.h).
bool one_by_one();

}  // namespace frugal::cuda

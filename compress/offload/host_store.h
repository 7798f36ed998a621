// HostStore: payloads of a CUDA device, in a window of device memory and in pinned host memory.
//
// On the device there are at most `window` bytes of payloads, category `packed`, plus pinned ones.
// When payloads take more than half a window, the oldest are copied out, on a stream beside the
// compute stream, after the kernels that wrote them. They stay on the device until their room is
// needed. prefetch() copies a payload back, on a stream of its own, if the window has room,
// otherwise when something is dropped. Room that is left once the backward pass has begun is used
// for the newest payloads. The host never waits. The compute stream waits in two cases: for a copy
// back when a payload is used, and for a copy out before memory that the copy reads is released.
// Thread safety: all functions, on threads whose current device is that of the payloads.
#pragma once
#include <memory>

#include "core/tensor.h"

namespace frugal::compress {

class HostStore {
 public:
  using Id = uint64_t;
  virtual ~HostStore() = default;  // REQUIRES: every payload was dropped

  // These functions do what those of PayloadStore do. Errors of put: the machine cannot pin more
  // memory; then nothing was taken.
  virtual Id put(Tensor payload) = 0;
  virtual Tensor pin(Id id) = 0;
  virtual void unpin(Id id) noexcept = 0;
  virtual void prefetch(Id id) noexcept = 0;
  virtual void drop(Id id) noexcept = 0;

  struct Stats {
    int64_t out = 0, back = 0;   // bytes that were copied
    int64_t resident = 0;        // bytes on the device
    int64_t used = 0, held = 0;  // pinned bytes
  };
  virtual Stats stats() const = 0;
};

// CUDA builds only.
std::unique_ptr<HostStore> make_host_store(Device device, int64_t window);

}  // namespace frugal::compress

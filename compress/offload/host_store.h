// HostStore: payloads of a CUDA device between a window of its memory and pinned host memory.
//
// On the device: at most `window` bytes of payloads, category `packed`, plus what is pinned. Beyond
// half a window the oldest are copied out, on a stream beside the compute stream, after the kernels
// that wrote them; they stay on the device until their room is needed. prefetch() copies back, on a
// stream of its own, where the window has room, else when something is dropped; room that is left
// once backward has begun is for the newest. Nothing waits on the host: the compute stream waits,
// for a copy back where a payload is used, and for a copy out where memory goes that it reads.
// Thread safety: all functions, of threads whose current device is the payloads'.
#pragma once
#include <memory>

#include "core/tensor.h"

namespace frugal::compress {

class HostStore {
 public:
  using Id = uint64_t;
  virtual ~HostStore() = default;  // REQUIRES: every payload was dropped

  // As those of PayloadStore. Errors: put: the machine has no more to pin; then nothing was taken.
  virtual Id put(Tensor payload) = 0;
  virtual Tensor pin(Id id) = 0;
  virtual void unpin(Id id) noexcept = 0;
  virtual void prefetch(Id id) noexcept = 0;
  virtual void drop(Id id) noexcept = 0;

  struct Stats {
    int64_t out = 0, back = 0;   // bytes copied
    int64_t resident = 0;        // on the device
    int64_t used = 0, held = 0;  // pinned
  };
  virtual Stats stats() const = 0;
};

// CUDA builds only.
std::unique_ptr<HostStore> make_host_store(Device device, int64_t window);

}  // namespace frugal::compress

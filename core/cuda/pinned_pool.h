// PinnedPool: host memory that CUDA copies to and from while kernels run. The system is slow to
// give such memory, so released memory is kept and used again. Not thread-safe. CUDA builds only.
#pragma once
#include <functional>

#include "core/memory/segment_pool.h"

namespace frugal::cuda {

class PinnedPool {
 public:
  // settle: waits for the copies that still use released memory. It runs before memory goes back to
  // the system, and must not throw. Without it, no copy may use memory that was released.
  explicit PinnedPool(std::function<void()> settle = {});
  // Errors: the machine cannot pin more memory.
  void* allocate(int64_t bytes);
  // REQUIRES: whoever gets this memory next uses it only after the copies that use it now.
  void release(void* data) noexcept { pool_.release(data); }
  int64_t used() const { return pool_.used(); }
  int64_t held() const { return pool_.held(); }

 private:
  SegmentPool pool_;
};

}  // namespace frugal::cuda

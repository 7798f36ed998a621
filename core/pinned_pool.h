// PinnedPool: host memory that CUDA copies to and from while kernels run. Slow to get from the
// system, so what is released is kept and used again. Not thread-safe. CUDA builds only.
#pragma once
#include <functional>

#include "core/segment_pool.h"

namespace frugal::cuda {

class PinnedPool {
 public:
  // settle: waits for the copies that use what was released; runs before memory goes back to the
  // system, and must not throw. Without it nothing that was released may be in use.
  explicit PinnedPool(std::function<void()> settle = {});
  // Errors: the machine has no more to pin.
  void* allocate(int64_t bytes);
  // REQUIRES: who gets it next uses it after the copies that use it now.
  void release(void* data) noexcept { pool_.release(data); }
  int64_t used() const { return pool_.used(); }
  int64_t held() const { return pool_.held(); }

 private:
  SegmentPool pool_;
};

}  // namespace frugal::cuda

// PinnedPool: host memory that CUDA copies to and from while kernels run. Slow to get from the
// system, so what is released is kept and used again. Not thread-safe. CUDA builds only.
#pragma once
#include "core/segment_pool.h"

namespace frugal::cuda {

class PinnedPool {
 public:
  PinnedPool();
  // Errors: the machine has no more to pin.
  void* allocate(int64_t bytes);
  void release(void* data) noexcept { pool_.release(data); }  // REQUIRES: no copy uses it
  int64_t used() const { return pool_.used(); }
  int64_t held() const { return pool_.held(); }

 private:
  SegmentPool pool_;
};

}  // namespace frugal::cuda

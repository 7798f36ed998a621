#include "core/cuda/cuda_staging.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "core/cuda/cuda.h"
#include "core/cuda/cuda_graph.h"
#include "core/cuda/pinned_pool.h"
#include "core/log.h"
#include "core/parallel.h"

namespace frugal::cuda {
namespace {

constexpr int64_t kChunk = int64_t{1} << 20;

void copy_on_host(void* to, const void* from, int64_t bytes) {
  parallel_for(0, (bytes + kChunk - 1) / kChunk, 4, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kChunk, last = std::min(end * kChunk, bytes);
    std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first,
                static_cast<size_t>(last - first));
  });
}

class Stage {
 public:
  // Returns false if no memory can be pinned; then nothing was queued.
  bool copy(void* to, const Tensor& from) {
    const std::lock_guard lock(mutex_);
    reclaim();
    void* pinned = pin(from.nbytes());
    if (pinned == nullptr) return false;
    try {
      copy_on_host(pinned, from.raw(), from.nbytes());
      FRUGAL_CUDA_CHECK(cudaMemcpyAsync(to, pinned, static_cast<size_t>(from.nbytes()),
                                        cudaMemcpyDefault, stream()));
      Event copied;
      copied.record(stream());
      running_.push_back({pinned, std::move(copied)});
    } catch (...) {
      FRUGAL_CUDA_REPORT(cudaStreamSynchronize(stream()));
      pool_.release(pinned);
      throw;
    }
    return true;
  }
  StagedBytes bytes() {
    const std::lock_guard lock(mutex_);
    reclaim();
    return {pool_.used(), pool_.held()};
  }

 private:
  struct Copy {
    void* pinned;
    Event copied;
  };
  void reclaim() {
    while (!running_.empty() && running_.front().copied.passed()) {
      pool_.release(running_.front().pinned);
      running_.pop_front();
    }
  }
  void* pin(int64_t bytes) {
    try {
      return pool_.allocate(bytes);
    } catch (const Error& e) {
      if (!warned_) log().warn("batches are copied from pageable memory: {}", e.what());
      warned_ = true;
      return nullptr;
    }
  }

  std::mutex mutex_;
  PinnedPool pool_;
  std::deque<Copy> running_;  // in the order of the stream
  bool warned_ = false;
};

Stage& stage_of(Device device) {
  static auto* all = new std::map<int, Stage>;  // never destroyed: at the end of the process the
                                                // driver may be gone already
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return (*all)[device.index];
}

}  // namespace

Tensor staged(const Tensor& x, Device device) {
  if (x.device() != kCpu || x.nbytes() == 0) return to_device(x, device);
  FRUGAL_CHECK(x.is_contiguous(), "[staged] expected a contiguous tensor, got {}", describe(x));
  FRUGAL_CHECK(!recording(),
               "[cuda] expected a batch that is on the device before work is "
               "recorded (captured), got one on the host");
  use(device);
  const Tensor there = Tensor::empty(x.shape(), x.dtype(), device);
  return stage_of(device).copy(there.raw(), x) ? there : to_device(x, device);
}

void staged_copy(void* to, Device device, const Tensor& x) {
  FRUGAL_ASSERT(x.device() == kCpu && x.nbytes() > 0 && !recording());
  use(device);
  if (!stage_of(device).copy(to, x)) cuda::copy_bytes(to, device, x.raw(), kCpu, x.nbytes());
}

StagedBytes staged_bytes(Device device) {
  use(device);
  return stage_of(device).bytes();
}

}  // namespace frugal::cuda

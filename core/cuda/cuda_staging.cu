#include "core/cuda/cuda_staging.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "core/cuda/cuda.h"
#include "core/cuda/cuda_graph.h"
#include "core/cuda/pinned_pool.h"
#include "core/integers.h"
#include "core/log.h"
#include "core/parallel.h"

namespace frugal::cuda {
namespace {

constexpr int64_t kChunk = int64_t{1} << 20;
constexpr int64_t kStagingAlignment = 64;
constexpr int64_t kMostTogether = int64_t{4} << 20;  // a tensor of more bytes is read alone, so
                                                     // that little memory is pinned

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
  // Copies tensors of the device to `to`, whose tensors are on the host. Returns false if no memory
  // can be pinned; then nothing was copied.
  bool read(const std::vector<Tensor>& from, const std::vector<Tensor>& to) {
    const std::lock_guard lock(mutex_);
    reclaim();
    int64_t bytes = 0;
    for (const Tensor& x : from) bytes += round_up(x.nbytes(), kStagingAlignment);
    auto* const pinned = static_cast<char*>(pin(bytes));
    if (pinned == nullptr) return false;
    try {
      int64_t at = 0;
      for (const Tensor& x : from) {
        FRUGAL_CUDA_CHECK(cudaMemcpyAsync(pinned + at, x.raw(), static_cast<size_t>(x.nbytes()),
                                          cudaMemcpyDefault, stream()));
        at += round_up(x.nbytes(), kStagingAlignment);
      }
      synchronize();
      at = 0;
      for (const Tensor& x : to) {
        std::memcpy(x.raw(), pinned + at, static_cast<size_t>(x.nbytes()));
        at += round_up(x.nbytes(), kStagingAlignment);
      }
    } catch (...) {
      FRUGAL_CUDA_REPORT(cudaStreamSynchronize(stream()));
      pool_.release(pinned);
      throw;
    }
    pool_.release(pinned);
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
  FRUGAL_CHECK(!capturing(),
               "[cuda] expected a batch that is on the device before work is captured, got one on "
               "the host");
  use(device);
  const Tensor there = Tensor::empty(x.shape(), x.dtype(), device);
  return stage_of(device).copy(there.raw(), x) ? there : to_device(x, device);
}

void staged_copy(void* to, Device device, const Tensor& x) {
  FRUGAL_ASSERT(x.device() == kCpu && x.nbytes() > 0 && !capturing());
  use(device);
  if (!stage_of(device).copy(to, x)) cuda::copy_bytes(to, device, x.raw(), kCpu, x.nbytes());
}

std::vector<Tensor> host_copies(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> out = tensors, from, to;
  Device device = kCpu;
  for (Tensor& x : out) {
    if (!x.defined() || x.device().type != DeviceType::cuda) continue;
    FRUGAL_CHECK(x.is_contiguous(), "[host_copies] expected contiguous tensors, got {}",
                 describe(x));
    const bool together =
        x.nbytes() > 0 && x.nbytes() <= kMostTogether && (device == kCpu || x.device() == device);
    if (!together) {
      x = to_device(x, kCpu);
      continue;
    }
    device = x.device();
    from.push_back(x);
    x = Tensor::empty(x.shape(), x.dtype());
    to.push_back(x);
  }
  if (from.empty()) return out;
  use(device);
  if (!stage_of(device).read(from, to))
    for (size_t i = 0; i < from.size(); ++i)
      cuda::copy_bytes(to[i].raw(), kCpu, from[i].raw(), device, from[i].nbytes());
  return out;
}

StagedBytes staged_bytes(Device device) {
  use(device);
  return stage_of(device).bytes();
}

}  // namespace frugal::cuda

#include "compress/quantize/nonfinite_count.h"

#include <map>

#include "core/cuda/cuda.h"
#include "core/cuda/cuda_graph.h"

namespace frugal::compress {
namespace {

// Counters of a device come from small blocks that are never given back. Work that is being
// captured takes one that is zero already: zeroing it there would be captured too, and every rerun
// would begin anew.
class Counters {
 public:
  unsigned long long* take() {
    const std::lock_guard lock(mutex_);
    if (!used_.empty() && !cuda::capturing()) {
      FRUGAL_CUDA_CHECK(cudaMemsetAsync(used_.back(), 0, sizeof(*used_.back()), cuda::stream()));
      zero_.push_back(used_.back());
      used_.pop_back();
    }
    if (zero_.empty()) add_zeros();
    unsigned long long* one = zero_.back();
    zero_.pop_back();
    return one;
  }
  void give_back(unsigned long long* one) {
    const std::lock_guard lock(mutex_);
    used_.push_back(one);
  }

 private:
  void add_zeros() {
    constexpr size_t kCount = 256;
    constexpr size_t kBytes = kCount * sizeof(unsigned long long);
    void* block = blocks_.emplace_back(cuda::system_memory(kBytes)).get();
    const cuda::Stream beside;  // nothing on it is captured
    FRUGAL_CUDA_CHECK(cudaMemsetAsync(block, 0, kBytes, beside.get()));
    FRUGAL_CUDA_CHECK(cudaStreamSynchronize(beside.get()));
    for (size_t i = 0; i < kCount; ++i)
      zero_.push_back(static_cast<unsigned long long*>(block) + i);
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> blocks_;
  std::vector<unsigned long long*> zero_, used_;
};

Counters& counters(int device) {
  static auto* all = new std::map<int, Counters>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return (*all)[device];
}

}  // namespace

NonfiniteCount::~NonfiniteCount() {
  for (const auto& [device, counter] : there_) counters(device).give_back(counter);
}

unsigned long long* NonfiniteCount::on_device() {
  int current = 0;
  FRUGAL_CUDA_CHECK(cudaGetDevice(&current));
  const std::lock_guard lock(mutex_);
  for (const auto& [device, counter] : there_)
    if (device == current) return counter;
  return there_.emplace_back(current, counters(current).take()).second;
}

int64_t NonfiniteCount::value() const {
  const std::lock_guard lock(mutex_);
  int64_t sum = here_.load(std::memory_order_relaxed);
  for (const auto& [device, counter] : there_) {
    unsigned long long groups = 0;
    frugal::copy_bytes(&groups, kCpu, counter, Device{DeviceType::cuda, device}, sizeof(groups));
    sum += static_cast<int64_t>(groups);
  }
  return sum;
}

}  // namespace frugal::compress

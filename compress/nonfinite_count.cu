#include "compress/nonfinite_count.h"

#include <map>

#include "core/cuda.h"

namespace frugal::compress {
namespace {

// Counters of a device come from one small block that is never given back, and is no tensor's:
// memory accounts hold what plans on `meta` hold.
class Counters {
 public:
  unsigned long long* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      constexpr size_t kCount = 256;
      void* block = nullptr;
      FRUGAL_CUDA_CHECK(cudaMalloc(&block, kCount * sizeof(unsigned long long)));
      for (size_t i = 0; i < kCount; ++i)
        free_.push_back(static_cast<unsigned long long*>(block) + i);
    }
    unsigned long long* one = free_.back();
    free_.pop_back();
    FRUGAL_CUDA_CHECK(cudaMemsetAsync(one, 0, sizeof(*one), cuda::stream()));
    return one;
  }
  void give_back(unsigned long long* one) {
    const std::lock_guard lock(mutex_);
    free_.push_back(one);
  }

 private:
  std::mutex mutex_;
  std::vector<unsigned long long*> free_;
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
    copy_bytes(&groups, kCpu, counter, {DeviceType::cuda, device}, sizeof(groups));
    sum += static_cast<int64_t>(groups);
  }
  return sum;
}

}  // namespace frugal::compress

// NonfiniteCount: counts groups that held a value that is not finite, on the host and in CUDA
// kernels. The counts of kernels are read only when somebody asks. Thread-safe.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace frugal::compress {

class NonfiniteCount {
 public:
  NonfiniteCount() = default;
  ~NonfiniteCount();
  NonfiniteCount(const NonfiniteCount&) = delete;
  NonfiniteCount& operator=(const NonfiniteCount&) = delete;

  void add(int64_t groups) { here_.fetch_add(groups, std::memory_order_relaxed); }
  int64_t value() const;  // waits for queued kernels on the devices that counted
  // The counter for kernels of the current device. CUDA builds only.
  unsigned long long* on_device();

 private:
  std::atomic<int64_t> here_{0};
  mutable std::mutex mutex_;
  std::vector<std::pair<int, unsigned long long*>> there_;  // by device
};

}  // namespace frugal::compress

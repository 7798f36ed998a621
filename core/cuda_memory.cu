#include <memory>
#include <mutex>
#include <vector>

#include "core/cuda.h"
#include "core/segment_pool.h"

namespace frugal::cuda {
namespace {

// The base class counts; the pool, which may split and join, keeps what is free.
class CudaAllocator final : public Allocator {
 public:
  explicit CudaAllocator(int index)
      : index_(index),
        pool_({.acquire = [this](int64_t bytes) { return malloc(bytes); },
               .give_back = [this](void* data) { free(data); }}) {}

  void trim() override {
    const std::lock_guard lock(mutex_);
    pool_.trim();
  }

 protected:
  void* acquire(int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    return pool_.allocate(bytes);
  }
  void give_back(void* data, int64_t) noexcept override {
    const std::lock_guard lock(mutex_);
    pool_.release(data);
  }
  bool caching() const override { return false; }
  int64_t idle() const override {
    const std::lock_guard lock(mutex_);
    return pool_.held() - pool_.used();
  }

 private:
  void* malloc(int64_t bytes) {
    use({DeviceType::cuda, index_});
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    FRUGAL_CUDA_CHECK(status);
    return data;
  }
  void free(void* data) noexcept {
    cudaSetDevice(index_);
    cudaFree(data);  // waits for what was queued
  }

  int index_;
  mutable std::mutex mutex_;
  SegmentPool pool_;
};

}  // namespace

Allocator& allocator(int index) {
  static auto* all = new std::vector<std::unique_ptr<CudaAllocator>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (all->size() <= static_cast<size_t>(index)) {
    use({DeviceType::cuda, index});
    all->resize(static_cast<size_t>(index) + 1);
  }
  auto& one = (*all)[static_cast<size_t>(index)];
  if (one == nullptr) one = std::make_unique<CudaAllocator>(index);
  return *one;
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  use(to_device.type == DeviceType::cuda ? to_device : from_device);
  FRUGAL_CUDA_CHECK(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream()));
  if (to_device == kCpu || from_device == kCpu) synchronize();  // the host may go on and write
}

void zero_bytes(void* data, int64_t bytes) {
  FRUGAL_CUDA_CHECK(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream()));
}

}  // namespace frugal::cuda

#include "core/cuda/pinned_pool.h"

#include "core/cuda/cuda.h"

namespace frugal::cuda {
namespace {

void* pin(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  FRUGAL_CUDA_CHECK(status);
  return data;
}

}  // namespace

PinnedPool::PinnedPool(std::function<void()> settle)
    : pool_({.acquire = pin, .give_back = [settle = std::move(settle)](void* data) {
               if (settle) settle();
               FRUGAL_CUDA_REPORT(cudaFreeHost(data));
             }}) {}

void* PinnedPool::allocate(int64_t bytes) {
  void* data = pool_.allocate(bytes);
  FRUGAL_CHECK(data != nullptr,
               "[cuda] expected {} bytes of host memory to pin, got none; {} are pinned", bytes,
               pool_.held());
  return data;
}

}  // namespace frugal::cuda

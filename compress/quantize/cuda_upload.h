// For codecs where the host takes part in packing: brings the host's numbers to the device. For .cu
// files.
#pragma once
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/cuda/cuda_graph.h"
#include "core/cuda/cuda_kernel.h"
#include "core/cuda/cuda_staging.h"

namespace frugal::compress::cuda {

using namespace frugal::cuda;

inline constexpr int kBlockThreads = 256;

// Blocks for `wanted` pieces of work. If that is more than keeps the device busy, there are fewer
// blocks and they stride.
inline dim3 blocks_across(int64_t wanted, int per_processor) {
  return as_blocks(std::min(wanted, int64_t{multiprocessors()} * per_processor));
}

// `count` values in a workspace tensor on `device`. The host does not wait.
template <class T>
Tensor upload(const T* from, int64_t count, Device device) {
  static_assert(std::is_trivially_copyable_v<T>);
  const CategoryScope scope(Category::workspace);
  const Tensor here = Tensor::empty({count * static_cast<int64_t>(sizeof(T))}, DType::u8);
  std::memcpy(here.raw(), from, static_cast<size_t>(here.nbytes()));
  return frugal::cuda::staged(here, device);
}
template <class T>
Tensor upload(const std::vector<T>& from, Device device) {
  return upload(from.data(), static_cast<int64_t>(from.size()), device);
}
template <class T>
T* as(const Tensor& tensor) {
  return static_cast<T*>(tensor.raw());
}

// Errors: work is being captured. Its reruns would use the numbers that the host computed this
// time.
inline void check_not_capturing(const char* op) {
  FRUGAL_CHECK(!capturing(),
               "[{}] expected work that is run, got work that is being captured: the host reads "
               "what differs from step to step",
               op);
}

}  // namespace frugal::compress::cuda

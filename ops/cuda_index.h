// Index arithmetic for kernels. For .cu files.
#pragma once
#include "core/cuda_kernel.h"

namespace frugal::ops::cuda {

using namespace frugal::cuda;

// Calls f with a zero of the type that n indices need: divisions of 32 bits are several times as
// fast as those of 64.
template <class F>
void with_index_of(int64_t n, F f) {
  if (n < int64_t{1} << 31)
    f(uint32_t{});
  else
    f(uint64_t{});
}

// f(i) for i in [0, n), i a T.
template <class T, class F>
__global__ void for_indices_kernel(int64_t n, F f) {
  for (int64_t i = first_index(); i < n; i += index_stride()) f(static_cast<T>(i));
}
template <class F>
void for_indices(int64_t n, const F& f) {
  with_index_of(
      n, [&](auto zero) { launch(for_indices_kernel<decltype(zero), F>, {blocks_for(n)}, n, f); });
}

}  // namespace frugal::ops::cuda

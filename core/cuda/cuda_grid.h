// How many blocks of threads a kernel gets. Tensors may have more than 2^31 elements, so numbers of
// blocks are computed in 64 bits and checked. For code without CUDA's headers, too.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/error.h"

namespace frugal::cuda {

// What CUDA takes along x, and along y and z.
inline constexpr int64_t kMostBlocks = 0x7fffffff, kMostBlocksAcross = 65535;

// Errors: more blocks than CUDA takes.
inline unsigned checked_blocks(int64_t blocks, int64_t most = kMostBlocks) {
  FRUGAL_CHECK(
      blocks >= 0 && blocks <= most,
      "[cuda] expected a kernel of at most {} blocks of threads along an axis, got {}: the "
      "tensors are too large for it; a smaller batch helps",
      most, blocks);
  return static_cast<unsigned>(blocks);
}

// The number of blocks for n elements, one for each thread, but at most `most` blocks, whose
// threads stride over the elements.
inline int64_t striding_blocks(int64_t n, int threads, int64_t most) {
  return std::min(n / threads + (n % threads != 0 ? 1 : 0), most);
}

}  // namespace frugal::cuda

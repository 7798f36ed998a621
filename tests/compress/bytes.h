// The bytes of tensors, compared and counted, for the tests of compress.
#pragma once
#include <cstring>

#include "core/memory.h"
#include "core/tensor.h"

namespace frugal::compress {

inline bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.nbytes() == b.nbytes() && a.shape() == b.shape() &&
         (a.nbytes() == 0 || std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.nbytes())) == 0);
}

inline int64_t live(Category category) { return allocator(kCpu).report().of(category); }

}  // namespace frugal::compress

// What memory holds before a kernel gets it.
#pragma once
#include <limits>
#include <vector>

#include "core/tensor.h"

namespace frugal_test {

// Memory that ops get after this holds NaN, in blocks of up to `largest` bytes: a kernel that reads
// what it did not write shows it.
inline void leave_nan_behind(int64_t largest = int64_t{1} << 20) {
  std::vector<frugal::Tensor> blocks;
  for (int64_t bytes = 256; bytes <= largest; bytes *= 2)
    for (int i = 0; i < 4; ++i)
      blocks.push_back(frugal::Tensor::full({bytes / 4}, std::numeric_limits<double>::quiet_NaN()));
}

}  // namespace frugal_test

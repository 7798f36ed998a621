// SavedTotals: what the saves of a forward pass amount to.
#pragma once
#include <cstdint>

namespace frugal {

struct SavedTotals {
  int64_t packed_elements = 0;  // elements of the tensors that codecs packed
};

// What this thread has saved since the last begin_step(), or since the policy's scope began if
// nobody called begin_step().
SavedTotals saved_totals();

}  // namespace frugal

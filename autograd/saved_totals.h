// SavedTotals: what the saves of a forward pass amount to.
#pragma once
#include <cstdint>

namespace frugal {

struct SavedTotals {
  int64_t packed_elements = 0;  // of the tensors that codecs packed
};

// Of this thread, since the last begin_step() or, without one, since the policy's scope began.
SavedTotals saved_totals();

}  // namespace frugal

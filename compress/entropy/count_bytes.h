// How often each byte occurs in a block, by vectors. Internal: Counter (rans.h) uses it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace frugal::compress::rans {

inline constexpr size_t kCountBlock = 2048;

// Whether count_block is faster than one increment for each byte on this machine.
bool counts_blocks();
// Adds to the 256 counts. REQUIRES: kCountBlock bytes, counts_blocks().
void count_block(const uint8_t* bytes, uint32_t* counts);

}  // namespace frugal::compress::rans

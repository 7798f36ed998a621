// The loops of forms.h over bits, compiled once per instruction set (Highway). Elements are read
// as the unsigned integers of 1, 2, 4 or 8 bytes that they are in memory. Internal.
//
// Bits of a block: 8 rows of `cols` elements share `cols` bytes. Bit k of byte [b, c] is that of
// the element in row 8 b + k and column c.
#pragma once
#include <cstdint>

namespace frugal::compress::foreign {

struct BitBlocks {
  int64_t count, cols;
};

// A bit is set where an element, read as a signed integer, is above 0 and at most `infinity`. With
// the infinity of its dtype these are the positive numbers.
void positive_bits(const void* x, int size, uint64_t infinity, BitBlocks blocks, uint8_t* to);

// A bit is set where an element differs from `first`. Returns whether each one that differs is
// `second`.
bool differing_bits(const void* x, int size, uint64_t first, uint64_t second, BitBlocks blocks,
                    uint8_t* to);

// Writes `ones` where a bit is set and `zeros` elsewhere.
void fill_by_bits(const uint8_t* bits, int size, uint64_t zeros, uint64_t ones, BitBlocks blocks,
                  void* to);

}  // namespace frugal::compress::foreign

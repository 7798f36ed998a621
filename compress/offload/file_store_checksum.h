// A checksum of 32 bits for bytes that this process writes and reads again: CRC-32C where the
// processor has an instruction for it, which is several times as fast as CRC-32, the other
// elsewhere.
#pragma once
#include <cstdint>

namespace frugal::compress {

// Of what gave `before` and then these bytes; 0 before the first.
uint32_t checksum(uint32_t before, const void* data, int64_t bytes);

}  // namespace frugal::compress

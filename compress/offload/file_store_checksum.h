// A 32-bit checksum of bytes that this process writes and reads again. It is CRC-32C if the
// processor has an instruction for it, which is several times as fast as CRC-32; otherwise it is
// CRC-32.
#pragma once
#include <cstdint>

namespace frugal::compress {

// The checksum of earlier bytes, whose checksum is `before` (0 if there are none), followed by
// these bytes.
uint32_t checksum(uint32_t before, const void* data, int64_t bytes);

}  // namespace frugal::compress

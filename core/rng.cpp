#include "core/rng.h"

#include <Random123/philox.h>

namespace frugal {

std::array<uint32_t, 4> philox(RngKey key, uint64_t index) {
  const r123::Philox4x32::ctr_type counter{
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
       static_cast<uint32_t>(key.offset), static_cast<uint32_t>(key.offset >> 32)}};
  const r123::Philox4x32::key_type words{
      {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)}};
  const auto out = r123::Philox4x32{}(counter, words);
  return {out[0], out[1], out[2], out[3]};
}

float uniform(RngKey key, uint64_t index) {
  return static_cast<float>(philox(key, index / 4)[index % 4] >> 8) * 0x1p-24f;
}

uint64_t uniform_int(RngKey key, uint64_t index, uint64_t bound) {
  const auto words = philox(key, index);
  const uint64_t word = words[0] | static_cast<uint64_t>(words[1]) << 32;
  // The bias of one 64-bit remainder is below bound / 2^64.
  return word % bound;
}

}  // namespace frugal

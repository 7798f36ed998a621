// Philox 4x32 for kernels: gives the words of core/rng.h, inlined on every backend.
#pragma once
#include <Random123/philox.h>

#include "core/host_device.h"
#include "core/rng.h"

namespace frugal {

struct Words {
  uint32_t w[4];
};

// The words that philox() of core/rng.h gives.
FRUGAL_HD Words philox_words(RngKey key, uint64_t index) {
  const r123::Philox4x32::ctr_type counter{
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
       static_cast<uint32_t>(key.offset), static_cast<uint32_t>(key.offset >> 32)}};
  const r123::Philox4x32::key_type words{
      {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)}};
  const auto out = r123::Philox4x32{}(counter, words);
  return {{out[0], out[1], out[2], out[3]}};
}

}  // namespace frugal

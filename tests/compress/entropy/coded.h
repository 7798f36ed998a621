// Packed tensors that may be coded by their entropy, for tests of that.
#pragma once
#include <limits>

#include "compress/entropy/entropy.h"
#include "compress/quantize/grouped.h"

namespace frugal::compress {

// Codes whatever it saves.
inline constexpr EntropyOptions kAlways{-std::numeric_limits<double>::infinity(), 0};

inline bool is_coded(const Packed& packed) {
  return dynamic_cast<const EntropyCoded*>(&packed) != nullptr;
}

inline int64_t bytes_of(const Packed& packed) {
  if (const auto* coded = dynamic_cast<const EntropyCoded*>(&packed))
    return coded->payload().nbytes();
  return dynamic_cast<const Grouped&>(packed).payload().nbytes();
}

}  // namespace frugal::compress

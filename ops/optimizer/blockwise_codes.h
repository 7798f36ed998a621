// Converts the numbers of one block to bytes and back. Internal to the kernels of
// ops/optimizer/blockwise.h.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "ops/optimizer/blockwise.h"
#include "ops/optimizer/blockwise_loops.h"

namespace frugal::ops {

using StateBlock = std::array<float, kStateBlock>;

// 16 random bits for each element of a block; `first` is the number of the first element in the
// stream.
// REQUIRES: first % 8 == 0.
inline std::array<uint16_t, kStateBlock> state_bits(RngKey key, int64_t first) {
  std::array<uint16_t, kStateBlock> bits{};
  for (size_t i = 0; i < bits.size(); i += 8) {
    const auto words = philox(key, static_cast<uint64_t>(first) / 8 + i / 8);
    for (size_t k = 0; k < 8; ++k)
      bits[i + k] = static_cast<uint16_t>(words[k / 2] >> (16 * (k % 2)));
  }
  return bits;
}

// x [n], n <= kStateBlock -> codes [n] and the scale.
inline void encode_block(const float* x, int64_t n, StateMap map, uint8_t* codes, float& scale,
                         const std::optional<RngKey>& key, int64_t first) {
  const bool positive = map == StateMap::positive;
  scale = simd::largest_magnitude(x, n);
  if (!(scale > 0)) {  // the scale says that the block is all zeros, or NaN
    std::memset(codes, positive ? 0 : 127, static_cast<size_t>(n));
    return;
  }
  if (!key) return simd::state_codes(x, n, scale, positive, nullptr, codes);
  const auto bits = state_bits(*key, first);
  simd::state_codes(x, n, scale, positive, bits.data(), codes);
}

// The scale is rounded to f32. A scale too small for f32 becomes 0, one too large becomes NaN.
inline void encode_block(const double* x, int64_t n, StateMap map, uint8_t* codes, float& scale,
                         const std::optional<RngKey>& key, int64_t first) {
  double top = 0, wrong = 0;
  for (int64_t i = 0; i < n; ++i) {
    top = std::max(top, std::abs(x[i]));
    wrong += x[i] * 0;  // becomes NaN if x[i] is not finite; std::max would ignore a NaN
  }
  StateBlock parts{};
  const auto whole = static_cast<float>(top + wrong);
  // Each x / scale as f32 between -1 and 1; a number above 0 stays above 0.
  for (int64_t i = 0; i < n; ++i) {
    const double part = x[i] / static_cast<double>(whole);
    parts[static_cast<size_t>(i)] =
        part > 0 ? std::max(static_cast<float>(part), std::numeric_limits<float>::denorm_min())
                 : static_cast<float>(part);
  }
  if (!(whole > 0) || std::isinf(whole)) parts.fill(whole);
  encode_block(parts.data(), n, map, codes, scale, key, first);
  // Without rounding, the largest of these numbers would be exactly 1.
  scale = whole;
}

template <class T>
void decode_block(const uint8_t* codes, float scale, int64_t n, StateMap map, T* x) {
  const std::array<float, 256>& values = state_map_values(map);
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(values[codes[i]]) * static_cast<T>(scale);
}

}  // namespace frugal::ops

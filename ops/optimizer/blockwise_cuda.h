// Converts the numbers of one block to bytes and back, exactly as ops/optimizer/blockwise_loops.cpp
// does. A warp takes a block, and a lane takes eight neighbours of it. For .cu files.
#pragma once
#include <limits>
#include <vector>

#include "core/cuda/cuda_kernel.h"
#include "core/finite.h"
#include "core/random/philox.h"
#include "ops/optimizer/blockwise.h"
#include "ops/optimizer/blockwise_loops.h"

namespace frugal::ops::cuda {

using namespace frugal::cuda;

inline constexpr int kStateRun = static_cast<int>(kStateBlock) / kWarp;  // elements of one lane
static_assert(kStateRun == 8);

// A map for kernels: its numbers, and the constants for finding the nearest one.
struct DeviceMap {
  simd::Decades decades;
  float values[256];
  bool positive;
};
inline DeviceMap device_map(StateMap map) {
  DeviceMap out{simd::decades_of(map == StateMap::positive), {}, map == StateMap::positive};
  const auto& values = state_map_values(map);
  for (size_t i = 0; i < values.size(); ++i) out.values[i] = values[i];
  return out;
}

// The value that a code stands for. The product must be rounded on its own: if nvcc fused it with a
// following sum, codes that are made from the result would differ from the CPU's.
__device__ __forceinline__ float state_value(float number, float scale) {
  return __fmul_rn(number, scale);
}

// bar: 0.5 for the nearest number, or a uniform random number in (0, 1) for stochastic rounding.
__device__ __forceinline__ uint8_t state_code(float x, float scale, const simd::Decades& d,
                                              bool positive, float bar) {
  const float a = fminf(fabsf(x / scale), 1.0f);
  float factor = d.scale[0], parts = d.parts[0];
#pragma unroll
  for (int e = 1; e < simd::kDecades; ++e) {
    const bool reached = a >= d.first[e];
    factor = reached ? d.scale[e] : factor;
    parts = reached ? d.parts[e] : parts;
  }
  const float at = fmaf(a * factor, parts * (1 / 0.9f), -fmaf(parts, 1 / 9.0f, 0.5f));
  const float last = parts - 1;
  const float whole = fmaxf(fminf(floorf(at), last), 0.0f), rest = at - whole;
  const float stretch = parts >= d.parts[simd::kDecades - 1] ? 2.0f : 1 / 3.0f;
  const bool below_all = a < d.first[0];
  float share = at >= last ? rest * stretch : rest;
  share = below_all ? a * (1 / d.first[0]) : share;
  float number = below_all ? 0.0f : (positive ? last : parts) + whole;
  number += bar < share ? 1.0f : 0.0f;
  if (positive)
    number = x > 0 ? fmaxf(number, 1.0f) : 0.0f;
  else
    number = (x < 0 ? -fminf(number, 127.0f) : number) + 127.0f;
  return static_cast<uint8_t>(number);
}

// Converts the elements of a lane to bytes. The first `count` elements exist, the others are 0.
// Every lane gets the scale of the block. random: bits as in state_bits() of
// ops/optimizer/blockwise_codes.h, for element `at`.
__device__ __forceinline__ float encode_run(const float (&x)[kStateRun], const DeviceMap& map,
                                            const RngKey* random, int64_t at,
                                            uint8_t (&codes)[kStateRun]) {
  float largest = 0;
#pragma unroll
  for (int k = 0; k < kStateRun; ++k) {
    const float a = fabsf(x[k]);
    const float finite = is_finite(a) ? a : std::numeric_limits<float>::quiet_NaN();
    largest = Max<float>{}(largest, finite);
  }
  const float scale = across_warp(largest, Max<float>{});
  const bool zeros = !(scale > 0);  // also for NaN; then the scale is NaN
  Words words{};
  if (random != nullptr) words = philox_words(*random, static_cast<uint64_t>(at) / 8);
#pragma unroll
  for (int k = 0; k < kStateRun; ++k) {
    const auto bits = static_cast<float>(words.w[k / 2] >> (16 * (k % 2)) & 0xffffu);
    const float bar = random == nullptr ? 0.5f : (bits + 0.5f) * 0x1p-16f;
    codes[k] = zeros ? static_cast<uint8_t>(map.positive ? 0 : 127)
                     : state_code(x[k], scale, map.decades, map.positive, bar);
  }
  return scale;
}

// Loads kStateRun elements from `from` on; those after the first `count` are 0. `wide`: addresses
// are multiples of 16 bytes (multiples of 8 for bytes).
template <class T>
__device__ __forceinline__ void load_some(const T* from, int64_t count, bool wide,
                                          T (&to)[kStateRun]) {
  struct alignas(sizeof(T) == 1 ? 8 : 16) Runs {
    T at[kStateRun];
  };
  if (wide && count >= kStateRun) {
    const Runs runs = *reinterpret_cast<const Runs*>(from);
#pragma unroll
    for (int k = 0; k < kStateRun; ++k) to[k] = runs.at[k];
  } else {
#pragma unroll
    for (int k = 0; k < kStateRun; ++k) to[k] = k < count ? from[k] : T{};
  }
}
template <class T>
__device__ __forceinline__ void store_some(T* to, int64_t count, bool wide,
                                           const T (&from)[kStateRun]) {
  struct alignas(sizeof(T) == 1 ? 8 : 16) Runs {
    T at[kStateRun];
  };
  if (wide && count >= kStateRun) {
    Runs runs;
#pragma unroll
    for (int k = 0; k < kStateRun; ++k) runs.at[k] = from[k];
    *reinterpret_cast<Runs*>(to) = runs;
  } else {
#pragma unroll
    for (int k = 0; k < kStateRun; ++k)
      if (k < count) to[k] = from[k];
  }
}

// Lists updates in a table, and calls launch() whenever the table is full and at the end.
// make(update) gives a row; the table's chunks are blocks of the state.
template <class Table, class Update, class Make, class Launch>
void with_state_tables(Table& table, const std::vector<Update>& updates, const Make& make,
                       const Launch& launch) {
  const auto run = [&] {
    if (table.chunks > 0) launch();
    table.chunks = table.rows = 0;
  };
  for (const Update& u : updates) {
    table.row[table.rows++] = make(u);
    table.chunks += state_blocks(u.parameter.numel());
    if (table.rows == Table::kRows) run();
  }
  run();
}
// May p and g of an update be loaded 16 bytes at a time?
template <class Update>
bool loads_packs(const Update& u) {
  return is_packable(u.parameter.raw()) && is_packable(u.gradient.raw());
}

// The grid in which each block of numbers has a warp.
inline Grid state_grid(int64_t n) { return {blocks_for(state_blocks(n) * kWarp), 256}; }

}  // namespace frugal::ops::cuda

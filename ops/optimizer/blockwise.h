// 8-bit numbers for the state of an optimizer: block-wise quantization with a dynamic exponent.
//
// A block of 256 elements has one scale in f32: its largest magnitude. An element is one byte. The
// byte stands for a number in [-1, 1], or in [0, 1] for the positive map; times the scale it gives
// the value. The numbers of the map are:
//   - 0 and 1,
//   - for each decade (10^(e-7), 10^(e-6)], e = 0..6: the middles of n equal parts of
//     [10^(e-7), 10^(e-6)], where n = 2^e with both signs, or 2^(e+1) in the positive map.
// That makes 256 numbers in each map; bytes number them in increasing order. So the map covers
// seven decades and is finest near 1. An element takes the nearest number. With a key it takes one
// of its two neighbours, so that the expected value is the element (to 2^-17 of the distance of the
// neighbours). A block of zeros has scale 0. If an element is NaN or infinite, the whole block
// becomes NaN.
//
// The paper's blocks have 2048 elements. Ours have 256: the scales then cost 1.6 % of the codes,
// and an outlier harms the precision of at most 255 other elements.
// Ref: Dettmers, Lewis, Shleifer, Zettlemoyer 2022 (8-bit optimizers), sections 2.1 and 2.2;
// Dettmers 2016 (dynamic tree quantization).
#pragma once
#include <array>
#include <optional>

#include "core/rng.h"
#include "core/tensor.h"

namespace frugal::ops {

inline constexpr int64_t kStateBlock = 256;

enum class StateMap : uint8_t { with_sign, positive };

// The 256 numbers of a map in increasing order.
const std::array<float, 256>& state_map_values(StateMap map);

struct BlockwiseState {
  Tensor codes;   // [n] u8
  Tensor scales;  // [ceil(n / 256)] f32
  StateMap map = StateMap::with_sign;
};

// The number of blocks of n elements.
constexpr int64_t state_blocks(int64_t n) { return (n + kStateBlock - 1) / kStateBlock; }

// Errors: a state that is not one of `parameter` with this map. Messages name `op` and `name`.
void check_blockwise(const char* op, const char* name, const BlockwiseState& state, StateMap map,
                     const Tensor& parameter);

// The state of n zeros.
BlockwiseState blockwise_zeros(int64_t n, StateMap map, Device device = kCpu);

// Packs a tensor of any shape, f32 or f64, and unpacks to [n] of the same dtype. The positive map
// takes negative numbers as 0. A number above 0 gets at least the smallest number of the map that
// is above 0: a second moment of 0 would make the next step unbounded. With a key, each element
// uses 16 bits of its stream.
BlockwiseState quantize_blockwise(const Tensor& x, StateMap map,
                                  const std::optional<RngKey>& key = {});
void quantize_blockwise_kernel(Cpu, const Tensor& x, const BlockwiseState& state,
                               const std::optional<RngKey>& key);
void quantize_blockwise_kernel(Cuda, const Tensor& x, const BlockwiseState& state,
                               const std::optional<RngKey>& key);
Tensor dequantize_blockwise(const BlockwiseState& state, DType dtype = DType::f32);
void dequantize_blockwise_kernel(Cpu, const BlockwiseState& state, const Tensor& x);
void dequantize_blockwise_kernel(Cuda, const BlockwiseState& state, const Tensor& x);

}  // namespace frugal::ops

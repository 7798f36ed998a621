// 8-bit numbers for an optimizer's state: block-wise quantization with a dynamic exponent.
//
// A block of 256 elements has one scale, its largest magnitude, in f32; an element is a byte that
// stands for a number in [-1, 1] (or [0, 1]), times that scale. The numbers of the map:
//   - 0 and 1,
//   - for each decade (10^(e-7), 10^(e-6)], e = 0..6: the middles of n equal parts of
//     [10^(e-7), 10^(e-6)], n = 2^e with both signs, or 2^(e+1) of the unsigned map.
// That is 256 each; bytes number them in increasing order. So precision is finest where most of
// what matters is, and seven decades are covered. An element takes the nearest number, or with a
// key one of its two neighbours so that its expected value is the element's (to 2^-17 of their
// distance). A block of zeros has scale 0. Of a NaN or an infinity, the whole block becomes NaN.
//
// Blocks are of 256 rather than the paper's 2048: a scale costs 1.6 % of the codes, and what one
// outlier costs its neighbours stays within 256 elements.
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

// n zeros.
BlockwiseState blockwise_zeros(int64_t n, StateMap map, Device device = kCpu);

// Any shape, f32 or f64 <-> [n] of the same dtype. The positive map takes negative numbers as 0,
// and gives what is above 0 at least its smallest number: a second moment that vanished would make
// the next step unbounded. Draws 16 bits of the key's stream for an element.
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

#include "ops/optimizer/blockwise.h"

#include <algorithm>
#include <cmath>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/optimizer/blockwise_codes.h"

namespace frugal::ops {
namespace {

constexpr int64_t kBlocks = 32;  // blocks for each thread at least
constexpr int kDecades = 7;

std::array<float, 256> make_values(StateMap map) {
  std::array<float, 256> values{};
  const bool positive = map == StateMap::positive;
  const size_t zero = positive ? 0 : 127;
  size_t k = 1;
  for (int e = 0; e < kDecades; ++e) {
    const double high = std::pow(10.0, e - kDecades + 1), low = high / 10;
    const int parts = positive ? 2 << e : 1 << e;
    for (int part = 0; part < parts; ++part, ++k) {
      values[zero + k] = static_cast<float>(low + (high - low) * (part + 0.5) / parts);
      if (!positive) values[zero - k] = -values[zero + k];
    }
  }
  values[255] = 1;
  FRUGAL_ASSERT(zero + k == 255);
  return values;
}

// Calls f(block, its first element, its number of elements).
template <class F>
void for_state_blocks(int64_t n, F f) {
  parallel_for(0, state_blocks(n), kBlocks, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      f(block, block * kStateBlock, std::min(kStateBlock, n - block * kStateBlock));
  });
}

}  // namespace

const std::array<float, 256>& state_map_values(StateMap map) {
  static const auto with_sign = make_values(StateMap::with_sign);
  static const auto positive = make_values(StateMap::positive);
  return map == StateMap::with_sign ? with_sign : positive;
}

void quantize_blockwise_kernel(Cpu, const Tensor& x, const BlockwiseState& state,
                               const std::optional<RngKey>& key) {
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_state_blocks(x.numel(), [&](int64_t block, int64_t first, int64_t n) {
      encode_block(x.data<T>() + first, n, state.map, state.codes.mut<uint8_t>() + first,
                   state.scales.mut<float>()[block], key, first);
    });
  });
}

void dequantize_blockwise_kernel(Cpu, const BlockwiseState& state, const Tensor& x) {
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_state_blocks(x.numel(), [&](int64_t block, int64_t first, int64_t n) {
      decode_block(state.codes.data<uint8_t>() + first, state.scales.data<float>()[block], n,
                   state.map, x.mut<T>() + first);
    });
  });
}

void check_blockwise(const char* op, const char* name, const BlockwiseState& state, StateMap map,
                     const Tensor& parameter) {
  check_shape(op, name, state.codes, {parameter.numel()});
  check_shape(op, name, state.scales, {state_blocks(parameter.numel())});
  const Device device = parameter.device();
  FRUGAL_CHECK(state.codes.dtype() == DType::u8 && state.scales.dtype() == DType::f32 &&
                   state.codes.device() == device && state.scales.device() == device &&
                   state.map == map,
               "[{}] expected {} as u8 codes and f32 scales of its own map, got {} and {}", op,
               name, describe(state.codes), describe(state.scales));
}

BlockwiseState blockwise_zeros(int64_t n, StateMap map, Device device) {
  // A scale of 0 makes all elements 0, whatever byte 0 stands for.
  return {Tensor::zeros({n}, DType::u8, device),
          Tensor::zeros({state_blocks(n)}, DType::f32, device), map};
}

BlockwiseState quantize_blockwise(const Tensor& x, StateMap map, const std::optional<RngKey>& key) {
  check_real("quantize_blockwise", "x", x);
  FRUGAL_CHECK(x.dtype() != DType::bf16, "[quantize_blockwise] expected x of dtype f32, got {}",
               describe(x));
  const BlockwiseState state{Tensor::empty({x.numel()}, DType::u8, x.device()),
                             Tensor::empty({state_blocks(x.numel())}, DType::f32, x.device()), map};
  const Tensor dense = contiguous(x);
  dispatch(x.device(),
           [&](auto backend) { quantize_blockwise_kernel(backend, dense, state, key); });
  return state;
}

Tensor dequantize_blockwise(const BlockwiseState& state, DType dtype) {
  check_dim("dequantize_blockwise", "codes", state.codes, 1);
  FRUGAL_CHECK(dtype == DType::f32 || dtype == DType::f64,
               "[dequantize_blockwise] expected dtype f32 or f64, got {}", name_of(dtype));
  check_shape("dequantize_blockwise", "scales", state.scales, {state_blocks(state.codes.numel())});
  const Tensor x = Tensor::empty(state.codes.shape(), dtype, state.codes.device());
  dispatch(x.device(), [&](auto backend) { dequantize_blockwise_kernel(backend, state, x); });
  return x;
}

}  // namespace frugal::ops

#include "ops/blockwise.h"

#include <vector>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/blockwise_codes.h"
#include "ops/checks.h"
#include "ops/copy.h"

namespace frugal::ops {
namespace {

constexpr int64_t kBlocks = 32;  // at least so many for a thread
constexpr int kDecades = 7;

// 0, the middles, 1.
std::vector<float> magnitudes(StateMap map) {
  std::vector<float> numbers{0};
  for (int e = 0; e < kDecades; ++e) {
    const double high = std::pow(10.0, e - kDecades + 1), low = high / 10;
    const int parts = 1 << (map == StateMap::positive ? e + 1 : e);
    for (int part = 0; part < parts; ++part)
      numbers.push_back(static_cast<float>(low + (high - low) * (part + 0.5) / parts));
  }
  numbers.push_back(1);
  return numbers;
}

int64_t blocks_of(int64_t n) { return (n + kStateBlock - 1) / kStateBlock; }

// Calls f(block, its first element, its elements).
template <class F>
void for_blocks(int64_t n, F f) {
  parallel_for(0, blocks_of(n), kBlocks, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      f(block, block * kStateBlock, std::min(kStateBlock, n - block * kStateBlock));
  });
}

}  // namespace

StateCodes::StateCodes(StateMap map) : map_(map) {
  const std::vector<float> numbers = magnitudes(map);
  const size_t last = numbers.size() - 1;
  zero_ = map == StateMap::positive ? 0 : 127;
  middle_.fill(std::numeric_limits<float>::infinity());
  for (size_t k = 0; k <= last; ++k) {
    values_[zero_ + k] = numbers[k];
    if (k < last) middle_[k] = (numbers[k] + numbers[k + 1]) / 2;
    if (map == StateMap::with_sign && k > 0 && k < last) values_[zero_ - k] = -numbers[k];
  }
  uint8_t below = 0;
  for (size_t bin = 0; bin < kBins; ++bin) {
    const auto bits = (static_cast<uint32_t>(bin) + static_cast<uint32_t>(kFirstBin)) << kShift;
    const auto begin = std::bit_cast<float>(bits);
    const uint8_t before = below;
    while (middle_[below] <= begin) ++below;
    FRUGAL_ASSERT(bin == 0 || below - before <= 1);
    first_[bin] = below;
  }
}

const StateCodes& StateCodes::of(StateMap map) {
  static const StateCodes with_sign(StateMap::with_sign), positive(StateMap::positive);
  return map == StateMap::with_sign ? with_sign : positive;
}

const std::array<float, 256>& state_map_values(StateMap map) {
  return StateCodes::of(map).values();
}

void quantize_blockwise_kernel(Cpu, const Tensor& x, const BlockwiseState& state) {
  const StateCodes& map = StateCodes::of(state.map);
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_blocks(x.numel(), [&](int64_t block, int64_t first, int64_t n) {
      map.encode(x.data<T>() + first, n, state.codes.mut<uint8_t>() + first,
                 state.scales.mut<float>()[block]);
    });
  });
}

void dequantize_blockwise_kernel(Cpu, const BlockwiseState& state, const Tensor& x) {
  const StateCodes& map = StateCodes::of(state.map);
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_blocks(x.numel(), [&](int64_t block, int64_t first, int64_t n) {
      map.decode(state.codes.data<uint8_t>() + first, state.scales.data<float>()[block], n,
                 x.mut<T>() + first);
    });
  });
}

BlockwiseState blockwise_zeros(int64_t n, StateMap map, Device device) {
  // The scales make them zeros, whatever number byte 0 stands for.
  return {Tensor::zeros({n}, DType::u8, device), Tensor::zeros({blocks_of(n)}, DType::f32, device),
          map};
}

BlockwiseState quantize_blockwise(const Tensor& x, StateMap map) {
  check_real("quantize_blockwise", "x", x);
  const BlockwiseState state{Tensor::empty({x.numel()}, DType::u8, x.device()),
                             Tensor::empty({blocks_of(x.numel())}, DType::f32, x.device()), map};
  const Tensor dense = contiguous(x);
  dispatch(x.device(), [&](auto backend) { quantize_blockwise_kernel(backend, dense, state); });
  return state;
}

Tensor dequantize_blockwise(const BlockwiseState& state, DType dtype) {
  check_dim("dequantize_blockwise", "codes", state.codes, 1);
  FRUGAL_CHECK(dtype == DType::f32 || dtype == DType::f64,
               "[dequantize_blockwise] expected dtype f32 or f64, got {}", name_of(dtype));
  check_shape("dequantize_blockwise", "scales", state.scales, {blocks_of(state.codes.numel())});
  const Tensor x = Tensor::empty(state.codes.shape(), dtype, state.codes.device());
  dispatch(x.device(), [&](auto backend) { dequantize_blockwise_kernel(backend, state, x); });
  return x;
}

}  // namespace frugal::ops

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

void StateCodes::Limits::fill() {
  uint8_t below = 0;
  for (size_t bin = 0; bin < kStateBins; ++bin) {
    const auto bits = (static_cast<uint32_t>(bin) + static_cast<uint32_t>(kFirstBin)) << kShift;
    const auto begin = std::bit_cast<float>(bits);
    const uint8_t before = below;
    while (at[below] <= begin) ++below;
    FRUGAL_ASSERT(below - before <= 1);
    by[bin] = below;
  }
}

StateCodes::StateCodes(StateMap map) : map_(map) {
  const std::vector<float> numbers = magnitudes(map);
  const size_t last = numbers.size() - 1;
  zero_ = map == StateMap::positive ? 0 : 127;
  middles_.at.fill(std::numeric_limits<float>::infinity());
  steps_.at.fill(std::numeric_limits<float>::infinity());
  magnitudes_.fill(1);
  for (size_t k = 0; k <= last; ++k) {
    values_[zero_ + k] = magnitudes_[k] = numbers[k];
    if (map == StateMap::with_sign && k > 0 && k < last) values_[zero_ - k] = -numbers[k];
    if (k == last) break;
    middles_.at[k] = (numbers[k] + numbers[k + 1]) / 2;
    steps_.at[k] = numbers[k + 1];
    one_over_gap_[k] = 1 / (numbers[k + 1] - numbers[k]);
  }
  middles_.fill();
  steps_.fill();
}

// Between two numbers, each by how near it is: 16 bits of the stream for an element.
void StateCodes::draw(const float* x, int64_t n, uint8_t* codes, const RngKey& key,
                      int64_t first) const {
  for (int64_t i = 0; i < n; i += 8) {
    const auto words = philox(key, static_cast<uint64_t>((first + i) / 8));
    for (int64_t k = i; k < std::min(n, i + 8); ++k) {
      const uint32_t word = words[static_cast<size_t>((k - i) / 2)];
      const uint32_t half = (k - i) % 2 == 0 ? word & 0xffffu : word >> 16;
      const float a = std::min(std::fabs(x[k]), 1.0f);
      int32_t number = steps_.reached(a);
      const auto at = static_cast<size_t>(number);
      const float above = (a - magnitudes_[at]) * one_over_gap_[at];
      number += (static_cast<float>(half) + 0.5f) * 0x1p-16f < above ? 1 : 0;
      codes[k] =
          map_ == StateMap::positive ? static_cast<uint8_t>(number) : signed_code(number, x[k]);
    }
  }
}

const StateCodes& StateCodes::of(StateMap map) {
  static const StateCodes with_sign(StateMap::with_sign), positive(StateMap::positive);
  return map == StateMap::with_sign ? with_sign : positive;
}

const std::array<float, 256>& state_map_values(StateMap map) {
  return StateCodes::of(map).values();
}

void quantize_blockwise_kernel(Cpu, const Tensor& x, const BlockwiseState& state,
                               const std::optional<RngKey>& key) {
  const StateCodes& map = StateCodes::of(state.map);
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_blocks(x.numel(), [&](int64_t block, int64_t first, int64_t n) {
      map.encode(x.data<T>() + first, n, state.codes.mut<uint8_t>() + first,
                 state.scales.mut<float>()[block], key, first);
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

BlockwiseState quantize_blockwise(const Tensor& x, StateMap map, const std::optional<RngKey>& key) {
  check_real("quantize_blockwise", "x", x);
  const BlockwiseState state{Tensor::empty({x.numel()}, DType::u8, x.device()),
                             Tensor::empty({blocks_of(x.numel())}, DType::f32, x.device()), map};
  const Tensor dense = contiguous(x);
  dispatch(x.device(),
           [&](auto backend) { quantize_blockwise_kernel(backend, dense, state, key); });
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

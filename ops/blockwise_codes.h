// How numbers of one block become bytes and back. Internal to the kernels of ops/blockwise.h.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/blockwise.h"

namespace frugal::ops {

// A map with what finds the nearest of its numbers without a search: the leading bits of a
// magnitude tell the number but for one comparison with a middle between two.
class StateCodes {
 public:
  static const StateCodes& of(StateMap map);

  // x [n] -> codes [n] and the scale. T: float or double.
  template <class T>
  void encode(const T* x, int64_t n, uint8_t* codes, float& scale) const {
    T top = 0, wrong = 0;
    for (int64_t i = 0; i < n; ++i) {
      top = std::max(top, std::abs(x[i]));
      wrong += x[i] * 0;  // NaN of what is not finite, over which max passes
    }
    // As an f32, rounded: a double's quotient may be a little above 1, which is limited below.
    scale = static_cast<float>(top + wrong);
    if (!(scale > 0)) {
      std::fill_n(codes, n, zero_);
      return;
    }
    for (int64_t i = 0; i < n; ++i) codes[i] = code(static_cast<float>(x[i] / T{scale}), x[i] > 0);
  }

  template <class T>
  void decode(const uint8_t* codes, float scale, int64_t n, T* x) const {
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(values_[codes[i]]) * T{scale};
  }

  const std::array<float, 256>& values() const { return values_; }

 private:
  explicit StateCodes(StateMap map);

  uint8_t code(float x, bool above_zero) const {
    const float magnitude = std::min(std::fabs(x), 1.0f);
    const int32_t bin =
        std::max(static_cast<int32_t>(std::bit_cast<uint32_t>(magnitude) >> kShift) - kFirstBin, 0);
    int32_t number = first_[static_cast<size_t>(bin)];
    number += magnitude >= middle_[static_cast<size_t>(number)] ? 1 : 0;
    if (map_ == StateMap::positive)
      return static_cast<uint8_t>(above_zero ? std::max(number, 1) : 0);
    // There is no -1.
    return static_cast<uint8_t>(zero_ + (above_zero ? number : -std::min(number, 127)));
  }

  // 7 bits of the mantissa from 2^-23 up to 1: no bin has two middles.
  static constexpr int kShift = 16, kMantissa = 7, kLowest = -23;
  static constexpr int32_t kFirstBin = (127 + kLowest) << kMantissa;
  static constexpr size_t kBins = (static_cast<size_t>(-kLowest) << kMantissa) + 1;

  StateMap map_;
  uint8_t zero_ = 0;                    // the byte of 0
  std::array<float, 256> values_{};     // by byte
  std::array<float, 256> middle_{};     // above the k-th magnitude; infinite above the last
  std::array<uint8_t, kBins> first_{};  // middles at or below the bin's beginning
};

}  // namespace frugal::ops

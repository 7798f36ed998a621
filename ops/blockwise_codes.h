// How numbers of one block become bytes and back. Internal to the kernels of ops/blockwise.h.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "core/rng.h"
#include "ops/blockwise.h"

namespace frugal::ops {

inline constexpr size_t kStateBins = (23 << 8) + 1;

// A map with what finds a number's neighbours in it without a search: the leading bits of a
// magnitude tell them but for one comparison. Nothing branches on data: signs are random.
class StateCodes {
 public:
  static const StateCodes& of(StateMap map);

  // x [n] -> codes [n] and the scale, n <= kStateBlock. T: float or double. With a key, rounding is
  // stochastic: `first` is the number of x[0] in the stream, a multiple of 8.
  template <class T>
  void encode(const T* x, int64_t n, uint8_t* codes, float& scale,
              const std::optional<RngKey>& key = {}, int64_t first = 0) const {
    scale = scale_of(x, n);
    if (!(scale > 0)) {
      std::fill_n(codes, n, zero_);
      return;
    }
    std::array<float, kStateBlock> parts{};
    for (int64_t i = 0; i < n; ++i)
      parts[static_cast<size_t>(i)] = static_cast<float>(x[i] / T{scale});
    if (key)
      draw(parts.data(), n, codes, *key, first);
    else if (map_ == StateMap::positive)
      nearest<StateMap::positive>(parts.data(), n, codes);
    else
      nearest<StateMap::with_sign>(parts.data(), n, codes);
    if (map_ == StateMap::with_sign) return;
    // What is above 0 stays so; what is below is taken for 0.
    for (int64_t i = 0; i < n; ++i) {
      const int above = x[i] > 0 ? 1 : 0;
      codes[i] = static_cast<uint8_t>(above * std::max<int>(codes[i], 1));
    }
  }

  template <class T>
  void decode(const uint8_t* codes, float scale, int64_t n, T* x) const {
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(values_[codes[i]]) * T{scale};
  }

  const std::array<float, 256>& values() const { return values_; }

 private:
  explicit StateCodes(StateMap map);

  // The largest magnitude, rounded to f32: a double's quotient by it may be a little above 1. NaN
  // where an element is not finite.
  template <class T>
  static float scale_of(const T* x, int64_t n) {
    constexpr int64_t kLanes = 16;  // so that no order of additions stands in a vector's way
    std::array<T, kLanes> top{}, wrong{};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const auto l = static_cast<size_t>(lane);
        const T a = std::abs(x[i + lane]);
        top[l] = a > top[l] ? a : top[l];
        wrong[l] += a * 0;  // NaN of what is not finite, over which the maximum passes
      }
    for (; i < n; ++i) {
      const T a = std::abs(x[i]);
      top[0] = a > top[0] ? a : top[0];
      wrong[0] += a * 0;
    }
    for (size_t l = 1; l < kLanes; ++l) {
      top[0] = std::max(top[0], top[l]);
      wrong[0] += wrong[l];
    }
    return static_cast<float>(top[0] + wrong[0]);
  }

  // How many of `limits` a magnitude has reached.
  struct Limits {
    std::array<float, 257> at;           // increasing, infinite after the last
    std::array<uint8_t, kStateBins> by;  // of the beginning of each bin
    void fill();                         // `by`
    int32_t reached(float magnitude) const {
      const auto bits = static_cast<int32_t>(std::bit_cast<uint32_t>(magnitude) >> kShift);
      const int32_t number = by[static_cast<size_t>(std::max(bits - kFirstBin, 0))];
      return number + (magnitude >= at[static_cast<size_t>(number)] ? 1 : 0);
    }
  };

  uint8_t signed_code(int32_t number, float x) const {
    const int32_t below = x < 0 ? -1 : 0;
    number = std::min(number, 128 + below);  // there is no -1
    return static_cast<uint8_t>(zero_ + ((number ^ below) - below));
  }

  template <StateMap map>
  void nearest(const float* x, int64_t n, uint8_t* codes) const {
    for (int64_t i = 0; i < n; ++i) {
      const int32_t number = middles_.reached(std::min(std::fabs(x[i]), 1.0f));
      codes[i] =
          map == StateMap::positive ? static_cast<uint8_t>(number) : signed_code(number, x[i]);
    }
  }
  void draw(const float* x, int64_t n, uint8_t* codes, const RngKey& key, int64_t first) const;

  // 8 bits of the mantissa from 2^-23 up to 1: no bin has two limits.
  static constexpr int kShift = 15;
  static constexpr int32_t kFirstBin = (127 - 23) << 8;

  StateMap map_;
  uint8_t zero_ = 0;                       // the byte of 0
  std::array<float, 256> values_{};        // by byte
  std::array<float, 257> magnitudes_{};    // 0, ..., 1, 1
  std::array<float, 256> one_over_gap_{};  // between a magnitude and the next
  Limits middles_;                         // between a magnitude and the next
  Limits steps_;                           // the magnitudes above 0
};

}  // namespace frugal::ops

// Element types. f64 is the reference dtype: CPU only, plain loops, the oracle for gradient checks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/host_device.h"

namespace frugal {

enum class DType : uint8_t { f64, f32, bf16, f16, i64, i32, u8, bool_ };

size_t size_of(DType dtype);            // bytes per element
std::string_view name_of(DType dtype);  // "f32", "bool", ...
bool is_floating(DType dtype);

// bfloat16: the upper half of an f32; conversion from f32 rounds to nearest even and keeps NaN.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  FRUGAL_HD explicit BFloat16(float value) {
    uint32_t u;
    std::memcpy(&u, &value, 4);
    bits = (u & 0x7fffffffu) > 0x7f800000u
               ? static_cast<uint16_t>((u >> 16) | 0x40u)
               : static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  FRUGAL_HD explicit operator float() const {
    const uint32_t u = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &u, 4);
    return value;
  }
};

// IEEE binary16; conversion from f32 rounds to nearest even.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::bool_;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace frugal

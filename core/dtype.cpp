#include "core/dtype.h"

#include <array>
#include <cmath>

namespace frugal {

size_t size_of(DType dtype) {
  constexpr std::array<size_t, 8> sizes = {8, 4, 2, 2, 8, 4, 1, 1};
  return sizes[static_cast<size_t>(dtype)];
}

std::string_view name_of(DType dtype) {
  constexpr std::array<std::string_view, 8> names = {"f64", "f32", "bf16", "f16",
                                                     "i64", "i32", "u8",   "bool"};
  return names[static_cast<size_t>(dtype)];
}

bool is_floating(DType dtype) { return dtype <= DType::f16; }

Float16::Float16(float value) {
  uint32_t u;
  std::memcpy(&u, &value, 4);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;  // NaN
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;  // rounds to infinity
  } else if (magnitude < 0x38800000u) {
    // Subnormal: the unit is 2^-24; nearbyint rounds to even in the default mode.
    half = static_cast<uint32_t>(std::nearbyint(std::fabs(value) * 16777216.0f));
  } else {
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    half = (rounded - 0x38000000u) >> 13;
  }
  bits = static_cast<uint16_t>(sign | half);
}

Float16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) / 16777216.0f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t u = exponent == 31 ? sign | 0x7f800000u | (mantissa << 13)
                                    : sign | ((exponent + 112) << 23) | (mantissa << 13);
  float value;
  std::memcpy(&value, &u, 4);
  return value;
}

}  // namespace frugal

#include "core/dtype.h"

#include <cmath>

namespace frugal {

// A switch without a default: the compiler names a dtype that is missing.

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
    case DType::bool_:
      break;
  }
  return 1;
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
    case DType::bool_:
      break;
  }
  return "bool";
}

bool is_floating(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::f32:
    case DType::bf16:
    case DType::f16:
      return true;
    case DType::i64:
    case DType::i32:
    case DType::u8:
    case DType::bool_:
      break;
  }
  return false;
}

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

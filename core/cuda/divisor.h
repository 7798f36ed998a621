// Division of 32-bit numbers by a divisor that is known before a kernel starts: five instructions
// on a GPU, where a division takes some twenty-five. Ref: Granlund and Montgomery 1994, figure 4.1
// (by_, magic_, shift1_ and shift2_ are its d, m', sh1 and sh2).
#pragma once
#include <bit>
#include <cstdint>

#include "core/error.h"
#include "core/host_device.h"

namespace frugal::cuda {

class Divisor {
 public:
  Divisor() = default;  // 1
  // REQUIRES: 0 < by < 2^31.
  explicit Divisor(int64_t by) : by_(static_cast<uint32_t>(by)) {
    FRUGAL_ASSERT(by > 0 && by < int64_t{1} << 31);
    const int bits = std::bit_width(by_ - 1);  // 2^bits >= by
    magic_ = static_cast<uint32_t>(((uint64_t{1} << bits) - by_) * (uint64_t{1} << 32) / by_ + 1);
    shift1_ = bits > 0 ? 1 : 0;
    shift2_ = bits > 0 ? bits - 1 : 0;
  }

  struct Result {
    uint32_t quotient, rest;
  };
  FRUGAL_HD Result divide(uint32_t n) const {
    const auto high = static_cast<uint32_t>(uint64_t{magic_} * n >> 32);
    const uint32_t quotient = (high + ((n - high) >> shift1_)) >> shift2_;
    return {quotient, n - quotient * by_};
  }

 private:
  uint32_t by_ = 1, magic_ = 1;
  int shift1_ = 0, shift2_ = 0;
};

}  // namespace frugal::cuda

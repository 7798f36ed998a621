#include "ops/image/window_codes.h"

#include <type_traits>

#include "core/integers.h"
#include "core/parallel.h"

namespace frugal::ops {
namespace {

constexpr int64_t kPackedGrain = int64_t{1} << 16;  // bytes

bool is_packed_width(int bits) { return bits == 1 || bits == 2 || bits == 4; }

// Calls f with 1, 2 or 4 as a constant.
template <class F>
void with_bits(int bits, F f) {
  if (bits == 1) return f(std::integral_constant<int, 1>());
  if (bits == 2) return f(std::integral_constant<int, 2>());
  f(std::integral_constant<int, 4>());
}

}  // namespace

int window_index_bits(int64_t cells) {
  FRUGAL_ASSERT(1 <= cells && cells <= 256);
  return cells <= 2 ? 1 : cells <= 4 ? 2 : cells <= 16 ? 4 : 8;
}

void pack_window_index_kernel(Cpu, const Tensor& index, int bits, const Tensor& packed) {
  const int64_t n = index.numel();
  const auto* from = index.data<uint8_t>();
  auto* to = packed.mut<uint8_t>();
  with_bits(bits, [&](auto width) {
    constexpr int kBits = decltype(width)::value, kEach = 8 / kBits;
    parallel_for(0, n / kEach, kPackedGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int byte = 0;
        for (int k = 0; k < kEach; ++k) byte |= from[kEach * i + k] << kBits * k;
        to[i] = static_cast<uint8_t>(byte);
      }
    });
    int last = 0;
    for (int64_t i = n / kEach * kEach; i < n; ++i) last |= from[i] << kBits * (i % kEach);
    if (n % kEach != 0) to[n / kEach] = static_cast<uint8_t>(last);
  });
}

void unpack_window_index_kernel(Cpu, const Tensor& packed, int bits, const Tensor& index) {
  const int64_t n = index.numel();
  const auto* from = packed.data<uint8_t>();
  auto* to = index.mut<uint8_t>();
  with_bits(bits, [&](auto width) {
    constexpr int kBits = decltype(width)::value, kEach = 8 / kBits, kMask = (1 << kBits) - 1;
    parallel_for(0, n / kEach, kPackedGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int k = 0; k < kEach; ++k)
          to[kEach * i + k] = static_cast<uint8_t>(from[i] >> kBits * k & kMask);
    });
    for (int64_t i = n / kEach * kEach; i < n; ++i)
      to[i] = static_cast<uint8_t>(from[n / kEach] >> kBits * (i % kEach) & kMask);
  });
}

Tensor pack_window_index(const Tensor& index, int bits) {
  FRUGAL_ASSERT(index.is_contiguous() && index.dtype() == DType::u8 && is_packed_width(bits));
  Tensor packed =
      Tensor::empty({ceil_div(index.numel() * bits, int64_t{8})}, DType::u8, index.device());
  dispatch(index.device(),
           [&](auto backend) { pack_window_index_kernel(backend, index, bits, packed); });
  return packed;
}

Tensor unpack_window_index(const Tensor& packed, int bits, const Shape& shape) {
  FRUGAL_ASSERT(is_packed_width(bits));
  Tensor index = Tensor::empty(shape, DType::u8, packed.device());
  FRUGAL_ASSERT(packed.numel() == ceil_div(index.numel() * bits, int64_t{8}));
  dispatch(packed.device(),
           [&](auto backend) { unpack_window_index_kernel(backend, packed, bits, index); });
  return index;
}

}  // namespace frugal::ops

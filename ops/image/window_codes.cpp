#include "ops/image/window_codes.h"

#include "core/integers.h"
#include "core/parallel.h"

namespace frugal::ops {
namespace {

constexpr int64_t kGrain = int64_t{1} << 16;  // bytes

}  // namespace

Tensor halve_window_index(const Tensor& index) {
  FRUGAL_ASSERT(index.is_contiguous() && index.dtype() == DType::u8);
  const int64_t n = index.numel(), bytes = ceil_div(n, 2);
  Tensor halves = Tensor::empty({bytes}, DType::u8, index.device());
  if (index.device() == kMeta) return halves;
  const auto* from = index.data<uint8_t>();
  auto* to = halves.mut<uint8_t>();
  parallel_for(0, n / 2, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      to[i] = static_cast<uint8_t>(from[2 * i] | from[2 * i + 1] << 4);
  });
  if (n % 2 == 1) to[bytes - 1] = from[n - 1];
  return halves;
}

Tensor whole_window_index(const Tensor& halves, const Shape& shape) {
  Tensor index = Tensor::empty(shape, DType::u8, halves.device());
  const int64_t n = index.numel();
  FRUGAL_ASSERT(halves.numel() == ceil_div(n, 2));
  if (halves.device() == kMeta) return index;
  const auto* from = halves.data<uint8_t>();
  auto* to = index.mut<uint8_t>();
  parallel_for(0, n / 2, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      to[2 * i] = from[i] & 15;
      to[2 * i + 1] = static_cast<uint8_t>(from[i] >> 4);
    }
  });
  if (n % 2 == 1) to[n - 1] = from[n / 2];
  return index;
}

}  // namespace frugal::ops

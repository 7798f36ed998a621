#include "ops/dense/dropout.h"

#include "core/cuda/cuda_kernel.h"
#include "core/cuda/cuda_random.h"
#include "ops/dense/elementwise_loops.h"

namespace frugal::ops {
namespace {

// Four words from word `shift` of the first on.
__device__ __forceinline__ Words shifted(const Words& first, const Words& next, uint64_t shift) {
  Words out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint64_t from = i + shift;
    out.w[i] = from < 4 ? first.w[from] : next.w[from - 4];
  }
  return out;
}

// A thread takes four elements of the stream, which are one counter unless the part begins within
// one, or a whole pack.
template <class T>
__global__ void drop_kernel(int64_t n, int64_t begin, bool packs, cuda::DeviceKey stream,
                            uint32_t bound, float scale, const T* x, T* y) {
  constexpr int kSize = cuda::Pack<T>::kSize;
  const RngKey key = cuda::advanced(stream);
  for (int64_t p = cuda::first_index(); p * kSize < n; p += cuda::index_stride()) {
    const int64_t first = p * kSize;
    const bool whole = packs && first + kSize <= n;
    cuda::Pack<T> pack;
    if (whole)
      pack = cuda::load_pack(x + first);
    else
      for (int k = 0; k < kSize; ++k) pack.at[k] = first + k < n ? x[first + k] : T{};
#pragma unroll
    for (int k = 0; k < kSize; k += 4) {
      const auto at = static_cast<uint64_t>(begin + first + k);
      Words words = philox_words(key, at / 4);
      if (begin % 4 != 0) words = shifted(words, philox_words(key, at / 4 + 1), at % 4);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool kept = words.w[i] >> 8 >= bound;
        pack.at[k + i] = kept ? cuda::store<T>(cuda::load(pack.at[k + i]) * scale) : T{};
      }
    }
    if (whole)
      cuda::store_pack(y + first, pack);
    else
      for (int k = 0; k < kSize && first + k < n; ++k) y[first + k] = pack.at[k];
  }
}

}  // namespace

void dropout_kernel(Cuda, const Tensor& x, double p, RngKey key, const Tensor& y, int64_t first) {
  const simd::Drop drop = simd::drop_of(p, key);
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int64_t kSize = cuda::Pack<T>::kSize;
    cuda::launch(drop_kernel<T>, {cuda::blocks_for((x.numel() + kSize - 1) / kSize)}, x.numel(),
                 first, cuda::is_packable(x.raw()) && cuda::is_packable(y.raw()),
                 cuda::device_key(key), drop.bound, drop.scale, x.data<T>(), y.mut<T>());
  });
}

}  // namespace frugal::ops

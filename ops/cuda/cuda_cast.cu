#include "ops/cuda/cuda_cast.h"

#include "core/cuda/cuda_kernel.h"

namespace frugal::ops::cuda {
namespace {

using namespace frugal::cuda;

// Eight elements for each thread: one access of 16 bytes on the bf16 side, two on the f32 side.
constexpr int kItems = 8;

__device__ __forceinline__ void load_items(const BFloat16* x, float (&out)[kItems]) {
  const Pack<BFloat16> pack = load_pack(x);
#pragma unroll
  for (int i = 0; i < kItems; ++i) out[i] = load(pack.at[i]);
}
__device__ __forceinline__ void load_items(const float* x, float (&out)[kItems]) {
  const Pack<float> low = load_pack(x), high = load_pack(x + 4);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[i] = low.at[i];
    out[4 + i] = high.at[i];
  }
}
__device__ __forceinline__ void store_items(BFloat16* y, const float (&in)[kItems]) {
  Pack<BFloat16> pack;
#pragma unroll
  for (int i = 0; i < kItems; ++i) pack.at[i] = store<BFloat16>(in[i]);
  store_pack(y, pack);
}
__device__ __forceinline__ void store_items(float* y, const float (&in)[kItems]) {
  Pack<float> low, high;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    low.at[i] = in[i];
    high.at[i] = in[4 + i];
  }
  store_pack(y, low);
  store_pack(y + 4, high);
}

template <class To, class From>
__global__ void convert_kernel(int64_t n, bool packs, To* y, const From* x) {
  const int64_t whole = packs ? n / kItems : 0;
  for (int64_t p = first_index(); p < whole; p += index_stride()) {
    float items[kItems];
    load_items(x + p * kItems, items);
    store_items(y + p * kItems, items);
  }
  for (int64_t i = whole * kItems + first_index(); i < n; i += index_stride())
    y[i] = store<To>(load(x[i]));
}

}  // namespace

void convert_into(const Tensor& y, const Tensor& x) {
  const int64_t n = y.numel();
  const bool packs = is_packable(y.raw()) && is_packable(x.raw());
  with_activation(y.dtype(), [&]<class To>(To) {
    with_activation(x.dtype(), [&]<class From>(From) {
      launch(convert_kernel<To, From>, {n == 0 ? dim3(0) : blocks_for(packs ? n / kItems + 1 : n)},
             n, packs, y.mut<To>(), x.data<From>());
    });
  });
}

Tensor in_dtype(const Tensor& x, DType dtype) {
  if (!x.defined() || x.dtype() == dtype) return x;
  if (!x.is_contiguous()) return in_dtype(x.transpose(-1, -2), dtype).transpose(-1, -2);
  CategoryScope scope(Category::workspace);
  const Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  convert_into(y, x);
  return y;
}

}  // namespace frugal::ops::cuda

#include "ops/dense/inplace.h"

#include "ops/cuda/cuda_map.h"

namespace frugal::ops {
namespace {

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Scale {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};
struct ScaleBy {
  const float* factor;
  __device__ float operator()(float x) const { return x * *factor; }
};
struct Clip {  // NaN stays NaN
  float bound;
  __device__ float operator()(float x) const {
    return x > bound ? bound : (x < -bound ? -bound : x);
  }
};

template <class T, int kWidth>
__global__ void add_row_kernel(int64_t rows, int64_t c, T* x, const float* row) {
  using Run = std::conditional_t<kWidth == 1, T, cuda::Pack<T>>;
  const int64_t runs = c / kWidth;
  for (int64_t i = cuda::first_index(); i < rows * runs; i += cuda::index_stride()) {
    Run& run = reinterpret_cast<Run*>(x)[i];
    const float* terms = row + i % runs * kWidth;
    if constexpr (kWidth == 1) {
      run = cuda::store<T>(cuda::load(run) + terms[0]);
    } else {
      Run sum = run;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum.at[k] = cuda::store<T>(cuda::load(sum.at[k]) + terms[k]);
      run = sum;
    }
  }
}

}  // namespace

void accumulate_kernel(Cuda, const Tensor& into, const Tensor& term) {
  cuda::map(Add{}, into, into, term);
}

void accumulate_row_kernel(Cuda, const Tensor& into, const Tensor& row) {
  if (into.numel() == 0) return;
  const int64_t c = row.numel(), rows = into.numel() / c;
  cuda::with_activation(into.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int kWidth = cuda::Pack<T>::kSize;
    if (c % kWidth == 0 && cuda::is_packable(into.raw()))
      cuda::launch(add_row_kernel<T, kWidth>, {cuda::blocks_for(into.numel() / kWidth)}, rows, c,
                   into.mut<T>(), row.data<float>());
    else
      cuda::launch(add_row_kernel<T, 1>, {cuda::blocks_for(into.numel())}, rows, c, into.mut<T>(),
                   row.data<float>());
  });
}

void scale_inplace_kernel(Cuda, const Tensor& x, double factor) {
  cuda::map(Scale{static_cast<float>(factor)}, x, x);
}

void scale_inplace_kernel(Cuda, const Tensor& x, const Tensor& factor) {
  cuda::map(ScaleBy{factor.data<float>()}, x, x);
}

void clip_inplace_kernel(Cuda, const Tensor& x, double bound) {
  cuda::map(Clip{static_cast<float>(bound)}, x, x);
}

}  // namespace frugal::ops

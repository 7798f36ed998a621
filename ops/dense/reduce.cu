#include "ops/dense/reduce.h"

#include "core/finite.h"
#include "ops/cuda/cuda_sum.h"
#include "ops/dense/copy.h"

namespace frugal::ops {
namespace {

template <class T, int kRun>
struct Values {
  using Term = float;
  static constexpr int kWidth = kRun;
  int64_t reduce, inner;
  const T* x;
  __device__ void operator()(int64_t o, int64_t r, int64_t i, float* terms) const {
    const T* from = x + (o * reduce + r) * inner + i;
    if constexpr (kRun == 1) {
      terms[0] = cuda::load(from[0]);
    } else {
      const auto pack = cuda::load_pack(from);
#pragma unroll
      for (int k = 0; k < kRun; ++k) terms[k] = cuda::load(pack.at[k]);
    }
  }
};

template <class T>
struct StoreScaled {
  double factor;
  T* out;
  __device__ void operator()(int64_t at, double total) const {
    out[at] = cuda::store<T>(static_cast<float>(total * factor));
  }
};

// A maximum and its position. NaN is above everything; of equal values the first is taken.
struct Best {
  float value;
  int64_t at;  // -1: nothing yet
};
__device__ __forceinline__ bool is_better(const Best& a, const Best& b) {
  if (a.at < 0 || b.at < 0) return b.at < 0;
  const bool a_nan = is_nan(a.value), b_nan = is_nan(b.value);
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a.value != b.value) return a.value > b.value;
  return a.at < b.at;
}

template <class T, class Index>
__global__ void max_tiles_kernel(cuda::SumTiles tiles, const T* x, T* values, Index* indices) {
  __shared__ float shared_value[cuda::SumTiles::kThreads];
  __shared__ int64_t shared_at[cuda::SumTiles::kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = tiles.rows ? thread % tiles.lanes : thread / tiles.outputs;
  const int output = tiles.rows ? thread / tiles.lanes : thread % tiles.outputs;
  const int64_t strips = tiles.rows ? 1 : tiles.groups / tiles.outer;
  for (int64_t group = blockIdx.x; group < tiles.groups; group += gridDim.x) {
    const int64_t o = tiles.rows ? group * tiles.outputs + output : group / strips;
    const int64_t i = tiles.rows ? 0 : group % strips * tiles.outputs + output;
    const bool there = o < tiles.outer && i < tiles.inner;
    Best best{0, -1};
    if (there)
      for (int64_t r = lane; r < tiles.reduce; r += tiles.lanes) {
        const Best here{cuda::load(x[(o * tiles.reduce + r) * tiles.inner + i]), r};
        if (is_better(here, best)) best = here;
      }
    __syncthreads();  // the values of the previous group have been read
    shared_value[thread] = best.value;
    shared_at[thread] = best.at;
    const int next = tiles.rows ? 1 : tiles.outputs;
    for (int half = tiles.lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane >= half) continue;
      const int from = thread + half * next;
      const Best other{shared_value[from], shared_at[from]};
      if (!is_better(other, best)) continue;
      best = other;
      shared_value[thread] = best.value;
      shared_at[thread] = best.at;
    }
    if (there && lane == 0) {
      values[o * tiles.inner + i] = cuda::store<T>(best.value);
      indices[o * tiles.inner + i] = static_cast<Index>(best.at);
    }
  }
}

template <class F>
void with_position(DType dtype, F f) {
  if (dtype == DType::u8) return f(uint8_t{});
  if (dtype == DType::i32) return f(int32_t{});
  FRUGAL_ASSERT(dtype == DType::i64);
  f(int64_t{});
}

template <class T, class Index>
struct Spread {
  int64_t reduce, inner;
  const T* dy;
  const Index* at;
  T* dx;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / inner, k = row / reduce * inner + i % inner;
    dx[i] = static_cast<int64_t>(at[k]) == row % reduce ? dy[k] : T{};
  }
};

// Integers have no order of additions to keep.
template <class T>
__global__ void first_nonfinite_kernel(int64_t n, const T* x, unsigned long long* first) {
  for (int64_t i = cuda::first_index(); i < n; i += cuda::index_stride())
    if (!is_finite(cuda::load(x[i]))) {
      atomicMin(first, static_cast<unsigned long long>(i));
      return;  // all later finds of this thread have larger indices
    }
}

}  // namespace

void sum_kernel(Cuda, const Tensor& x, const Tensor& out, double factor) {
  const int64_t outer = x.size(0), reduce = x.size(1), inner = x.size(2);
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int kRun = cuda::Pack<T>::kSize;
    const StoreScaled<T> store{factor, out.mut<T>()};
    if ((inner == 1 ? reduce : inner) % kRun == 0 && cuda::is_packable(x.raw()))
      cuda::sum_over<double>(x.device(), outer, reduce, inner,
                             Values<T, kRun>{reduce, inner, x.data<T>()}, store);
    else
      cuda::sum_over<double>(x.device(), outer, reduce, inner,
                             Values<T, 1>{reduce, inner, x.data<T>()}, store);
  });
}

void max_kernel(Cuda, const Tensor& x, const Tensor& values, const Tensor& indices) {
  const cuda::SumTiles tiles = cuda::sum_tiles(x.size(0), x.size(1), x.size(2), 1);
  cuda::with_activation(x.dtype(), [&](auto zero) {
    with_position(indices.dtype(), [&](auto index) {
      using T = decltype(zero);
      using Index = decltype(index);
      cuda::launch(max_tiles_kernel<T, Index>,
                   {cuda::blocks_for(tiles.groups, 1), cuda::SumTiles::kThreads}, tiles,
                   x.data<T>(), values.mut<T>(), indices.mut<Index>());
    });
  });
}

void max_backward_kernel(Cuda, const Tensor& dy, const Tensor& indices, const Tensor& dx) {
  cuda::with_activation(dx.dtype(), [&](auto zero) {
    with_position(indices.dtype(), [&](auto index) {
      using T = decltype(zero);
      using Index = decltype(index);
      cuda::for_each(dx.numel(), Spread<T, Index>{dx.size(1), dx.size(2), dy.data<T>(),
                                                  indices.data<Index>(), dx.mut<T>()});
    });
  });
}

void first_nonfinite_kernel(Cuda, const Tensor& x, int64_t& index) {
  index = -1;
  if (!is_floating(x.dtype()) || x.numel() == 0) return;
  const CategoryScope scope(Category::workspace);
  const Tensor first = Tensor::empty({}, DType::i64, x.device());
  fill_kernel(Cuda{}, first, static_cast<double>(x.numel()));
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::launch(first_nonfinite_kernel<T>, {cuda::blocks_for(x.numel())}, x.numel(), x.data<T>(),
                 static_cast<unsigned long long*>(first.raw()));
  });
  int64_t found = 0;
  copy_bytes(&found, kCpu, first.raw(), x.device(), sizeof found);
  if (found < x.numel()) index = found;
}

}  // namespace frugal::ops

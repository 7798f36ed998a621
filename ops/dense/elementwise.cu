#include "ops/dense/elementwise.h"

#include "ops/cuda/cuda_map.h"
#include "ops/cuda/cuda_strides.h"
#include "ops/dense/functors.h"
#include "ops/dense/reduce.h"

namespace frugal::ops {
namespace {

template <class F>
struct Value {
  F f;
  __device__ float operator()(float x) const { return f.f(x); }
};
template <class F>
struct Gradient {
  F f;
  __device__ float operator()(float dy, float saved) const { return f.df(dy, saved); }
};
template <class F>
struct Estimate {
  F f;
  __device__ float operator()(float x, float variance) const { return estimate(f, x, variance); }
};
template <class F>
struct GradientEstimate {
  F f;
  __device__ float operator()(float dy, float x, float variance) const {
    return backward_estimate(f, dy, x, variance);
  }
};
struct Affine {
  float factor, term;
  __device__ float operator()(float x) const { return x * factor + term; }
};

// The values of a run of x; if x is broadcast, x[0] for all.
template <class T>
__device__ __forceinline__ cuda::Pack<T> load_run(const T* x, bool run) {
  if (run) return cuda::load_pack(x);
  cuda::Pack<T> pack;
  const T value = *x;
#pragma unroll
  for (T& at : pack.at) at = value;
  return pack;
}

template <class T, class F>
struct BroadcastRuns {
  cuda::Strided<2> where;
  bool a_runs, b_runs;
  const T *a, *b;
  T* y;
  F f;
  __device__ void operator()(int64_t i) const {
    int64_t at[2];
    where.at(i, at);
    cuda::store_pack(y + i * cuda::Pack<T>::kSize, cuda::map_pack<T>(f, load_run(a + at[0], a_runs),
                                                                     load_run(b + at[1], b_runs)));
  }
};

template <class T, class F>
struct Broadcast {
  cuda::Strided<2> where;
  const T *a, *b;
  T* y;
  F f;
  __device__ void operator()(int64_t i) const {
    int64_t at[2];
    where.at(i, at);
    y[i] = cuda::store<T>(f(cuda::load(a[at[0]]), cuda::load(b[at[1]])));
  }
};

}  // namespace

void binary_kernel(Cuda, Binary op, const Tensor& a, const Tensor& b, const Tensor& y) {
  const bool same = a.shape() == b.shape() && a.is_contiguous() && b.is_contiguous();
  const Tensor wide_a = expand(a, y.shape()), wide_b = expand(b, y.shape());
  with_binary(op, [&]<class F>(F f) {
    if (same) return cuda::map(f, y, a, b);
    auto where = cuda::strided<2>("elementwise", y.shape(), {&wide_a.strides(), &wide_b.strides()});
    const bool a_runs = where.is_run(0), b_runs = where.is_run(1);
    const bool packs = cuda::is_packable(y.raw()) && (!a_runs || cuda::is_packable(a.raw())) &&
                       (!b_runs || cuda::is_packable(b.raw()));
    cuda::with_activation(y.dtype(), [&]<class T>(T) {
      constexpr int64_t kSize = cuda::Pack<T>::kSize;
      if (packs && where.into_runs(kSize))
        return cuda::for_each(
            y.numel() / kSize,
            BroadcastRuns<T, F>{where, a_runs, b_runs, a.data<T>(), b.data<T>(), y.mut<T>(), f});
      cuda::for_each(y.numel(), Broadcast<T, F>{where, a.data<T>(), b.data<T>(), y.mut<T>(), f});
    });
  });
}

void affine_kernel(Cuda, const Tensor& x, double factor, double term, const Tensor& y) {
  cuda::map(Affine{static_cast<float>(factor), static_cast<float>(term)}, y, x);
}

void unary_kernel(Cuda, Unary op, const Tensor& x, const Tensor& y) {
  with_unary(op, [&]<class F>(F f) { cuda::map(Value<F>{f}, y, x); });
}

void unary_backward_kernel(Cuda, Unary op, const Tensor& dy, const Tensor& saved,
                           const Tensor& dx) {
  with_unary(op, [&]<class F>(F f) {
    if constexpr (requires { f.df(0.0f, 0.0f); }) cuda::map(Gradient<F>{f}, dx, dy, saved);
  });
}

void unary_estimate_kernel(Cuda, Unary op, const Tensor& x, const Tensor& variance,
                           const Tensor& y) {
  with_unary(op, [&]<class F>(F f) {
    if constexpr (is_smooth<F>) cuda::map(Estimate<F>{f}, y, x, variance);
  });
}

void unary_backward_estimate_kernel(Cuda, Unary op, const Tensor& dy, const Tensor& x,
                                    const Tensor& variance, const Tensor& dx) {
  with_unary(op, [&]<class F>(F f) {
    if constexpr (is_smooth<F>) cuda::map(GradientEstimate<F>{f}, dx, dy, x, variance);
  });
}

}  // namespace frugal::ops

#include "ops/dense/compare.h"

#include "core/dtype_switch.h"
#include "ops/cuda/cuda_strides.h"

namespace frugal::ops {
namespace {

template <class T>
__device__ __forceinline__ auto number(T value) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return static_cast<float>(value);
  else
    return value;
}

template <class T>
struct Holds {
  cuda::Strided<2> where;
  Compare op;
  const T *a, *b;
  bool* y;
  __device__ void operator()(int64_t i) const {
    int64_t at[2];
    where.at(i, at);
    y[i] = holds(op, number(a[at[0]]), number(b[at[1]]));
  }
};

}  // namespace

void compare_kernel(Cuda, Compare op, const Tensor& a, const Tensor& b, const Tensor& y) {
  FRUGAL_CHECK(a.dtype() != DType::f16,
               "[compare] expected a dtype that CUDA kernels know, got f16");
  if (y.numel() == 0) return;
  const auto where = cuda::strided<2>("compare", y.shape(), {&a.strides(), &b.strides()});
  with_dtype(a.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, Float16>)
      cuda::for_each(y.numel(), Holds<T>{where, op, a.data<T>(), b.data<T>(), y.mut<bool>()});
  });
}

}  // namespace frugal::ops

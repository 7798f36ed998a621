#include "ops/dense/copy.h"

#include "core/dtype_switch.h"
#include "core/to_integer.h"
#include "ops/cuda/cuda_cast.h"
#include "ops/cuda/cuda_strides.h"

namespace frugal::ops {
namespace {

template <class T>
inline constexpr bool is_half = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

template <class To, class From>
__device__ __forceinline__ To convert(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else if constexpr (is_half<From>)
    return convert<To>(static_cast<float>(value));
  else if constexpr (is_half<To>)
    return cuda::store<To>(static_cast<float>(value));
  else if constexpr (kToInteger<To, From>)
    return to_integer<To>(value);
  else
    return static_cast<To>(value);
}

template <class To, class From>
struct Copy {
  cuda::Strided<2> where;
  To* to;
  const From* from;
  __device__ void operator()(int64_t i) const {
    int64_t at[2];
    where.at(i, at);
    to[at[0]] = convert<To>(from[at[1]]);
  }
};

// Copies runs of 16 bytes.
struct CopyRuns {
  cuda::Strided<2> where;
  int64_t bytes;  // size of an element
  char* to;
  const char* from;
  __device__ void operator()(int64_t i) const {
    int64_t at[2];
    where.at(i, at);
    cuda::store_pack(to + at[0] * bytes, cuda::load_pack(from + at[1] * bytes));
  }
};

template <class T>
struct Fill {
  cuda::Strided<1> where;
  T* to;
  T value;
  __device__ void operator()(int64_t i) const {
    int64_t at[1];
    where.at(i, at);
    to[at[0]] = value;
  }
};

// f16 is only a storage format on CUDA; the host converts it.
template <class F>
void with_copied(DType dtype, F&& f) {
  FRUGAL_CHECK(dtype != DType::f16, "[copy] expected a dtype that CUDA kernels know, got f16");
  with_dtype(dtype, [&]<class T>(T zero) {
    if constexpr (!std::is_same_v<T, Float16>) f(zero);
  });
}

}  // namespace

void copy_kernel(Cuda, const Tensor& out, const Tensor& x) {
  if (out.dtype() == x.dtype() && out.is_contiguous() && x.is_contiguous())
    return copy_bytes(out.raw(), out.device(), x.raw(), x.device(), x.nbytes());
  const auto is_real = [](const Tensor& t) {
    return t.is_contiguous() && (t.dtype() == DType::f32 || t.dtype() == DType::bf16);
  };
  if (is_real(out) && is_real(x)) return cuda::convert_into(out, x);
  auto where = cuda::strided<2>("copy", x.shape(), {&out.strides(), &x.strides()});
  const auto bytes = static_cast<int64_t>(size_of(x.dtype()));
  if (out.dtype() == x.dtype() && where.is_run(0) && where.is_run(1) &&
      cuda::is_packable(out.raw()) && cuda::is_packable(x.raw()) && where.into_runs(16 / bytes))
    return cuda::for_each(x.nbytes() / 16, CopyRuns{where, bytes, static_cast<char*>(out.raw()),
                                                    static_cast<const char*>(x.raw())});
  with_copied(out.dtype(), [&]<class To>(To) {
    with_copied(x.dtype(), [&]<class From>(From) {
      cuda::for_each(x.numel(), Copy<To, From>{where, out.mut<To>(), x.data<From>()});
    });
  });
}

void fill_kernel(Cuda, const Tensor& out, double value) {
  if (out.numel() == 0) return;
  const auto where = cuda::strided<1>("fill", out.shape(), {&out.strides()});
  with_copied(out.dtype(), [&]<class T>(T) {
    T filled;
    if constexpr (is_half<T>)
      filled = T(static_cast<float>(value));
    else if constexpr (kToInteger<T, double>)
      filled = to_integer<T>(value);
    else
      filled = static_cast<T>(value);
    if (out.is_contiguous()) return cuda::fill(out.raw(), out.numel(), &filled, sizeof(T));
    cuda::for_each(out.numel(), Fill<T>{where, out.mut<T>(), filled});
  });
}

}  // namespace frugal::ops

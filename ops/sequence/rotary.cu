#include "ops/sequence/rotary.h"

#include "core/cuda/cuda_kernel.h"

namespace frugal::ops {
namespace {

// Cosine and sine of each position and channel, [T or N T, half]. Angles are f64, because positions
// may be large.
struct Angles {
  const int64_t* positions;  // null: the positions are 0, 1, ...
  int64_t half;
  RotaryOptions options;
  bool inverse;
  float2* table;
  __device__ void operator()(int64_t i) const {
    const int64_t t = i / half, k = i % half;
    const double at = static_cast<double>(positions == nullptr ? t : positions[t]);
    const double angle = at * frequency_of(options, k, half);
    const double c = options.gain * cos(angle), s = options.gain * sin(angle);
    table[i] = make_float2(static_cast<float>(c), static_cast<float>(inverse ? -s : s));
  }
};

template <class T, int kWidth>
struct Turn {
  int64_t steps, heads, half;
  const float2* table;
  const T* x;
  T* y;
  // Run i is kWidth pairs of one head.
  __device__ void operator()(int64_t i) const {
    const int64_t runs = half / kWidth, head = i / runs, k = i % runs * kWidth;
    const float2* turn = table + head / heads % steps * half + k;
    const int64_t first = head * 2 * half + k, second = first + half;
    using Run = std::conditional_t<kWidth == 1, OneOf, cuda::Pack<T>>;
    const Run a = *reinterpret_cast<const Run*>(x + first);
    const Run b = *reinterpret_cast<const Run*>(x + second);
    Run p, q;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float c = turn[j].x, s = turn[j].y;
      const float u = cuda::load(a.at[j]), v = cuda::load(b.at[j]);
      p.at[j] = cuda::store<T>(u * c - v * s);
      q.at[j] = cuda::store<T>(v * c + u * s);
    }
    *reinterpret_cast<Run*>(y + first) = p;
    *reinterpret_cast<Run*>(y + second) = q;
  }
  struct OneOf {
    T at[1];
  };
};

}  // namespace

void rotary_kernel(Cuda, const Tensor& x, const Tensor& positions, const RotaryOptions& options,
                   bool inverse, const Tensor& y) {
  const int64_t steps = positions.defined() ? positions.numel() : x.size(1);
  const int64_t heads = x.size(2), half = x.size(3) / 2;
  if (x.numel() == 0) return;
  const CategoryScope scope(Category::workspace);
  const Tensor table = Tensor::empty({steps, half, 2}, DType::f32, x.device());
  auto* angles = static_cast<float2*>(table.raw());
  cuda::for_each(steps * half, Angles{positions.defined() ? positions.data<int64_t>() : nullptr,
                                      half, options, inverse, angles});
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int kWidth = cuda::Pack<T>::kSize;
    const int64_t pairs = x.numel() / 2;
    if (half % kWidth == 0 && cuda::is_packable(x.raw()) && cuda::is_packable(y.raw()))
      cuda::for_each(pairs / kWidth,
                     Turn<T, kWidth>{steps, heads, half, angles, x.data<T>(), y.mut<T>()});
    else
      cuda::for_each(pairs, Turn<T, 1>{steps, heads, half, angles, x.data<T>(), y.mut<T>()});
  });
}

}  // namespace frugal::ops

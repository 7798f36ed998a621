#include "compress/entropy/cuda_decode.h"
#include "compress/quantize/fused_kernels.h"

namespace frugal::compress {
namespace {

using namespace cuda;

struct Map {
  Unpacking u;
  const void* dy;
  bool dithered, estimates, dy_quads;
};

template <class T, class Codes, class Make>
__device__ __forceinline__ void store_block(const Map& p, const UnpackPlace& at, const Codes& codes,
                                            const Make& make) {
  uint32_t bits = 0;
#pragma unroll
  for (int first = 0; first < kRows; first += kRowsAtOnce<T>) {
    Quad<T> dy[kRowsAtOnce<T>] = {};
    if (p.dy != nullptr) {
#pragma unroll
      for (int j = 0; j < kRowsAtOnce<T>; ++j)
        dy[j] = load_row<T>(p.u, at, first + j, p.dy, p.dy_quads);
    }
#pragma unroll
    for (int j = 0; j < kRowsAtOnce<T>; ++j) {
      const Quad<float> x = codes.row(first + j, bits);
      Quad<float> out;
#pragma unroll
      for (int c = 0; c < kCols; ++c) out.at[c] = make(x.at[c], load(dy[j].at[c]), c);
      store_row<T>(p.u, at, first + j, out);
    }
  }
}

template <class F>
struct Value {
  __device__ float operator()(float x, float, int) const { return F{}.f(x); }
};
template <class F>
struct ValueEstimate {
  Quad<float> variance;
  __device__ float operator()(float x, float, int c) const {
    return ops::estimate(F{}, x, variance.at[c]);
  }
};
template <class F>
struct Gradient {
  __device__ float operator()(float x, float dy, int) const { return F{}.df(dy, x); }
};
template <class F>
struct GradientEstimate {
  Quad<float> variance;
  __device__ float operator()(float x, float dy, int c) const {
    return ops::backward_estimate(F{}, dy, x, variance.at[c]);
  }
};

template <class T, class F, class Reading>
__global__ void __launch_bounds__(kThreads) map_kernel(Map p) {
  __shared__ StreamKeys keys;
  if constexpr (Reading::kDithered) draw_keys(p.u, keys);
  UnpackPlace at;
  if (!find_place(p.u, at)) return;
  const Decoder<T, Reading, 1> x(p.u, at, keys);
  if (p.estimates) {
    Quad<float> variance = variances(p.u, at, p.dithered);
#pragma unroll
    for (float& value : variance.at) value = load(store<T>(value));
    if (p.dy == nullptr)
      store_block<T>(p, at, x, ValueEstimate<F>{variance});
    else
      store_block<T>(p, at, x, GradientEstimate<F>{variance});
    return;
  }
  if (p.dy == nullptr)
    store_block<T>(p, at, x, Value<F>{});
  else
    store_block<T>(p, at, x, Gradient<F>{});
}

}  // namespace

void map_codes_kernel(Cuda, const MapJob& job) {
  const UnpackJob& codes = job.codes;
  check_dtype(codes.dtype);
  if (codes.begin >= codes.end) return;
  Map p{unpacking(codes), job.dy, codes.dithered, job.estimates, false};
  with_activation(codes.dtype, [&]<class T>(T) {
    p.u.quads = is_quadable<T>(codes.x, codes.layout);
    p.dy_quads = is_quadable<T>(job.dy, codes.layout);
    with_reading(codes, [&]<class Reading>(Reading) {
      ops::with_unary(job.function, [&]<class F>(F) {
        if constexpr (ops::is_smooth<F>) launch_blocks(map_kernel<T, F, Reading>, p.u, p);
      });
    });
  });
}

}  // namespace frugal::compress

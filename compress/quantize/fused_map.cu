#include "compress/entropy/cuda_decode.h"
#include "compress/quantize/fused_kernels.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/functors.h"

namespace frugal::compress {
namespace {

using namespace cuda;

struct Map {
  Unpacking u;
  const void* dy;
  bool dithered, estimates, dy_quads;
};

template <class T, bool kWhole, class Codes, class Make>
__device__ __forceinline__ void store_rows(const Map& p, const UnpackPlace& at, const Codes& codes,
                                           const Make& make) {
  BlockRows<const T, kWhole> gradients(p.u, at, static_cast<const T*>(p.dy), p.dy_quads);
  BlockRows<T, kWhole> rows(p.u, at, static_cast<T*>(p.u.x), p.u.quads);
  bool one[kCols];
#pragma unroll
  for (int first = 0; first < kRows; first += kRowsAtOnce<T, kWhole>) {
    Quad<T> dy[kRowsAtOnce<T, kWhole>] = {};
    if (p.dy != nullptr) {
#pragma unroll
      for (int j = 0; j < kRowsAtOnce<T, kWhole>; ++j) dy[j] = gradients.load();
    }
#pragma unroll
    for (int j = 0; j < kRowsAtOnce<T, kWhole>; ++j) {
      const Quad<float> x = codes.template row<kWhole>(first + j, one);
      const Quad<float> dy_row = ops::cuda::floats_of(dy[j]);
      Quad<float> out;
#pragma unroll
      for (int c = 0; c < kCols; ++c) out.at[c] = make(x.at[c], dy_row.at[c], c);
      rows.store(out);
    }
  }
}
template <class T, class Codes, class Make>
__device__ __forceinline__ void store_block(const Map& p, const UnpackPlace& at, const Codes& codes,
                                            const Make& make) {
  with_flag(
      at.whole && p.u.quads && (p.dy == nullptr || p.dy_quads) && codes.is_plain(),
      [&]<bool kWhole>(std::bool_constant<kWhole>) { store_rows<T, kWhole>(p, at, codes, make); });
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
  const ThreadBlocks mine = blocks_of_thread(p.u);
  Decoder<T, Reading, 1> x;
  for (uint32_t i = 0; i < mine.count; ++i) {
    const UnpackPlace at = place_at(p.u, mine.first + i, mine.column, mine.cols);
    x.read(p.u, at, keys);
    if (p.estimates) {
      Quad<float> variance = variances(p.u, at, p.dithered);
#pragma unroll
      for (float& value : variance.at) value = load(store<T>(value));
      if (p.dy == nullptr)
        store_block<T>(p, at, x, ValueEstimate<F>{variance});
      else
        store_block<T>(p, at, x, GradientEstimate<F>{variance});
    } else if (p.dy == nullptr) {
      store_block<T>(p, at, x, Value<F>{});
    } else {
      store_block<T>(p, at, x, Gradient<F>{});
    }
  }
}

}  // namespace

void map_codes_kernel(Cuda, const MapJob& job) {
  const UnpackJob& codes = job.codes;
  check_dtype(codes.dtype);
  FRUGAL_ASSERT(ops::has_estimate(job.function));
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

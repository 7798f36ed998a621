#include "compress/quantize/cuda_pack.h"
#include "compress/quantize/fused_kernels.h"

namespace frugal::compress {
namespace {

using namespace cuda;

// A row of a block of what lies as x does. `whole`: all of it is there, at an aligned address.
template <class T>
__device__ __forceinline__ Quad<float> get_row(const T* from, bool whole, uint32_t present) {
  Quad<float> out{};
  if (whole) return ops::cuda::get<kCols>(from);
#pragma unroll
  for (int c = 0; c < kCols; ++c)
    if ((present >> c & 1u) != 0) out.at[c] = load(from[c]);
  return out;
}
template <class T>
__device__ __forceinline__ void put_row(T* to, const Quad<float>& value, bool whole,
                                        uint32_t present) {
  if (whole) return ops::cuda::put<kCols>(to, value);
#pragma unroll
  for (int c = 0; c < kCols; ++c)
    if ((present >> c & 1u) != 0) to[c] = store<T>(value.at[c]);
}

// As normalize_rows (ops/image/batch_norm_kernels.cu) makes it; y may be the residual.
struct AffineMap {
  const float* affine;
  const void* residual;
  void* y;
  uint8_t* mask;
  bool relu, quads, mask_words;

  __device__ __forceinline__ Quad<float> coefficients(const Packing& p, int column, int count,
                                                      int which) const {
    const float* from = affine + which * p.layout.cols + column;
    Quad<float> out{};
#pragma unroll
    for (int c = 0; c < kCols; ++c)
      if (c < count) out.at[c] = from[c];
    return out;
  }

  template <class T>
  __device__ __forceinline__ uint32_t apply(const Packing& p, int64_t block, int column, int count,
                                            uint32_t present, const Values& x) const {
    const int64_t cols = p.layout.cols, begin = block * kRows * cols + column;
    const bool whole = quads && present == ~0u;
    const Quad<float> mean = coefficients(p, column, count, 0),
                      scale = coefficients(p, column, count, 1),
                      bias = coefficients(p, column, count, 2);
    uint32_t bits = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const uint32_t here = present >> (r * kCols) & 0xfu;
      Quad<float> added{}, out;
      if (residual != nullptr)
        added = get_row(static_cast<const T*>(residual) + begin + r * cols, whole, here);
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        float z = __fmaf_rn(x[r][c] - mean.at[c], scale.at[c], bias.at[c]);
        if (residual != nullptr) z += added.at[c];
        const bool keep = !relu || !(z <= 0);
        if (keep) bits |= 1u << (8 * c + r);
        out.at[c] = keep ? z : 0;
      }
      put_row(static_cast<T*>(y) + begin + r * cols, out, whole, here);
    }
    if (mask != nullptr) store_bytes(mask + block * cols + column, bits, count, mask_words);
    return bits;
  }
};

struct UnaryMap {
  ops::Unary function;
  void* y;
  bool quads;

  template <class F, class T>
  __device__ __forceinline__ void store_values(const F& f, const Packing& p, int64_t block,
                                               int column, uint32_t present,
                                               const Values& x) const {
    const int64_t cols = p.layout.cols, begin = block * kRows * cols + column;
    const bool whole = quads && present == ~0u;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Quad<float> out;
#pragma unroll
      for (int c = 0; c < kCols; ++c) out.at[c] = f.f(x[r][c]);
      put_row(static_cast<T*>(y) + begin + r * cols, out, whole, present >> (r * kCols) & 0xfu);
    }
  }

  template <class T>
  __device__ __forceinline__ uint32_t apply(const Packing& p, int64_t block, int column, int,
                                            uint32_t present, const Values& x) const {
    if (function == ops::Unary::gelu_exact)
      store_values<ops::functors::GeluExact, T>({}, p, block, column, present, x);
    else if (function == ops::Unary::gelu_tanh)
      store_values<ops::functors::GeluTanh, T>({}, p, block, column, present, x);
    else
      store_values<ops::functors::Silu, T>({}, p, block, column, present, x);
    return 0;
  }
};

bool quads_of(const PackJob& job, const void* x) {
  bool quads = false;
  with_activation(job.dtype, [&]<class T>(T) { quads = is_quadable<T>(x, job.layout); });
  return quads;
}

AffineMap affine_map(const PackJob& job, const MapJob& map) {
  return {map.affine,
          map.residual,
          map.y,
          map.mask,
          map.relu,
          quads_of(job, map.y) && quads_of(job, map.residual),
          is_quadable<uint8_t>(map.mask, job.layout)};
}

}  // namespace

void quantize_mapped_kernel(Cuda, const PackJob& job, const MapJob& map) {
  if (map.function)
    pack<1>(job, UnaryMap{*map.function, map.y, quads_of(job, map.y)});
  else
    pack<1>(job, affine_map(job, map));
}

void split_quantize_mapped_kernel(Cuda, const PackJob& job, const MapJob& map) {
  pack<2>(job, affine_map(job, map));
}

}  // namespace frugal::compress

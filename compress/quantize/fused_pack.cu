#include "compress/quantize/cuda_pack.h"
#include "compress/quantize/fused_kernels.h"
#include "ops/cuda/cuda_smooth.h"

namespace frugal::compress {
namespace {

using namespace cuda;

// A row of a block of what lies as x does. `whole`: all of it is there, at an aligned address.
template <class T>
__device__ __forceinline__ Quad<T> get_row(const T* from, bool whole, uint32_t present) {
  Quad<T> out{};
  if (whole) return ops::cuda::get_raw<kCols>(from);
#pragma unroll
  for (int c = 0; c < kCols; ++c)
    if ((present >> c & 1u) != 0) out.at[c] = from[c];
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

// PackedPass::Affine; `out` may be the residual. In f32 each result takes one multiply-add.
struct AffineMap {
  const float* affine;
  const void* residual;
  void* out;
  uint8_t* kept;
  bool rectify, quads, mask_words;

  __device__ __forceinline__ Quad<float> coefficients(const Packing& p, int column, int count,
                                                      int which) const {
    const float* from = affine + which * p.layout.cols + column;
    Quad<float> found{};
#pragma unroll
    for (int c = 0; c < kCols; ++c)
      if (c < count) found.at[c] = from[c];
    return found;
  }

  template <class T>
  __device__ __forceinline__ uint32_t apply(const Packing& p, int64_t block, int column, int count,
                                            uint32_t present, const Values<T>& x) const {
    const int64_t cols = p.layout.cols, begin = block * kRows * cols + column;
    const bool whole = quads && present == ~0u;
    const Quad<float> center = coefficients(p, column, count, 0),
                      scale = coefficients(p, column, count, 1),
                      shift = coefficients(p, column, count, 2);
    uint32_t bits = 0;
    // Rows of the residual are loaded before the first of them is stored: loads after a store could
    // be of what it wrote, so they would wait for one another.
    constexpr int kAtOnce = sizeof(T) == 2 ? kRows : kRows / 2;
#pragma unroll
    for (int first = 0; first < kRows; first += kAtOnce) {
      Quad<T> added[kAtOnce] = {};
      if (residual != nullptr) {
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const int r = first + j;
          added[j] = get_row(static_cast<const T*>(residual) + begin + r * cols, whole,
                             present >> (r * kCols) & 0xfu);
        }
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int r = first + j;
        Quad<float> z_kept;
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
          float z = __fmaf_rn(x(r, c) - center.at[c], scale.at[c], shift.at[c]);
          if (residual != nullptr) z += load(added[j].at[c]);
          const bool keep = !rectify || !(z <= 0);
          if (keep) bits |= 1u << (8 * c + r);
          z_kept.at[c] = keep ? z : 0;
        }
        put_row(static_cast<T*>(out) + begin + r * cols, z_kept, whole,
                present >> (r * kCols) & 0xfu);
      }
    }
    if (kept != nullptr) store_bytes(kept + block * cols + column, bits, count, mask_words);
    return bits;
  }
};

// PackedPass::Map.
struct UnaryMap {
  ops::Unary function;
  void* out;
  bool quads;

  template <class F, class T>
  __device__ __forceinline__ void store_values(const F& f, const Packing& p, int64_t block,
                                               int column, uint32_t present,
                                               const Values<T>& x) const {
    const int64_t cols = p.layout.cols, begin = block * kRows * cols + column;
    const bool whole = quads && present == ~0u;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Quad<float> value;
#pragma unroll
      for (int c = 0; c < kCols; ++c) value.at[c] = f.f(x(r, c));
      put_row(static_cast<T*>(out) + begin + r * cols, value, whole, present >> (r * kCols) & 0xfu);
    }
  }

  template <class T>
  __device__ __forceinline__ uint32_t apply(const Packing& p, int64_t block, int column, int,
                                            uint32_t present, const Values<T>& x) const {
    ops::cuda::with_smooth(function, [&]<class F>(const F& f) {
      store_values<F, T>(f, p, block, column, present, x);
    });
    return 0;
  }
};

bool quads_of(const PackJob& job, const void* x) {
  bool quads = false;
  with_activation(job.dtype, [&]<class T>(T) { quads = is_quadable<T>(x, job.layout); });
  return quads;
}

AffineMap affine_map(const PackJob& job, const PackPassJob& pass) {
  return {pass.affine,
          pass.residual,
          pass.out,
          pass.kept,
          pass.rectify,
          quads_of(job, pass.out) && quads_of(job, pass.residual),
          is_quadable<uint8_t>(pass.kept, job.layout)};
}

}  // namespace

void quantize_and_run_kernel(Cuda, const PackJob& job, const PackPassJob& pass) {
  if (pass.function)
    pack<1>(job, UnaryMap{*pass.function, pass.out, quads_of(job, pass.out)});
  else
    pack<1>(job, affine_map(job, pass));
}

void split_quantize_and_run_kernel(Cuda, const PackJob& job, const PackPassJob& pass) {
  pack<2>(job, affine_map(job, pass));
}

}  // namespace frugal::compress

#include "compress/quantize/cuda_pack.h"
#include "compress/quantize/fused_kernels.h"
#include "ops/cuda/cuda_smooth.h"
#include "ops/dense/elementwise.h"

namespace frugal::compress {
namespace {

using namespace cuda;

// A row of a block of what lies as x does. `whole`: all of it is there, at an aligned address.
template <class T>
__device__ __forceinline__ Quad<T> get_row(const T* from, bool whole, uint32_t present) {
  Quad<T> out{};
  if (whole) return ops::cuda::get_raw<kCols>(from);
  one_after_another();
#pragma unroll
  for (int c = 0; c < kCols; ++c)
    if ((present >> c & 1u) != 0) out.at[c] = from[c];
  return out;
}
template <class T>
__device__ __forceinline__ void put_row(T* to, const Quad<float>& value, bool whole,
                                        uint32_t present) {
  if (whole) return ops::cuda::put<kCols>(to, value);
  one_after_another();
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

  // kWhole: all elements are there, at aligned addresses.
  template <bool kWhole, bool kResidual, class T>
  __device__ __forceinline__ uint32_t map_rows(const Packing& p, int64_t begin, int column,
                                               int count, uint32_t present,
                                               const Values<T>& x) const {
    const int64_t cols = p.layout.cols;
    const T* from = unknown(static_cast<const T*>(residual) + begin);
    T* to = unknown(static_cast<T*>(out) + begin);
    const Quad<float> center = coefficients(p, column, count, 0),
                      scale = coefficients(p, column, count, 1),
                      shift = coefficients(p, column, count, 2);
    const float limit = rectify ? 0 : kNan;  // nothing is at most NaN: no branches
    uint32_t bits = 0;
    // Rows of the residual are loaded before the first of them is stored: loads after a store could
    // be of what it wrote, so they would wait for one another.
    constexpr int kAtOnce = !kWhole ? 1 : sizeof(T) == 2 ? kRows : kRows / 2;
#pragma unroll
    for (int first = 0; first < kRows; first += kAtOnce) {
      Quad<T> added[kAtOnce] = {};
      if constexpr (kResidual) {
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const int r = first + j;
          if (!kWhole && residual == nullptr)
            for (T& none : added[j].at) none = store<T>(-0.0f);  // adding it changes no bit
          else
            added[j] = get_row(from, kWhole, present >> (r * kCols) & 0xfu);
          from += cols;
        }
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int r = first + j;
        const Quad<float> added_row = ops::cuda::floats_of(added[j]);
        Quad<float> z_kept;
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
          float z = __fmaf_rn(x(r, c) - center.at[c], scale.at[c], shift.at[c]);
          if constexpr (kResidual) z += added_row.at[c];
          const bool drop = z <= limit;
          if (!drop) bits |= 1u << (8 * c + r);
          z_kept.at[c] = drop ? 0 : z;
        }
        put_row(to, z_kept, kWhole, present >> (r * kCols) & 0xfu);
        to += cols;
      }
    }
    return bits;
  }

  template <class T>
  __device__ __forceinline__ uint32_t apply(const Packing& p, int64_t block, int column, int count,
                                            uint32_t present, const Values<T>& x) const {
    const int64_t begin = block * kRows * p.layout.cols + column;
    uint32_t bits = 0;
    if (!quads || present != ~0u)
      bits = map_rows<false, true>(p, begin, column, count, present, x);
    else if (residual != nullptr)
      bits = map_rows<true, true>(p, begin, column, kCols, ~0u, x);
    else
      bits = map_rows<true, false>(p, begin, column, kCols, ~0u, x);
    if (kept != nullptr)
      store_bytes(kept + block * p.layout.cols + column, bits, count, mask_words);
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
    T* to = unknown(static_cast<T*>(out) + begin);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Quad<float> value;
#pragma unroll
      for (int c = 0; c < kCols; ++c) value.at[c] = f.f(x(r, c));
      put_row(to, value, whole, present >> (r * kCols) & 0xfu);
      to += cols;
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
  if (pass.function) {
    FRUGAL_ASSERT(ops::has_estimate(*pass.function));
    pack<1>(job, UnaryMap{*pass.function, pass.out, quads_of(job, pass.out)});
  } else {
    pack<1>(job, affine_map(job, pass));
  }
}

void split_quantize_and_run_kernel(Cuda, const PackJob& job, const PackPassJob& pass) {
  pack<2>(job, affine_map(job, pass));
}

}  // namespace frugal::compress

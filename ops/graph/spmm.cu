#include "ops/graph/spmm.h"

#include <cmath>
#include <limits>

#include "core/cuda/cuda_random.h"
#include "core/finite.h"
#include "ops/cuda/cuda_rows.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

using namespace cuda;

template <class T>
struct Product {
  const int64_t* row_ptr;
  const int32_t* col;
  const float* value;
  const int64_t* entry_counts;
  const T* x;
  int64_t width;
  bool mean;
  float factor;
  const float* bias;
  const T* addend;
  float addend_factor;
  T* y;

  template <int kSize>
  __device__ __forceinline__ void add(int64_t, int64_t e, int64_t f, float (&sum)[kSize]) const {
    const int64_t c = col[e];
    float w = value != nullptr ? value[e] : 1.0f;
    if (entry_counts != nullptr) w /= static_cast<float>(entry_counts[c + 1] - entry_counts[c]);
    const Vec<T, kSize> from = load_vec<kSize>(x + c * width + f);
#pragma unroll
    for (int k = 0; k < kSize; ++k) sum[k] += w * load(from.at[k]);
  }
  template <int kSize>
  __device__ __forceinline__ void finish(int64_t row, int64_t f, float (&sum)[kSize]) const {
    float scale = factor;
    if (mean) {
      const int64_t entries = row_ptr[row + 1] - row_ptr[row];
      scale = entries > 0 ? factor / static_cast<float>(entries) : 0.0f;
    }
    const int64_t at = row * width + f;
#pragma unroll
    for (int k = 0; k < kSize; ++k) sum[k] *= scale;
    if (addend != nullptr) {
      const Vec<T, kSize> from = load_vec<kSize>(addend + at);
#pragma unroll
      for (int k = 0; k < kSize; ++k) sum[k] += addend_factor * load(from.at[k]);
    }
    if (bias != nullptr) {
#pragma unroll
      for (int k = 0; k < kSize; ++k) sum[k] += bias[f + k];
    }
    store_vec(y + at, sum);
  }
};

// ---- maxima

// A maximum and its position. NaN is above everything; of equal values the first is taken.
struct Best {
  float value;
  int32_t at;
  __device__ __forceinline__ static bool exceeds(float a, float b) {
    return a > b || (is_nan(a) && !is_nan(b));
  }
  __device__ __forceinline__ void join(const Best& other) {
    const bool better =
        exceeds(other.value, value) || (!exceeds(value, other.value) && other.at < at);
    if (better) *this = other;
  }
};
constexpr int32_t kNobody = std::numeric_limits<int32_t>::max();

template <class T, class I>
struct Maxima {
  const T* x;
  int64_t width;
  T* y;
  I* index;
  __device__ __forceinline__ void finish(int64_t row, int64_t f, const Best& best) const {
    const bool any = best.at != kNobody;
    y[row * width + f] = store<T>(any ? best.value : 0.0f);
    index[row * width + f] = static_cast<I>(any ? best.at : 0);
  }
};

template <int kSize, class T, class I>
__global__ void __launch_bounds__(kWalkThreads)
    max_rows_kernel(Walk walk, Maxima<T, I> op, int lanes, Best* parts) {
  const Span span = span_of(walk);
  if (span.row < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, part = lane / lanes, step = kWarp / lanes;
  const int64_t begin = walk.row_ptr[span.row];
  for (int64_t first = 0; first < op.width; first += lanes * kSize) {
    const int64_t f = first + lane % lanes * kSize;
    Best best[kSize];
#pragma unroll
    for (Best& b : best) b = {-std::numeric_limits<float>::infinity(), kNobody};
    if (f < op.width) {
#pragma unroll 4
      for (int64_t e = span.begin + part; e < span.end; e += step) {
        const Vec<T, kSize> from = load_vec<kSize>(op.x + walk.col[e] * op.width + f);
#pragma unroll
        for (int k = 0; k < kSize; ++k)
          best[k].join({load(from.at[k]), static_cast<int32_t>(e - begin)});
      }
    }
    for (int other = lanes; other < kWarp; other *= 2)
#pragma unroll
      for (int k = 0; k < kSize; ++k)
        best[k].join({__shfl_xor_sync(kAllLanes, best[k].value, other),
                      __shfl_xor_sync(kAllLanes, best[k].at, other)});
    if (part > 0 || f >= op.width) continue;
#pragma unroll
    for (int k = 0; k < kSize; ++k)
      if (span.piece < 0)
        op.finish(span.row, f + k, best[k]);
      else
        parts[span.piece * op.width + f + k] = best[k];
  }
}

template <class T, class I>
__global__ void __launch_bounds__(kMergeWarps* kWarp)
    merge_max_kernel(Walk walk, Maxima<T, I> op, const Best* parts) {
  __shared__ float values[kMergeWarps][kWarp];
  __shared__ int32_t places[kMergeWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t f = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  for (int64_t i = blockIdx.y; i < walk.long_count; i += gridDim.y) {
    const int64_t *at = walk.long_rows + 3 * i, pieces = at[2];
    Best best{-std::numeric_limits<float>::infinity(), kNobody};
    if (f < op.width)
      for (int64_t p = warp; p < pieces; p += kMergeWarps)
        best.join(parts[(at[1] + p) * op.width + f]);
    __syncthreads();
    values[warp][lane] = best.value;
    places[warp][lane] = best.at;
    __syncthreads();
    if (warp > 0 || f >= op.width) continue;
    for (int w = 1; w < kMergeWarps; ++w) best.join({values[w][lane], places[w][lane]});
    op.finish(at[0], f, best);
  }
}

// The gradient of each source is gathered from the rows in which it has an entry.
template <class T, class I>
struct MaxGradient {
  const int32_t *row_of, *position;
  const int64_t* row_ptr;
  const T* dy;
  const I* index;
  int64_t width;
  T* dx;

  template <int kSize>
  __device__ __forceinline__ void add(int64_t, int64_t e, int64_t f, float (&sum)[kSize]) const {
    const int64_t row = row_of[e];
    const auto here = static_cast<I>(position[e] - row_ptr[row]);
    const Vec<T, kSize> from = load_vec<kSize>(dy + row * width + f);
    const Vec<I, kSize> at = load_vec<kSize>(index + row * width + f);
#pragma unroll
    for (int k = 0; k < kSize; ++k) sum[k] += at.at[k] == here ? load(from.at[k]) : 0.0f;
  }
  template <int kSize>
  __device__ __forceinline__ void finish(int64_t row, int64_t f, float (&sum)[kSize]) const {
    store_vec(dx + row * width + f, sum);
  }
};

template <class F>
void with_index(const Tensor& x, const Tensor& index, F f) {
  with_activation(x.dtype(),
                  [&](auto t) { index.dtype() == DType::u8 ? f(t, uint8_t{}) : f(t, int32_t{}); });
}

// ---- entries

struct TransposeEntries {
  const float* value;
  const int32_t* position;
  float* out;
  __device__ void operator()(int64_t e) const { out[e] = value[position[e]]; }
};

struct DropEntries {
  const float* value;
  cuda::DeviceKey key;
  uint32_t bound;
  float scale;
  float* out;
  int64_t entries;
  __device__ void operator()(int64_t quad) const {
    const Words words = philox_words(cuda::advanced(key), static_cast<uint64_t>(quad));
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int64_t e = 4 * quad + w;
      if (e >= entries) continue;
      const float kept = value != nullptr ? scale * value[e] : scale;
      out[e] = words.w[w] >> 8 >= bound ? kept : 0.0f;
    }
  }
};

}  // namespace

void spmm_kernel(Cuda, const Csr& a, const Tensor& x, const SpmmOptions& o, const Tensor& y) {
  if (y.numel() == 0) return;
  const int64_t width = x.size(1);
  with_activation(x.dtype(), [&]<class T>(T) {
    const Product<T> op{a.row_ptr.data<int64_t>(),
                        a.col.data<int32_t>(),
                        data_or_null<float>(o.value.defined() ? o.value : a.value),
                        data_or_null<int64_t>(o.entry_counts),
                        x.data<T>(),
                        width,
                        o.mean,
                        static_cast<float>(o.factor),
                        data_or_null<float>(o.bias),
                        data_or_null<T>(o.addend),
                        static_cast<float>(o.addend_factor),
                        y.mut<T>()};
    sum_entries<T>(a, op, width, packs<T>(width, {&x, &y, &o.addend}));
  });
}

void spmm_max_kernel(Cuda, const Csr& a, const Tensor& x, const Tensor& y, const Tensor& index) {
  if (y.numel() == 0) return;
  const int64_t width = x.size(1);
  const Walk walk = walk_of(a);
  const Tensor parts = row_parts(walk.piece_count, width, DType::i64, x.device());
  static_assert(sizeof(Best) == sizeof(int64_t));
  auto* best = reinterpret_cast<Best*>(parts.mut<int64_t>());
  with_index(x, index, [&]<class T, class I>(T, I) {
    const Maxima<T, I> op{x.data<T>(), width, y.mut<T>(), index.mut<I>()};
    constexpr int kSize = Pack<T>::kSize;
    if (packs<T>(width, {&x}))
      launch(max_rows_kernel<kSize, T, I>, {walk_blocks(walk), kWalkThreads}, walk, op,
             lanes_for(width, kSize), best);
    else
      launch(max_rows_kernel<1, T, I>, {walk_blocks(walk), kWalkThreads}, walk, op,
             lanes_for(width, 1), best);
    if (walk.long_count > 0)
      launch(merge_max_kernel<T, I>, merge_grid(walk, width), walk, op, best);
  });
}

void spmm_max_backward_kernel(Cuda, const SparseMatrix& a, const Tensor& dy, const Tensor& index,
                              const Tensor& dx) {
  if (dx.numel() == 0) return;
  const int64_t width = dy.size(1);
  with_index(dy, index, [&]<class T, class I>(T, I) {
    const MaxGradient<T, I> op{a.by_col.col.data<int32_t>(),
                               a.position.data<int32_t>(),
                               a.by_row.row_ptr.data<int64_t>(),
                               dy.data<T>(),
                               index.data<I>(),
                               width,
                               dx.mut<T>()};
    sum_entries<T>(a.by_col, op, width, packs<T>(width, {&dy, &dx, &index}));
  });
}

void transpose_entries_kernel(Cuda, const Tensor& value, const Tensor& position,
                              const Tensor& out) {
  for_each(value.numel(),
           TransposeEntries{value.data<float>(), position.data<int32_t>(), out.mut<float>()});
}

void dropout_entries_kernel(Cuda, const Tensor& value, double p, RngKey key, const Tensor& out) {
  const int64_t entries = out.numel();
  for_each((entries + 3) / 4,
           DropEntries{data_or_null<float>(value), cuda::device_key(key),
                       static_cast<uint32_t>(std::ceil(p * 0x1p24)),
                       p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f, out.mut<float>(), entries});
}

}  // namespace frugal::ops

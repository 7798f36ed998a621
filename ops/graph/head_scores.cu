#include <algorithm>

#include "ops/cuda/cuda_rows.h"
#include "ops/graph/graph_attention.h"

namespace frugal::ops {
namespace {

using namespace cuda;

// s[i] = <h[i], weight[i % heads]>. `lanes` lanes work on each row.
template <class T>
__global__ void scores_kernel(const T* h, const float* weight, T* s, int64_t rows, int64_t heads,
                              int64_t width, int lanes) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, at_once = kWarp / lanes;
  const int64_t warps = index_stride() / kWarp;
  for (int64_t first = first_index() / kWarp * at_once; first < rows; first += warps * at_once) {
    const int64_t i = first + lane / lanes;
    float sum = 0;
    if (i < rows)
      for (int64_t f = lane % lanes; f < width; f += lanes)
        sum += load(h[i * width + f]) * weight[i % heads * width + f];
    for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    if (i < rows && lane % lanes == 0) s[i] = store<T>(sum);
  }
}

template <class T>
struct InputGradient {
  const T* ds;
  const float* weight;
  T* dh;
  int64_t heads, width;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / width;
    dh[i] = store<T>(load(ds[row]) * weight[row % heads * width + i % width]);
  }
};

constexpr int kRowsAtOnce = 8;

// parts [chunks, all]. The grid is [features, chunks of nodes].
template <class T>
__global__ void __launch_bounds__(kRowsAtOnce* kWarp)
    weight_gradient_kernel(const T* ds, const T* h, float* parts, int64_t nodes, int64_t heads,
                           int64_t width, int64_t chunk) {
  __shared__ float shares[kRowsAtOnce][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t all = heads * width, f = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  const int64_t begin = blockIdx.y * chunk, end = begin + chunk < nodes ? begin + chunk : nodes;
  float sum = 0;
  if (f < all)
#pragma unroll 4
    for (int64_t v = begin + warp; v < end; v += kRowsAtOnce)
      sum += load(ds[v * heads + f / width]) * load(h[v * all + f]);
  shares[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || f >= all) return;
  for (int w = 1; w < kRowsAtOnce; ++w) sum += shares[w][lane];
  parts[blockIdx.y * all + f] = sum;
}

struct AddChunks {
  const float* parts;
  float* to;
  int64_t chunks, n;
  __device__ void operator()(int64_t i) const {
    float sum = 0;
    for (int64_t c = 0; c < chunks; ++c) sum += parts[c * n + i];
    to[i] = sum;
  }
};

}  // namespace

void head_scores_kernel(Cuda, const Tensor& h, const Tensor& weight, const Tensor& s) {
  const int64_t rows = h.size(0) * h.size(1), width = h.size(2);
  const int lanes = lanes_for(width, 1);
  with_activation(h.dtype(), [&]<class T>(T) {
    launch(scores_kernel<T>, {blocks_for(rows * lanes)}, h.data<T>(), weight.data<float>(),
           s.mut<T>(), rows, h.size(1), width, lanes);
  });
}

void head_scores_backward_input_kernel(Cuda, const Tensor& ds, const Tensor& weight,
                                       const Tensor& dh) {
  with_activation(ds.dtype(), [&]<class T>(T) {
    for_each(dh.numel(), InputGradient<T>{ds.data<T>(), weight.data<float>(), dh.mut<T>(),
                                          dh.size(1), dh.size(2)});
  });
}

void head_scores_backward_weight_kernel(Cuda, const Tensor& ds, const Tensor& h,
                                        const Tensor& dweight) {
  const int64_t nodes = h.size(0), all = h.size(1) * h.size(2);
  const int64_t chunks = std::clamp<int64_t>(nodes / 256, 1, 512),
                chunk = (nodes + chunks - 1) / chunks;
  const Tensor parts = chunks == 1 ? dweight : row_parts(chunks, all, DType::f32, h.device());
  with_activation(h.dtype(), [&]<class T>(T) {
    const dim3 blocks = as_blocks((all + kWarp - 1) / kWarp, chunks);
    launch(weight_gradient_kernel<T>, {blocks, kRowsAtOnce * kWarp}, ds.data<T>(), h.data<T>(),
           parts.mut<float>(), nodes, h.size(1), h.size(2), chunk);
  });
  if (chunks > 1) for_each(all, AddChunks{parts.data<float>(), dweight.mut<float>(), chunks, all});
}

}  // namespace frugal::ops

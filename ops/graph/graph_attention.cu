#include "ops/graph/graph_attention.h"

#include <cmath>
#include <limits>

#include "core/cuda/cuda_random.h"
#include "ops/cuda/cuda_rows.h"

// The dot product of a node's features with those at the other end of an edge is a sum of products.
// So a warp adds vectors that are weighted by the coefficients of the edges, and takes the dot
// products once, at the end.
namespace frugal::ops {
namespace {

using namespace cuda;

constexpr int kBatch = 128;  // coefficients that a warp computes before it uses them; REQUIRES: at
                             // least the number of heads
constexpr int kHeadParts = kBatch / kWarp;
constexpr int kPacks = 2;  // packs of features in each lane
constexpr int kWalkWarps = kWalkThreads / kWarp;
constexpr float kNone = -std::numeric_limits<float>::infinity();

template <class T>
struct View {
  const int32_t* position;  // [entries]: the position in by_row of each entry of by_col
  int heads, width, all;    // all = heads width
  const T *h, *a_src, *a_dst, *dy;
  float slope;
  bool drops;
  cuda::DeviceKey key;
  uint32_t bound;  // 24-bit words from here on are kept
  float scale;     // kept coefficients are multiplied by this
  float *lse, *mean;

  __device__ __forceinline__ float logit(int64_t source, int64_t target, int k) const {
    return load(a_src[source * heads + k]) + load(a_dst[target * heads + k]);
  }
  __device__ __forceinline__ float leaky(float z) const { return z > 0 ? z : z * slope; }
};

// How the lanes of a warp share (entry, head) pairs: lane % heads is the head, lane / heads the
// entry. If there are more heads than lanes, a lane has kHeadParts heads of one entry.
struct Pairs {
  int across, at_once, head, part;
  __device__ __forceinline__ explicit Pairs(int heads) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    across = heads < kWarp ? heads : kWarp;
    at_once = kWarp / across;
    head = lane % across;
    part = lane / across;
  }
  __device__ __forceinline__ bool there() const { return part < at_once; }
  // The value of the lane that has the same head and the entry `step` parts later; the lane's own
  // value if there is no such lane.
  __device__ __forceinline__ float on(float value, int step) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    return __shfl_sync(kAllLanes, value, part + step < at_once ? lane + step * across : lane);
  }
  // The sum over the entries. The lanes of part 0 get it.
  __device__ __forceinline__ float sum(float value) const {
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const float other = on(value, step);
      if (part + step < at_once) value += other;
    }
    return value;
  }
};

// The largest logit and the sum of exp(logit - largest). total = 0 stands for no logits.
struct Softmax {
  float top = kNone, total = 0;
  __device__ __forceinline__ void add(float z) {
    if (z > top) {
      total = total * expf(top - z) + 1;
      top = z;
    } else {
      total += expf(z - top);
    }
  }
  __device__ __forceinline__ void join(const Softmax& other) {
    if (other.total == 0) return;
    if (total == 0) {
      *this = other;
      return;
    }
    const float most = other.top > top ? other.top : top;
    total = total * expf(top - most) + other.total * expf(other.top - most);
    top = most;
  }
  __device__ __forceinline__ float log_sum() const { return total == 0 ? 0 : top + logf(total); }
};

// lse [V, heads]: log of the sum of exp(logit) over the edges into a node. parts [pieces, 2 heads].
template <class T>
__global__ void __launch_bounds__(kWalkThreads) sums_kernel(Walk walk, View<T> a, float* parts) {
  const Span span = span_of(walk);
  if (span.row < 0) return;
  const Pairs pairs(a.heads);
#pragma unroll
  for (int j = 0; j < kHeadParts; ++j) {
    if (j * kWarp >= a.heads) break;
    const int k = j * kWarp + pairs.head;
    Softmax sum;
    if (pairs.there() && k < a.heads)
      for (int64_t e = span.begin + pairs.part; e < span.end; e += pairs.at_once)
        sum.add(a.leaky(a.logit(walk.col[e], span.row, k)));
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const Softmax other{pairs.on(sum.top, step), pairs.on(sum.total, step)};
      if (pairs.part + step < pairs.at_once) sum.join(other);
    }
    if (pairs.part > 0 || k >= a.heads) continue;
    if (span.piece < 0) {
      a.lse[span.row * a.heads + k] = sum.log_sum();
    } else {
      parts[span.piece * 2 * a.heads + k] = sum.top;
      parts[(span.piece * 2 + 1) * a.heads + k] = sum.total;
    }
  }
}

template <class T>
__global__ void merge_sums_kernel(Walk walk, View<T> a, const float* parts) {
  for (int64_t i = first_index(); i < walk.long_count * a.heads; i += index_stride()) {
    const int64_t *row = walk.long_rows + 3 * (i / a.heads), k = i % a.heads;
    Softmax sum;
    for (int64_t p = row[1]; p < row[1] + row[2]; ++p)
      sum.join({parts[p * 2 * a.heads + k], parts[(p * 2 + 1) * a.heads + k]});
    a.lse[row[0] * a.heads + k] = sum.log_sum();
  }
}

enum class Pass {
  values,   // y[i] = sum of c h[j]
  targets,  // mean[i] = <dy[i], sum of c h[j]>, da_dst = <dy[i], sum of l c h[j]> - mean sum of l p
  sources,  // dh[j] = sum of c dy[i], da_src = <h[j], sum of l c dy[i]> - sum of l p mean[i]
};

// p is a coefficient before dropout, c after it, and l the slope of leaky_relu at its logit.
template <Pass pass, class T>
struct Out {
  T *vectors, *scores;  // y or dh [V, heads, F]; da_dst or da_src [V, heads]
};

// The features of two rows: the node that the warp works on, and the node at the other end of an
// edge.
template <Pass pass, class T>
__device__ __forceinline__ const T* here(const View<T>& a) {
  return pass == Pass::sources ? a.h : a.dy;
}
template <Pass pass, class T>
__device__ __forceinline__ const T* beyond(const View<T>& a) {
  return pass == Pass::sources ? a.dy : a.h;
}

// The part of one head in the result of a row, from the sums over its edges: the dot products of
// this row with the sums weighted by c and by l c, and the sum of l p (times mean[i] where the
// passes differ).
template <Pass pass, class T>
__device__ __forceinline__ void finish_head(const View<T>& a, const Out<pass, T>& out, int64_t row,
                                            int k, float by_c, float by_lc, float of_p) {
  if (pass == Pass::targets) {
    a.mean[row * a.heads + k] = by_c;
    of_p *= by_c;
  }
  out.scores[row * a.heads + k] = store<T>(by_lc - of_p);
}

// parts: [pieces, all] forward, [pieces, 2 all + heads] backward. They hold the sums weighted by c,
// by l c, and of p.
template <Pass pass, int kSize, class T>
__global__ void __launch_bounds__(kWalkThreads)
    edges_kernel(Walk walk, View<T> a, Out<pass, T> out, int lanes, float* parts) {
  constexpr bool kBackward = pass != Pass::values;
  __shared__ float shared_c[kWalkWarps][kBatch];
  __shared__ float shared_lc[kWalkWarps][kBackward ? kBatch : 1];
  __shared__ float shared_dot[kWalkWarps][2][kPacks * kWarp];
  const Span span = span_of(walk);
  if (span.row < 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  float *c = shared_c[warp], *lc = shared_lc[warp];
  const Pairs pairs(a.heads);
  const int batch = kBatch / a.heads, part = lane / lanes, step = kWarp / lanes;
  const int64_t stride = kBackward ? 2 * int64_t{a.all} + a.heads : a.all;
  float of_p[kHeadParts] = {}, dot_c[kHeadParts] = {}, dot_lc[kHeadParts] = {};
  for (int first = 0; first < a.all; first += kPacks * lanes * kSize) {
    float by_c[kPacks][kSize] = {}, by_lc[kPacks][kSize] = {};
    int feature[kPacks], head[kPacks];
#pragma unroll
    for (int q = 0; q < kPacks; ++q) {
      feature[q] = first + (q * lanes + lane % lanes) * kSize;
      head[q] = feature[q] / a.width;
    }
    for (int64_t base = span.begin; base < span.end; base += batch) {
      const int count = static_cast<int>(span.end - base < batch ? span.end - base : batch);
      __syncwarp();  // the previous batch has been read
#pragma unroll
      for (int j = 0; j < kHeadParts; ++j) {
        const int k = j * kWarp + pairs.head;
        if (!pairs.there() || k >= a.heads) continue;
        for (int i = pairs.part; i < count; i += pairs.at_once) {
          const int64_t e = base + i, other = walk.col[e];
          const int64_t source = pass == Pass::sources ? span.row : other,
                        target = pass == Pass::sources ? other : span.row;
          const float z = a.logit(source, target, k), slope = z > 0 ? 1 : a.slope;
          const float p = expf(a.leaky(z) - a.lse[target * a.heads + k]);
          float kept = p;
          if (a.drops) {
            const auto index = static_cast<uint64_t>(
                (pass == Pass::sources ? a.position[e] : e) * int64_t{a.heads} + k);
            const Words words = philox_words(cuda::advanced(a.key), index / 4);
            // Chosen by conditions, because an array with a variable index would be placed in
            // memory.
            const uint32_t low = index % 2 == 0 ? words.w[0] : words.w[1],
                           high = index % 2 == 0 ? words.w[2] : words.w[3];
            kept = (index % 4 < 2 ? low : high) >> 8 >= a.bound ? p * a.scale : 0;
          }
          c[i * a.heads + k] = kept;
          if (!kBackward) continue;
          lc[i * a.heads + k] = slope * kept;
          if (first == 0)
            of_p[j] += slope * p * (pass == Pass::sources ? a.mean[target * a.heads + k] : 1.0f);
        }
      }
      __syncwarp();
      for (int i = part; i < count; i += step) {
        const T* from = beyond<pass>(a) + walk.col[base + i] * int64_t{a.all};
#pragma unroll
        for (int q = 0; q < kPacks; ++q) {
          if (feature[q] >= a.all) continue;
          const Vec<T, kSize> x = load_vec<kSize>(from + feature[q]);
          const float w = c[i * a.heads + head[q]];
          const float lw = kBackward ? lc[i * a.heads + head[q]] : 0;
#pragma unroll
          for (int f = 0; f < kSize; ++f) {
            by_c[q][f] += w * load(x.at[f]);
            if (kBackward) by_lc[q][f] += lw * load(x.at[f]);
          }
        }
      }
    }
#pragma unroll
    for (int q = 0; q < kPacks; ++q) {
      add_parts(by_c[q], lanes);
      if (kBackward) add_parts(by_lc[q], lanes);
      float of_c = 0, of_lc = 0;
      if (part == 0 && feature[q] < a.all) {
        if (span.piece >= 0) {
          store_vec(parts + span.piece * stride + feature[q], by_c[q]);
          if (kBackward) store_vec(parts + span.piece * stride + a.all + feature[q], by_lc[q]);
        } else {
          const int64_t at = span.row * a.all + feature[q];
          if (pass != Pass::targets) store_vec(out.vectors + at, by_c[q]);
          if (kBackward) {
            const Vec<T, kSize> x = load_vec<kSize>(here<pass>(a) + at);
#pragma unroll
            for (int f = 0; f < kSize; ++f) {
              of_c += load(x.at[f]) * by_c[q][f];
              of_lc += load(x.at[f]) * by_lc[q][f];
            }
          }
        }
      }
      if (kBackward && part == 0) {
        shared_dot[warp][0][q * lanes + lane] = of_c;
        shared_dot[warp][1][q * lanes + lane] = of_lc;
      }
    }
    if (!kBackward) continue;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kHeadParts; ++j) {
      const int k = j * kWarp + lane;
      if (k >= a.heads) continue;
      const int begin = (k * a.width - first) / kSize, end = ((k + 1) * a.width - first) / kSize;
      for (int v = begin < 0 ? 0 : begin; v < end && v < kPacks * lanes; ++v) {
        dot_c[j] += shared_dot[warp][0][v];
        dot_lc[j] += shared_dot[warp][1][v];
      }
    }
    __syncwarp();
  }
  if constexpr (kBackward) {
#pragma unroll
    for (int j = 0; j < kHeadParts; ++j) {
      const float sum = pairs.sum(of_p[j]);
      const int k = j * kWarp + lane;  // the head, as in pairs.head of part 0
      if (pairs.part > 0 || k >= a.heads) continue;
      if (span.piece < 0)
        finish_head(a, out, span.row, k, dot_c[j], dot_lc[j], sum);
      else
        parts[span.piece * stride + 2 * int64_t{a.all} + k] = sum;
    }
  }
}

// One block for each long row.
template <Pass pass, class T>
__global__ void __launch_bounds__(kWalkThreads)
    merge_edges_kernel(Walk walk, View<T> a, Out<pass, T> out, float* parts) {
  constexpr bool kBackward = pass != Pass::values;
  const int64_t stride = kBackward ? 2 * int64_t{a.all} + a.heads : a.all;
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t i = blockIdx.x; i < walk.long_count; i += gridDim.x) {
    const int64_t *at = walk.long_rows + 3 * i, row = at[0];
    float* total = parts + at[1] * stride;  // the first piece becomes the sum of all
    for (int64_t f = threadIdx.x; f < stride; f += kWalkThreads) {
      float sum = 0;
#pragma unroll 8
      for (int64_t p = 0; p < at[2]; ++p) sum += total[p * stride + f];
      total[f] = sum;
      if (pass != Pass::targets && f < a.all) out.vectors[row * a.all + f] = store<T>(sum);
    }
    if (!kBackward) continue;
    __syncthreads();
    for (int k = warp; k < a.heads; k += kWalkWarps) {
      float of_c = 0, of_lc = 0;
      for (int f = k * a.width + lane; f < (k + 1) * a.width; f += kWarp) {
        const float x = load(here<pass>(a)[row * a.all + f]);
        of_c += x * total[f];
        of_lc += x * total[a.all + f];
      }
      of_c = across_warp(of_c, Sum<float>{});
      of_lc = across_warp(of_lc, Sum<float>{});
      if (lane == 0) finish_head(a, out, row, k, of_c, of_lc, total[2 * int64_t{a.all} + k]);
    }
  }
}

template <Pass pass, class T>
void walk_edges(const Csr& csr, const View<T>& a, const Out<pass, T>& out, bool packed,
                Device device) {
  const Walk walk = walk_of(csr);
  const int64_t stride = pass == Pass::values ? a.all : 2 * int64_t{a.all} + a.heads;
  constexpr int kSize = Pack<T>::kSize;
  // Pieces are stored in the vectors in which they are computed.
  const bool wide = packed && stride % kSize == 0;
  const Tensor parts = row_parts(walk.piece_count, stride, DType::f32, device);
  if (wide)
    launch(edges_kernel<pass, kSize, T>, {walk_blocks(walk), kWalkThreads}, walk, a, out,
           lanes_for(a.all, kPacks * kSize), parts.mut<float>());
  else
    launch(edges_kernel<pass, 1, T>, {walk_blocks(walk), kWalkThreads}, walk, a, out,
           lanes_for(a.all, kPacks), parts.mut<float>());
  if (walk.long_count > 0)
    launch(merge_edges_kernel<pass, T>,
           {blocks_for(walk.long_count * kWalkThreads, kWalkThreads), kWalkThreads}, walk, a, out,
           parts.mut<float>());
}

template <class T>
View<T> view_of(const Graph& graph, const Tensor& h, const Tensor& a_src, const Tensor& a_dst,
                const GraphAttentionSettings& s, const Tensor& lse) {
  View<T> a{};
  a.position = graph.edges.position.data<int32_t>();
  a.heads = static_cast<int>(h.size(1)), a.width = static_cast<int>(h.size(2));
  a.all = a.heads * a.width;
  a.h = h.data<T>(), a.a_src = a_src.data<T>(), a.a_dst = a_dst.data<T>();
  a.slope = static_cast<float>(s.slope);
  a.drops = s.dropout > 0;
  a.key = cuda::device_key(s.key);
  a.bound = static_cast<uint32_t>(std::ceil(s.dropout * 0x1p24));
  a.scale = s.dropout < 1 ? static_cast<float>(1 / (1 - s.dropout)) : 0.0f;
  a.lse = lse.mut<float>();
  return a;
}

template <class T>
void log_sums(const Graph& graph, const View<T>& a, Device device) {
  const Walk walk = walk_of(graph.edges.by_row);
  const Tensor parts = row_parts(walk.piece_count, 2 * a.heads, DType::f32, device);
  launch(sums_kernel<T>, {walk_blocks(walk), kWalkThreads}, walk, a, parts.mut<float>());
  if (walk.long_count > 0)
    launch(merge_sums_kernel<T>, {blocks_for(walk.long_count * a.heads)}, walk, a,
           parts.data<float>());
}

}  // namespace

void graph_attention_kernel(Cuda, const Graph& graph, const Tensor& h, const Tensor& a_src,
                            const Tensor& a_dst, const GraphAttentionSettings& settings,
                            const Tensor& y) {
  const Tensor lse = row_parts(graph.nodes, h.size(1), DType::f32, h.device());
  with_activation(h.dtype(), [&]<class T>(T) {
    const View<T> a = view_of<T>(graph, h, a_src, a_dst, settings, lse);
    log_sums(graph, a, h.device());
    walk_edges(graph.edges.by_row, a, Out<Pass::values, T>{y.mut<T>(), nullptr},
               packs<T>(a.width, {&h, &y}), h.device());
  });
}

void graph_attention_backward_kernel(Cuda, const Graph& graph, const Tensor& dy, const Tensor& h,
                                     const Tensor& a_src, const Tensor& a_dst,
                                     const GraphAttentionSettings& settings,
                                     const GraphAttentionGradients& out) {
  const Tensor lse = row_parts(graph.nodes, h.size(1), DType::f32, h.device()),
               mean = row_parts(graph.nodes, h.size(1), DType::f32, h.device());
  with_activation(h.dtype(), [&]<class T>(T) {
    View<T> a = view_of<T>(graph, h, a_src, a_dst, settings, lse);
    a.dy = dy.data<T>();
    a.mean = mean.mut<float>();
    log_sums(graph, a, h.device());
    const bool packed = packs<T>(a.width, {&h, &dy, &out.h});
    walk_edges(graph.edges.by_row, a, Out<Pass::targets, T>{nullptr, out.a_dst.mut<T>()}, packed,
               h.device());
    walk_edges(graph.edges.by_col, a, Out<Pass::sources, T>{out.h.mut<T>(), out.a_src.mut<T>()},
               packed, h.device());
  });
}

}  // namespace frugal::ops

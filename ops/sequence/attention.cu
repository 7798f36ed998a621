#include "ops/cuda/cuda_attention.h"
#include "ops/sequence/attention_cudnn.h"

namespace frugal::ops {
namespace cuda {
namespace {

// Writes y (unless it is null) and lse; given dy, also delta = <dy, y>.
template <class Tiles>
__global__ void __launch_bounds__(Tiles::kThreads)
    forward_kernel(Problem<typename Tiles::Element> p, int64_t tiles,
                   Rows<typename Tiles::Element> y) {
  using T = typename Tiles::Element;
  const Place at(tiles, p.heads);
  const int64_t t = (tiles - 1 - at.tile) * Tiles::kRows;  // with a causal mask, the tiles with the
                                                           // most keys begin first
  const Shared<Tiles> shared(1, 2);
  load_tile<Tiles, Tiles::kRows>(shared.rows[0], p.q.at(at.n, at.head, t), p.q.of_row, p.t - t, p.d,
                                 p.packs);
  Sums<Tiles> sum;
  clear(sum);
  RowSums<Tiles> softmax;
  const int64_t shared_head = at.head / p.group, end = end_of_keys(p, t, Tiles::kRows);
  int64_t s = begin_of_keys(p, at.n, t, Tiles::kRows, Tiles::kCols);
  for (; s < end; s += Tiles::kCols) {
    __syncthreads();  // the previous tiles have been read
    load_tile<Tiles, Tiles::kCols>(shared.cols[0], p.k.at(at.n, shared_head, s), p.k.of_row,
                                   p.s - s, p.d, p.packs);
    load_tile<Tiles, Tiles::kCols>(shared.cols[1], p.v.at(at.n, shared_head, s), p.v.of_row,
                                   p.s - s, p.d, p.packs);
    if (p.drops) draw<Tiles, Tiles::kRows, Tiles::kCols>(p, at, t, s, shared.kept);
    __syncthreads();
    Scores<Tiles> x;
    Tiles::by_transposed(shared.rows[0], shared.cols[0], x);
    mask_scores<Tiles, false>(p, at, t, s, x);
#pragma unroll
    for (int i = 0; i < Tiles::kMine; ++i) {
      const float rescale = softmax.add(i, x[i]);
#pragma unroll
      for (int j = 0; j < Tiles::kWide; ++j)
        if (p.drops)
          x[i][j] *= shared.kept[Tiles::row(i) * shared.kPitch + Tiles::col(j)] ? p.kept : 0;
#pragma unroll
      for (int j = 0; j < Tiles::kOut; ++j) sum[i][j] *= rescale;
    }
    Tiles::by(x, shared.cols[1], sum, shared.scratch);
  }
  softmax.finish();
#pragma unroll
  for (int i = 0; i < Tiles::kMine; ++i) {
    const float by = softmax.total[i] == 0 ? 0 : 1 / softmax.total[i];
#pragma unroll
    for (int j = 0; j < Tiles::kOut; ++j) sum[i][j] *= by;
  }
  const int64_t first = at.of_head(p) * p.t + t;
  if (y.data != nullptr) write_sums<Tiles>(sum, 1, y.at(at.n, at.head, t), y.of_row, p.t - t, p.d);
#pragma unroll
  for (int i = 0; i < Tiles::kMine; ++i) {
    const int row = Tiles::row(i);
    const bool there = row < p.t - t, writes = threadIdx.x % Tiles::kLanes == 0;
    if (there && writes)
      p.lse[first + row] =
          softmax.total[i] == 0 ? -kHidden : softmax.top[i] + logf(softmax.total[i]);
    if (p.delta == nullptr) continue;
    float delta = 0;
    if (there) {
      const T* dy = p.dy.at(at.n, at.head, t + row);
#pragma unroll
      for (int j = 0; j < Tiles::kOut; ++j)
        if (Tiles::out_col(j) < p.d) delta += load(dy[Tiles::out_col(j)]) * sum[i][j];
    }
    delta = across_row<Tiles>(delta, Sum<float>{});
    if (there && writes) p.delta[first + row] = delta;
  }
}

}  // namespace

void attention_forward(const AttentionProblem& p, const Tensor& y, const Tensor& dy,
                       const Tensor& lse, const Tensor& delta) {
  with_tiles<true>(p, [&]<class Tiles>(Tiles) {
    using T = typename Tiles::Element;
    const int64_t tiles = tiles_for(p.t, Tiles::kRows);
    launch(forward_kernel<Tiles>, grid_of<Tiles>(p.n * p.heads * tiles, 1, 2),
           on_device<T>(p, dy, lse, delta), tiles, mut_rows<T>(y));
  });
}

}  // namespace cuda

void attention_kernel(Cuda, const AttentionProblem& p, const AttentionOutput& out) {
  if (attention_by_cudnn(p, out)) return;
  cuda::attention_forward(p, out.y, {}, out.lse, {});
}

}  // namespace frugal::ops

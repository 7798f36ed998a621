#include <algorithm>

#include "ops/cuda/cuda_attention.h"
#include "ops/dense/copy.h"
#include "ops/sequence/attention_cudnn.h"

namespace frugal::ops {
namespace {

using namespace cuda;

// delta = <dy, y> of each row, with one warp for each row.
template <class T>
__global__ void delta_kernel(Problem<T> p, Rows<const T> y, int64_t rows) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t i = first_index() / kWarp; i < rows; i += index_stride() / kWarp) {
    const int64_t t = i % p.t, head = i / p.t % p.heads, n = i / p.t / p.heads;
    const T *a = p.dy.at(n, head, t), *b = y.at(n, head, t);
    float sum = 0;
    for (int k = lane; k < p.d; k += kWarp) sum += load(a[k]) * load(b[k]);
    sum = across_warp(sum, Sum<float>{});
    if (lane == 0) p.delta[i] = sum;
  }
}

// Sums the exponentials of coarse rows again, and writes what their lse lacks of the logarithm, in
// units of log2. Other rows get 0.
template <class Tiles>
__global__ void __launch_bounds__(Tiles::kThreads)
    rest_kernel(Problem<typename Tiles::Element> p, int64_t tiles) {
  const Place at(tiles, p.heads);
  const int64_t t = (tiles - 1 - at.tile) * Tiles::kRows, first = at.of_head(p) * p.t + t;
  // Each warp looks at all rows of the tile, so all threads of the block agree.
  bool coarse = false;
  for (int row = static_cast<int>(threadIdx.x) % kWarp; row < Tiles::kRows; row += kWarp)
    coarse = coarse || (row < p.t - t && is_coarse(p.lse[first + row]));
  RowSums<Tiles> softmax;
  if (__any_sync(kAllLanes, coarse)) {
    const Shared<Tiles> shared(1, 1);
    load_tile<Tiles, Tiles::kRows>(shared.rows[0], p.q.at(at.n, at.head, t), p.q.of_row, p.t - t,
                                   p.d, p.packs);
    const int64_t key_head = at.head / p.group, end = end_of_keys(p, t, Tiles::kRows);
    int64_t s = begin_of_keys(p, at.n, t, Tiles::kRows, Tiles::kCols);
    for (; s < end; s += Tiles::kCols) {
      __syncthreads();
      load_tile<Tiles, Tiles::kCols>(shared.cols[0], p.k.at(at.n, key_head, s), p.k.of_row, p.s - s,
                                     p.d, p.packs);
      __syncthreads();
      Scores<Tiles> x;
      Tiles::by_transposed(shared.rows[0], shared.cols[0], x);
      mask_scores<Tiles, false>(p, at, t, s, x);
#pragma unroll
      for (int i = 0; i < Tiles::kMine; ++i) softmax.add(i, x[i]);
    }
    softmax.finish();
  }
  if (threadIdx.x % Tiles::kLanes != 0) return;
#pragma unroll
  for (int i = 0; i < Tiles::kMine; ++i) {
    const int row = Tiles::row(i);
    if (row >= p.t - t) continue;
    const float lse = p.lse[first + row], total = softmax.total[i];
    // The difference comes first: it is exact, and lse + log(total) would be lse again.
    p.rest[first + row] =
        !is_coarse(lse) || total == 0 ? 0 : (softmax.top[i] - lse + logf(total)) * kLog2e;
  }
}

// lse, rest and delta of the queries of a thread. Rows beyond the last get values that make their
// gradients 0.
template <class A>
struct Stats {
  float lse[A::kQueryParts], rest[A::kQueryParts], delta[A::kQueryParts];
  template <class T>
  __device__ __forceinline__ void load_from(const Problem<T>& p, const Place& at, int64_t t) {
    const int64_t first = at.of_head(p) * p.t + t;
#pragma unroll
    for (int part = 0; part < A::kQueryParts; ++part) {
      const bool there = A::query(part) < p.t - t;
      lse[part] = there ? p.lse[first + A::query(part)] : -kHidden;
      rest[part] = there ? p.rest[first + A::query(part)] : 0;
      delta[part] = there ? p.delta[first + A::query(part)] : 0;
    }
  }
};

// P: the probabilities, f: the factors of dropout. On entry x holds the scores and g holds dy v^T.
// x becomes P f, and g becomes the gradient of the scores, P (f g - delta).
template <class Tiles, bool kKeysInRows, class T>
__device__ __forceinline__ void score_gradients(const Problem<T>& p,
                                                const Stats<Axes<Tiles, kKeysInRows>>& stats,
                                                const uint8_t* kept, Scores<Tiles>& x,
                                                Scores<Tiles>& g) {
  using A = Axes<Tiles, kKeysInRows>;
#pragma unroll
  for (int i = 0; i < Tiles::kMine; ++i)
#pragma unroll
    for (int j = 0; j < Tiles::kWide; ++j) {
      const int part = A::query_part(i, j);
      const float score = x[i][j];
      const float weight = exp2f((score - stats.lse[part]) * kLog2e - stats.rest[part]);
      float factor = 1;
      if (p.drops)
        factor =
            kept[A::query(part) * Shared<Tiles>::kPitch + A::key(A::key_part(i, j))] ? p.kept : 0;
      x[i][j] = weight * factor;
      g[i][j] = weight * (factor * g[i][j] - stats.delta[part]);
      if (p.cap > 0) {
        const float share = score / p.cap;
        g[i][j] *= score == kHidden ? 0 : 1 - share * share;
      }
    }
}

template <class Tiles>
__global__ void __launch_bounds__(Tiles::kThreads)
    query_gradient_kernel(Problem<typename Tiles::Element> p, int64_t tiles,
                          Rows<typename Tiles::Element> dq) {
  using A = Axes<Tiles, false>;
  const Place at(tiles, p.heads);
  const int64_t t = (tiles - 1 - at.tile) * Tiles::kRows;
  const Shared<Tiles> shared(2, 2);
  load_tile<Tiles, Tiles::kRows>(shared.rows[0], p.q.at(at.n, at.head, t), p.q.of_row, p.t - t, p.d,
                                 p.packs);
  load_tile<Tiles, Tiles::kRows>(shared.rows[1], p.dy.at(at.n, at.head, t), p.dy.of_row, p.t - t,
                                 p.d, p.packs);
  Stats<A> stats;
  stats.load_from(p, at, t);
  Sums<Tiles> sum;
  clear(sum);
  const int64_t key_head = at.head / p.group, end = end_of_keys(p, t, Tiles::kRows);
  int64_t s = begin_of_keys(p, at.n, t, Tiles::kRows, Tiles::kCols);
  for (; s < end; s += Tiles::kCols) {
    __syncthreads();
    load_tile<Tiles, Tiles::kCols>(shared.cols[0], p.k.at(at.n, key_head, s), p.k.of_row, p.s - s,
                                   p.d, p.packs);
    load_tile<Tiles, Tiles::kCols>(shared.cols[1], p.v.at(at.n, key_head, s), p.v.of_row, p.s - s,
                                   p.d, p.packs);
    if (p.drops) draw<Tiles, A::kQueries, A::kKeys>(p, at, t, s, shared.kept);
    __syncthreads();
    Scores<Tiles> x, g;
    Tiles::by_transposed(shared.rows[0], shared.cols[0], x);
    mask_scores<Tiles, false>(p, at, t, s, x);
    Tiles::by_transposed(shared.rows[1], shared.cols[1], g);
    score_gradients<Tiles, false>(p, stats, shared.kept, x, g);
    Tiles::by(g, shared.cols[0], sum, shared.scratch);
  }
  write_sums<Tiles>(sum, p.scale, dq.at(at.n, at.head, t), dq.of_row, p.t - t, p.d);
}

// Walks over the queries of head at.head that see the tile of keys from `s` on, which is in
// shared.rows, adds the tile's dk and dv to the sums, and calls use(t, g) for the gradient of each
// tile of scores.
template <class Tiles, bool kKeys, bool kValues, class T, class F>
__device__ __forceinline__ void walk_queries(const Problem<T>& p, const Place& at, int64_t s,
                                             const Shared<Tiles>& shared, Sums<Tiles>& of_k,
                                             Sums<Tiles>& of_v, const F& use) {
  using A = Axes<Tiles, true>;
  // the first query that sees the tile
  const int64_t sees = p.causal && s > p.s - p.t ? s - (p.s - p.t) : 0;
  // the end of those that see its last key
  const int64_t last = s + Tiles::kRows - 1 + p.window - (p.s - p.t);
  const int64_t end = p.window > 0 && last < p.t ? last : p.t;
  for (int64_t t = sees / Tiles::kCols * Tiles::kCols; t < end; t += Tiles::kCols) {
    // No query of this tile sees a key of the other.
    if (p.reach != nullptr && first_reached(p, at.n, t, Tiles::kCols) >= s + Tiles::kRows) continue;
    __syncthreads();
    load_tile<Tiles, Tiles::kCols>(shared.cols[0], p.q.at(at.n, at.head, t), p.q.of_row, p.t - t,
                                   p.d, p.packs);
    load_tile<Tiles, Tiles::kCols>(shared.cols[1], p.dy.at(at.n, at.head, t), p.dy.of_row, p.t - t,
                                   p.d, p.packs);
    if (p.drops) draw<Tiles, A::kQueries, A::kKeys>(p, at, t, s, shared.kept);
    Stats<A> stats;
    stats.load_from(p, at, t);
    __syncthreads();
    Scores<Tiles> x, g;
    Tiles::by_transposed(shared.rows[0], shared.cols[0], x);
    mask_scores<Tiles, true>(p, at, t, s, x);
    Tiles::by_transposed(shared.rows[1], shared.cols[1], g);
    score_gradients<Tiles, true>(p, stats, shared.kept, x, g);
    if constexpr (kValues) Tiles::by(x, shared.cols[1], of_v, shared.scratch);
    if constexpr (kKeys) Tiles::by(g, shared.cols[0], of_k, shared.scratch);
    use(t, g);
  }
}

// at.head: a head of k and v.
template <class Tiles, class T>
__device__ __forceinline__ void load_keys(const Problem<T>& p, const Place& at, int64_t s,
                                          const Shared<Tiles>& shared) {
  load_tile<Tiles, Tiles::kRows>(shared.rows[0], p.k.at(at.n, at.head, s), p.k.of_row, p.s - s, p.d,
                                 p.packs);
  load_tile<Tiles, Tiles::kRows>(shared.rows[1], p.v.at(at.n, at.head, s), p.v.of_row, p.s - s, p.d,
                                 p.packs);
}

// The place of the i-th head of q that shares the head `at` of k and v.
template <class T>
__device__ __forceinline__ Place of_queries(const Problem<T>& p, Place at, int64_t i) {
  at.head = at.head * p.group + i;
  return at;
}

// Computes dk and dv; either may be null. Where registers do not hold the sums of both, a launch
// computes one of them.
template <class Tiles, bool kKeys, bool kValues>
__global__ void __launch_bounds__(Tiles::kThreads)
    key_gradient_kernel(Problem<typename Tiles::Element> p, int64_t tiles,
                        Rows<typename Tiles::Element> dk, Rows<typename Tiles::Element> dv) {
  const Place at(tiles, p.key_heads);
  const int64_t s = at.tile * Tiles::kRows;
  const Shared<Tiles> shared(2, 2);
  load_keys<Tiles>(p, at, s, shared);
  Sums<Tiles> of_k, of_v;
  if constexpr (kKeys) clear(of_k);
  if constexpr (kValues) clear(of_v);
  for (int64_t i = 0; i < p.group; ++i)
    walk_queries<Tiles, kKeys, kValues>(p, of_queries(p, at, i), s, shared, of_k, of_v,
                                        [](int64_t, const Scores<Tiles>&) {});
  if constexpr (kKeys)
    if (dk.data != nullptr)
      write_sums<Tiles>(of_k, p.scale, dk.at(at.n, at.head, s), dk.of_row, p.s - s, p.d);
  if constexpr (kValues)
    if (dv.data != nullptr)
      write_sums<Tiles>(of_v, 1, dv.at(at.n, at.head, s), dv.of_row, p.s - s, p.d);
}

// All three gradients with five products for each tile of scores. Kernels apart take seven, because
// each makes the scores and their gradients anew. A block takes `many` tiles of keys of one head
// of k and v in turn, and adds what each gives to dq of the heads that share it, where nobody else
// adds. dq is 0 before; where several blocks take tiles of one head, each has a dq of its own,
// `of_part` elements behind the one before.
template <class Tiles>
__global__ void __launch_bounds__(Tiles::kThreads)
    all_gradients_kernel(Problem<float> p, int64_t tiles, int64_t parts, int64_t many,
                         Rows<float> dq, int64_t of_part, Rows<float> dk, Rows<float> dv) {
  const Place at(parts, p.key_heads);
  dq.data += at.tile * of_part;
  const Shared<Tiles> shared(2, 2);
  for (int64_t tile = at.tile * many; tile < at.tile * many + many && tile < tiles; ++tile) {
    const int64_t s = tile * Tiles::kRows;
    __syncthreads();
    load_keys<Tiles>(p, at, s, shared);
    Sums<Tiles> of_k, of_v;
    clear(of_k);
    clear(of_v);
    for (int64_t i = 0; i < p.group; ++i) {
      const Place query = of_queries(p, at, i);
      walk_queries<Tiles, true, true>(
          p, query, s, shared, of_k, of_v, [&](int64_t t, const Scores<Tiles>& g) {
            Sums<Tiles> of_q;
            clear(of_q);
            Tiles::by_turned(g, shared.rows[0], of_q, shared.scratch);
            add_sums<Tiles>(of_q, p.scale, dq.at(query.n, query.head, t), dq.of_row, p.t - t, p.d);
          });
    }
    write_sums<Tiles>(of_k, p.scale, dk.at(at.n, at.head, s), dk.of_row, p.s - s, p.d);
    write_sums<Tiles>(of_v, 1, dv.at(at.n, at.head, s), dv.of_row, p.s - s, p.d);
  }
}

// to [chunks, heads, T, S]: a tile of the gradient of the scores, added over the sequences of a
// chunk.
template <class Tiles>
__global__ void __launch_bounds__(Tiles::kThreads)
    bias_gradient_kernel(Problem<typename Tiles::Element> p, int64_t query_tiles, int64_t key_tiles,
                         int64_t sequences, int64_t chunk, float* to) {
  using A = Axes<Tiles, false>;
  Place at(query_tiles * key_tiles, p.heads);
  const int64_t number = at.n, end = number * chunk + chunk;
  const int64_t t = at.tile / key_tiles * Tiles::kRows, s = at.tile % key_tiles * Tiles::kCols;
  const Shared<Tiles> shared(2, 2);
  Scores<Tiles> sum;
  clear(sum);
  for (at.n = number * chunk; at.n < end && at.n < sequences; ++at.n) {
    __syncthreads();
    load_tile<Tiles, Tiles::kRows>(shared.rows[0], p.q.at(at.n, at.head, t), p.q.of_row, p.t - t,
                                   p.d, p.packs);
    load_tile<Tiles, Tiles::kRows>(shared.rows[1], p.dy.at(at.n, at.head, t), p.dy.of_row, p.t - t,
                                   p.d, p.packs);
    load_tile<Tiles, Tiles::kCols>(shared.cols[0], p.k.at(at.n, at.head / p.group, s), p.k.of_row,
                                   p.s - s, p.d, p.packs);
    load_tile<Tiles, Tiles::kCols>(shared.cols[1], p.v.at(at.n, at.head / p.group, s), p.v.of_row,
                                   p.s - s, p.d, p.packs);
    if (p.drops) draw<Tiles, A::kQueries, A::kKeys>(p, at, t, s, shared.kept);
    Stats<A> stats;
    stats.load_from(p, at, t);
    __syncthreads();
    Scores<Tiles> x, g;
    Tiles::by_transposed(shared.rows[0], shared.cols[0], x);
    mask_scores<Tiles, false>(p, at, t, s, x);
    Tiles::by_transposed(shared.rows[1], shared.cols[1], g);
    score_gradients<Tiles, false>(p, stats, shared.kept, x, g);
#pragma unroll
    for (int i = 0; i < Tiles::kMine; ++i)
#pragma unroll
      for (int j = 0; j < Tiles::kWide; ++j) sum[i][j] += g[i][j];
  }
#pragma unroll
  for (int i = 0; i < Tiles::kMine; ++i)
#pragma unroll
    for (int j = 0; j < Tiles::kWide; ++j) {
      const int64_t query = t + Tiles::row(i), key = s + Tiles::col(j);
      if (query < p.t && key < p.s)
        to[((number * p.heads + at.head) * p.t + query) * p.s + key] = sum[i][j];
    }
}

struct AddChunks {
  const float* from;
  float* to;
  int64_t chunks, n;
  __device__ void operator()(int64_t i) const {
    float sum = 0;
    for (int64_t c = 0; c < chunks; ++c) sum += from[c * n + i];
    to[i] = sum;
  }
};

// to [N, T, heads, D] with the strides of dq: the sum of the parts, which are contiguous.
struct AddParts {
  const float* from;
  Rows<float> to;
  int64_t parts, t, heads, d, n;
  __device__ void operator()(int64_t i) const {
    float sum = 0;
    for (int64_t part = 0; part < parts; ++part) sum += from[part * n + i];
    const int64_t head = i / d % heads, row = i / d / heads % t;
    to.at(i / d / heads / t, head, row)[i % d] = sum;
  }
};

// On tensor cores, the two products that this saves last no longer than adding tiles of dq in
// memory, so only f32 without them goes this way.
template <class Tiles>
void all_gradients(const AttentionProblem& p, const Problem<float>& problem,
                   const AttentionGradients& to) {
  constexpr int64_t kBlocks = 256;  // enough for large GPUs, where a multiprocessor holds two or so
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  const int64_t tiles = tiles_for(p.s, Tiles::kRows), heads = p.n * p.key_heads, n = p.q.numel();
  const int64_t wanted =
      std::min(tiles_for(kBlocks, heads), std::max<int64_t>(kMostBytes / (4 * n), 1));
  const int64_t many = tiles_for(tiles, std::clamp<int64_t>(wanted, 1, tiles));
  const int64_t parts = tiles_for(tiles, many);
  Tensor sums = to.dq;
  if (parts > 1) {
    const CategoryScope scope(Category::workspace);
    sums = Tensor::empty({parts * p.n, p.t, p.heads, p.d}, DType::f32, p.q.device());
  }
  fill_kernel(Cuda{}, sums, 0);
  launch(all_gradients_kernel<Tiles>, grid_of<Tiles>(heads * parts, 2, 2), problem, tiles, parts,
         many, mut_rows<float>(sums), n, mut_rows<float>(to.dk), mut_rows<float>(to.dv));
  if (parts > 1)
    for_each(n, AddParts{sums.data<float>(), mut_rows<float>(to.dq), parts, p.t, p.heads, p.d, n});
}

template <class Tiles, class T>
void bias_gradient(const AttentionProblem& p, const Problem<T>& problem, const Tensor& dbias) {
  constexpr int64_t kBlocks = 1024;  // a few for each multiprocessor
  const int64_t query_tiles = tiles_for(p.t, Tiles::kRows),
                key_tiles = tiles_for(p.s, Tiles::kCols), tiles = p.heads * query_tiles * key_tiles;
  const int64_t wanted = std::clamp<int64_t>(kBlocks / tiles, 1, p.n);
  const int64_t chunk = tiles_for(p.n, wanted), chunks = tiles_for(p.n, chunk);
  Tensor parts = dbias;
  if (chunks > 1) {
    CategoryScope scope(Category::workspace);
    parts = Tensor::empty({chunks, p.heads, p.t, p.s}, DType::f32, p.q.device());
  }
  launch(bias_gradient_kernel<Tiles>, grid_of<Tiles>(tiles * chunks, 2, 2), problem, query_tiles,
         key_tiles, p.n, chunk, parts.mut<float>());
  if (chunks > 1)
    for_each(dbias.numel(),
             AddChunks{parts.data<float>(), dbias.mut<float>(), chunks, dbias.numel()});
}

}  // namespace

void attention_backward_kernel(Cuda, const Tensor& dy, const AttentionProblem& p,
                               const AttentionOutput& out, const AttentionGradients& to) {
  if (p.n * p.heads == 0 || p.t * p.s == 0) {
    for (const Tensor* x : {&to.dq, &to.dk, &to.dv, &to.dbias})
      if (x->defined()) fill_kernel(Cuda{}, *x, 0);
    return;
  }
  if (attention_backward_by_cudnn(dy, p, out, to)) return;
  Tensor lse = out.lse, delta, rest;
  {
    CategoryScope scope(Category::workspace);
    const Shape rows{p.n, p.heads, p.t};
    delta = Tensor::empty(rows, DType::f32, p.q.device());
    rest = Tensor::empty(rows, DType::f32, p.q.device());
    if (!out.y.defined()) lse = Tensor::empty(rows, DType::f32, p.q.device());
  }
  if (!out.y.defined()) attention_forward(p, {}, dy, lse, delta);
  with_tiles<false>(p, [&]<class Tiles>(Tiles) {
    using T = typename Tiles::Element;
    Problem<T> problem = on_device<T>(p, dy, lse, delta);
    problem.rest = rest.mut<float>();
    const int64_t rows = p.n * p.heads * p.t;
    if (out.y.defined())
      launch(delta_kernel<T>, {blocks_for(rows * kWarp)}, problem, rows_of<T>(out.y), rows);
    const int64_t query_tiles = tiles_for(p.t, Tiles::kRows),
                  key_tiles = tiles_for(p.s, Tiles::kRows);
    launch(rest_kernel<Tiles>, grid_of<Tiles>(p.n * p.heads * query_tiles, 1, 1), problem,
           query_tiles);
    if constexpr (Tiles::kTurns)
      if (to.dq.defined() && to.dk.defined() && to.dv.defined()) {
        all_gradients<Tiles>(p, problem, to);
        if (to.dbias.defined()) bias_gradient<Tiles>(p, problem, to.dbias);
        return;
      }
    if (to.dq.defined())
      launch(query_gradient_kernel<Tiles>, grid_of<Tiles>(p.n * p.heads * query_tiles, 2, 2),
             problem, query_tiles, mut_rows<T>(to.dq));
    const auto of_keys = [&](auto kernel) {
      launch(kernel, grid_of<Tiles>(p.n * p.key_heads * key_tiles, 2, 2), problem, key_tiles,
             mut_rows<T>(to.dk), mut_rows<T>(to.dv));
    };
    if constexpr (Tiles::kD > 128) {
      if (to.dk.defined()) of_keys(key_gradient_kernel<Tiles, true, false>);
      if (to.dv.defined()) of_keys(key_gradient_kernel<Tiles, false, true>);
    } else if (to.dk.defined() || to.dv.defined()) {
      of_keys(key_gradient_kernel<Tiles, true, true>);
    }
    if (to.dbias.defined()) bias_gradient<Tiles>(p, problem, to.dbias);
  });
}

}  // namespace frugal::ops

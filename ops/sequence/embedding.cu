#include "ops/sequence/embedding.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "ops/cuda/cuda_row_teams.h"
#include "ops/dense/copy.h"

// The host reads nothing back, so it cannot refuse an id out of range. The row of that id is NaN,
// and it adds nothing to the gradient.
namespace frugal::ops {
namespace {

using namespace cuda;

template <class Kind>
__global__ void __launch_bounds__(Kind::kThreads)
    gather_rows(const int64_t* ids, const typename Kind::T* table, int64_t n, int64_t vocabulary,
                int64_t width, typename Kind::T* y) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * Kind::kTeams;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * Kind::kTeams + Kind::team(); i < n;
       i += stride) {
    const int64_t id = ids[i];
    const bool valid = id >= 0 && id < vocabulary;
    const float poison = valid ? 0 : std::numeric_limits<float>::quiet_NaN();
    Row<Kind>(table + (valid ? id : 0) * width, width).map(y + i * width, [=](int64_t, float v) {
      return valid ? v : poison;
    });
  }
}

// ---- Sorts positions by id with a radix sort of eight bits a pass; equal ids keep their order.

constexpr int kDigits = 256, kSortThreads = 256, kSortWarps = kSortThreads / kWarp;
constexpr int64_t kTile = 16 * kSortThreads;  // positions that a block takes

struct Keys {
  const int64_t* ids;
  int64_t vocabulary, padding;
  // Ids without a gradient come last.
  __device__ __forceinline__ int64_t operator()(int64_t position) const {
    const int64_t id = ids[position];
    return id >= 0 && id < vocabulary && id != padding ? id : vocabulary;
  }
  __device__ __forceinline__ int digit(int64_t position, int shift) const {
    return static_cast<int>((*this)(position) >> shift & (kDigits - 1));
  }
};

__device__ __forceinline__ int64_t position_at(const int64_t* order, int64_t i) {
  return order != nullptr ? order[i] : i;  // the first pass sorts the positions 0, 1, ...
}

// counts [kDigits, blocks]
__global__ void __launch_bounds__(kSortThreads)
    count_digits(Keys keys, const int64_t* order, int64_t n, int shift, int64_t* counts) {
  __shared__ int of_block[kDigits];
  const int t = static_cast<int>(threadIdx.x);
  of_block[t] = 0;
  __syncthreads();
  const int64_t begin = blockIdx.x * kTile, end = begin + kTile < n ? begin + kTile : n;
  for (int64_t i = begin + t; i < end; i += kSortThreads)
    atomicAdd(&of_block[keys.digit(position_at(order, i), shift)], 1);
  __syncthreads();
  counts[int64_t{t} * gridDim.x + blockIdx.x] = of_block[t];
}

// Each count becomes the sum of the counts before it. Runs in one block.
__global__ void __launch_bounds__(kSortThreads) sum_before(int64_t* counts, int64_t n) {
  __shared__ int64_t of_threads[kSortThreads];
  const int t = static_cast<int>(threadIdx.x);
  const int64_t each = (n + kSortThreads - 1) / kSortThreads, begin = t * each;
  const int64_t end = begin + each < n ? begin + each : n;
  int64_t sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += counts[i];
  of_threads[t] = sum;
  __syncthreads();
  int64_t before = 0;
  for (int other = 0; other < t; ++other) before += of_threads[other];
  for (int64_t i = begin; i < end; ++i) {
    const int64_t count = counts[i];
    counts[i] = before;
    before += count;
  }
}

__global__ void __launch_bounds__(kSortThreads)
    place_digits(Keys keys, const int64_t* order, int64_t n, int shift, const int64_t* before,
                 int64_t* sorted) {
  __shared__ int of_warps[kSortWarps][kDigits];
  __shared__ int64_t next[kDigits];
  const int t = static_cast<int>(threadIdx.x), warp = t / kWarp, lane = t % kWarp;
  next[t] = before[int64_t{t} * gridDim.x + blockIdx.x];
  const int64_t begin = blockIdx.x * kTile, end = begin + kTile < n ? begin + kTile : n;
  for (int64_t round = begin; round < end; round += kSortThreads) {
    for (int w = 0; w < kSortWarps; ++w) of_warps[w][t] = 0;
    __syncthreads();
    const int64_t i = round + t;
    const bool inside = i < end;
    const int64_t position = inside ? position_at(order, i) : 0;
    const int digit = inside ? keys.digit(position, shift) : 0;
    unsigned same = __ballot_sync(kAllLanes, inside);  // lanes that have this digit
    for (int bit = 0; bit < 8; ++bit) {
      const unsigned set = __ballot_sync(kAllLanes, digit >> bit & 1);
      same &= (digit >> bit & 1) != 0 ? set : ~set;
    }
    const int rank = __popc(same & ((1u << lane) - 1));
    if (inside && rank == 0) of_warps[warp][digit] = __popc(same);
    __syncthreads();
    int of_earlier = 0;
    for (int w = 0; w < warp; ++w) of_earlier += of_warps[w][digit];
    if (inside) sorted[next[digit] + of_earlier + rank] = position;
    __syncthreads();
    for (int w = 0; w < kSortWarps; ++w) next[t] += of_warps[w][t];
  }
}

// [n] i64
Tensor sorted_positions(const Keys& keys, int64_t n, Device device) {
  const int64_t blocks = ceil_div(n, kTile);
  const Tensor counts = Tensor::empty({kDigits, blocks}, DType::i64, device);
  Tensor from, to = Tensor::empty({n}, DType::i64, device);
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(keys.vocabulary)));
  const Grid grid{as_blocks(blocks), kSortThreads};
  for (int shift = 0; shift < bits || !from.defined(); shift += 8) {
    const int64_t* order = from.defined() ? from.data<int64_t>() : nullptr;
    launch(count_digits, grid, keys, order, n, shift, counts.mut<int64_t>());
    launch(sum_before, {dim3(1), kSortThreads}, counts.mut<int64_t>(), counts.numel());
    launch(place_digits, grid, keys, order, n, shift, counts.data<int64_t>(), to.mut<int64_t>());
    Tensor spare = from.defined() ? from : Tensor::empty({n}, DType::i64, device);
    from = to;
    to = spare;
  }
  return from;
}

// ---- Sums of the rows of dy whose ids are equal, over pieces of kPiece sorted positions. The sum
// of equal ids within one piece goes to the result. Where equal ids cross pieces, each piece adds
// its part to `parts` [pieces, 2, width] f32: part 0 for ids that began in an earlier piece, part 1
// for ids that continue in a later one.

constexpr int64_t kPiece = 64;
constexpr int kRunThreads = 256;

template <class T>
struct Runs {
  Keys keys;
  const int64_t* order;
  const T* dy;
  int64_t n, width;
  float* parts;
  T* dweight;
  __device__ __forceinline__ int64_t key(int64_t i) const { return keys(order[i]); }
};

template <class T, int N>
__global__ void __launch_bounds__(kRunThreads) add_runs(Runs<T> p) {
  __shared__ int64_t position[kPiece], key[kPiece];
  const int64_t begin = blockIdx.x * kPiece, vocabulary = p.keys.vocabulary;
  const int64_t end = begin + kPiece < p.n ? begin + kPiece : p.n;
  for (int64_t i = begin + threadIdx.x; i < end; i += kRunThreads) {
    position[i - begin] = p.order[i];
    key[i - begin] = p.keys(p.order[i]);
  }
  __syncthreads();
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kRunThreads + threadIdx.x) * N;
  if (column >= p.width) return;
  const int count = static_cast<int>(end - begin);
  const bool from_before = begin > 0 && p.key(begin - 1) == key[0];
  const bool goes_on = end < p.n && p.key(end) == key[count - 1];
  Floats<N> sum{};
  for (int i = 0, first = 0; i < count && key[i] < vocabulary; ++i) {
    const Floats<N> row = get<N>(p.dy + position[i] * p.width + column);
#pragma unroll
    for (int k = 0; k < N; ++k) sum.at[k] += row.at[k];
    if (i + 1 < count && key[i + 1] == key[i]) continue;
    float* part = p.parts + 2 * static_cast<int64_t>(blockIdx.x) * p.width + column;
    if (first == 0 && from_before)
      put<N>(part, sum);
    else if (i + 1 == count && goes_on)
      put<N>(part + p.width, sum);
    else
      put<N>(p.dweight + key[i] * p.width + column, sum);
    sum = Floats<N>{};
    first = i + 1;
  }
}

// Adds the parts of equal ids that cross pieces. The block of the piece in which they begin does
// that.
template <class T, int N>
__global__ void __launch_bounds__(kRunThreads) join_runs(Runs<T> p) {
  const int64_t begin = blockIdx.x * kPiece, end = begin + kPiece;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kRunThreads + threadIdx.x) * N;
  if (column >= p.width || end >= p.n) return;
  const int64_t key = p.key(end - 1);
  if (key == p.keys.vocabulary || p.key(end) != key) return;
  // These ids began in an earlier piece, whose block adds them.
  if (begin > 0 && p.key(begin) == key && p.key(begin - 1) == key) return;
  const float* part = p.parts + 2 * static_cast<int64_t>(blockIdx.x) * p.width + column;
  Floats<N> sum = get<N>(part + p.width);
#pragma unroll 4
  for (int64_t first = end; first < p.n && p.key(first) == key; first += kPiece) {
    part += 2 * p.width;
    const Floats<N> more = get<N>(part);
#pragma unroll
    for (int k = 0; k < N; ++k) sum.at[k] += more.at[k];
  }
  put<N>(p.dweight + key * p.width + column, sum);
}

}  // namespace

void embedding_kernel(Cuda, const Tensor& ids, const Tensor& weight, const Tensor& y) {
  if (y.numel() == 0) return;
  const int64_t width = weight.size(1), n = ids.numel();
  with_activation(weight.dtype(), [&]<class T>(T) {
    with_pass_kind<T>(width, {&weight, &y}, [&]<class Kind>(Kind kind) {
      launch(gather_rows<Kind>, grid_of_rows(kind, n), ids.data<int64_t>(), weight.data<T>(), n,
             weight.size(0), width, y.mut<T>());
    });
  });
}

void embedding_backward_kernel(Cuda, const Tensor& dy, const Tensor& ids, int64_t padding_idx,
                               const Tensor& dweight) {
  fill_kernel(Cuda{}, dweight, 0);
  if (dy.numel() == 0 || dweight.numel() == 0) return;
  const int64_t n = ids.numel(), width = dweight.size(1), pieces = ceil_div(n, kPiece);
  const Keys keys{ids.data<int64_t>(), dweight.size(0), padding_idx};
  CategoryScope scope(Category::workspace);
  const Tensor order = sorted_positions(keys, n, dy.device());
  const Tensor parts = Tensor::empty({pieces, 2, width}, DType::f32, dy.device());
  with_activation(dy.dtype(), [&]<class T>(T) {
    with_vectors<T>(width, {&dy, &dweight, &parts}, [&](auto size) {
      constexpr int N = size;
      const Runs<T> runs{keys,  order.data<int64_t>(), dy.data<T>(),    n,
                         width, parts.mut<float>(),    dweight.mut<T>()};
      const Grid grid{as_blocks(pieces, ceil_div(width / N, kRunThreads)), kRunThreads};
      launch(add_runs<T, N>, grid, runs);
      launch(join_runs<T, N>, grid, runs);
    });
  });
}

}  // namespace frugal::ops

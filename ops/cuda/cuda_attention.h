// Shared by the CUDA kernels of attention: the problem as kernels see it, masks, the decisions of
// dropout, and the shared memory of a block. For .cu files.
#pragma once
#include <cmath>
#include <limits>

#include "core/cuda/cuda_random.h"
#include "ops/cuda/cuda_attention_tiles.h"
#include "ops/precision.h"
#include "ops/sequence/attention.h"
#include "ops/simd/scalar_math.h"

// Forward: a block holds a tile of queries and walks over the keys with a running softmax. The
// backward pass for dq does the same. For dk and dv a block holds a tile of keys as rows and walks
// over the queries. So there are only two kinds of products (cuda_attention_tiles.h), and nothing
// is added across blocks. Where all three are wanted in f32, the walk over the queries also makes
// dq: that is a third kind of product.
namespace frugal::ops::cuda {

inline constexpr float kLog2e = 1.44269504f;
inline constexpr float kHidden = -std::numeric_limits<float>::infinity();

template <class T>
struct Rows {
  T* data;
  int64_t of_n, of_row, of_head;
  __device__ T* at(int64_t n, int64_t head, int64_t row) const {
    return data + n * of_n + head * of_head + row * of_row;
  }
};

template <class T>
struct Problem {
  Rows<const T> q, k, v, dy;
  const int64_t *keep, *reach;
  const float *added, *bias;
  int64_t added_of_n, added_of_head;
  int64_t heads, t, s;
  int64_t key_heads, group;  // the heads of k and v, and how many of q's share one
  int64_t window;            // keys that a query sees at most; 0: all
  int d;
  bool packs, causal;
  float scale;
  float cap;  // what scores stay below; 0: none
  bool drops;
  uint32_t bound;  // words of 24 bits from here on are kept
  float kept;      // kept probabilities are multiplied by this
  cuda::DeviceKey key;
  float *lse, *delta;  // [N, heads, T]
  float* rest;         // [N, heads, T], for the backward pass: what lse lacks, times log2(e)
};

// What a block works on: tile `tile` of one head of one sequence. `heads` is how many heads are
// counted: those of q, or those of k and v.
struct Place {
  int64_t tile, head, n;
  __device__ explicit Place(int64_t tiles, int64_t heads)
      : tile(blockIdx.x % tiles), head(blockIdx.x / tiles % heads), n(blockIdx.x / tiles / heads) {}
  template <class T>
  __device__ int64_t of_head(const Problem<T>& p) const {
    return n * p.heads + head;
  }
};

template <class Tiles>
using Scores = float[Tiles::kMine][Tiles::kWide];
template <class Tiles>
using Sums = float[Tiles::kMine][Tiles::kOut];

template <int kMine, int kOut>
__device__ __forceinline__ void clear(float (&x)[kMine][kOut]) {
  for (auto& row : x)
    for (float& value : row) value = 0;
}

// The running softmax of the rows of a thread. The lanes of a row have the same `top`, and each has
// a part of `total`.
template <class Tiles>
struct RowSums {
  float top[Tiles::kMine], total[Tiles::kMine];
  __device__ __forceinline__ RowSums() {
#pragma unroll
    for (int i = 0; i < Tiles::kMine; ++i) top[i] = kHidden, total[i] = 0;
  }
  // Scores x of row i become e^(score - top). Returns the factor of earlier sums of the row.
  __device__ __forceinline__ float add(int i, float (&x)[Tiles::kWide]) {
    float most = top[i];  // may ignore NaN, because the exponentials carry it into the sum
#pragma unroll
    for (int j = 0; j < Tiles::kWide; ++j) most = fmaxf(most, x[j]);
    most = across_row<Tiles>(most, [](float a, float b) { return fmaxf(a, b); });
    const float shift = most == kHidden ? 0 : most;
    const float rescale = top[i] == kHidden ? 0 : exp2f((top[i] - shift) * kLog2e);
    total[i] *= rescale;
    top[i] = most;
#pragma unroll
    for (int j = 0; j < Tiles::kWide; ++j) {
      x[j] = exp2f((x[j] - shift) * kLog2e);
      total[i] += x[j];
    }
    return rescale;
  }
  // Adds the parts of the lanes.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int i = 0; i < Tiles::kMine; ++i) total[i] = across_row<Tiles>(total[i], Sum<float>{});
  }
};

// The shared memory of a block: tiles of the operands, the decisions of dropout [queries, keys],
// and scratch.
template <class Tiles>
struct Shared {
  using T = typename Tiles::Element;
  static constexpr int kRowTile = Tiles::kRows * Tiles::kStride,
                       kColTile = Tiles::kCols * Tiles::kStride;
  static constexpr int kPitch = (Tiles::kRows > Tiles::kCols ? Tiles::kRows : Tiles::kCols) + 4;
  static constexpr size_t bytes(int row_tiles, int col_tiles) {
    return static_cast<size_t>(row_tiles * kRowTile + col_tiles * kColTile) * sizeof(T) +
           static_cast<size_t>(Tiles::kScratch) * sizeof(float) +
           static_cast<size_t>(kPitch * kPitch);
  }
  T *rows[2], *cols[2];
  float* scratch;
  uint8_t* kept;
  __device__ Shared(int row_tiles, int col_tiles) {
    T* next = dynamic_shared<T>();
    rows[0] = next, rows[1] = next + (row_tiles - 1) * kRowTile;
    next += row_tiles * kRowTile;
    cols[0] = next, cols[1] = next + (col_tiles - 1) * kColTile;
    next += col_tiles * kColTile;
    scratch = reinterpret_cast<float*>(next);
    kept = reinterpret_cast<uint8_t*>(scratch + Tiles::kScratch);
  }
};

// Decides whether dropout keeps the probabilities of kQueries queries from t on and kKeys keys from
// s on. Four neighbours of a row share one call of Philox.
template <class Tiles, int kQueries, int kKeys, class T>
__device__ __forceinline__ void draw(const Problem<T>& p, const Place& at, int64_t t, int64_t s,
                                     uint8_t* kept) {
  constexpr int kQuads = kKeys / 4 + 1;
  for (int i = static_cast<int>(threadIdx.x); i < kQueries * kQuads; i += Tiles::kThreads) {
    const int row = i / kQuads;
    const auto first = static_cast<uint64_t>((at.of_head(p) * p.t + t + row) * p.s + s);
    const uint64_t quad = first / 4 + static_cast<uint64_t>(i % kQuads);
    const int begin = static_cast<int>(static_cast<int64_t>(4 * quad - first));
    if (begin >= kKeys) continue;
    const Words words = philox_words(cuda::advanced(p.key), quad);
#pragma unroll
    for (int w = 0; w < 4; ++w)
      if (begin + w >= 0 && begin + w < kKeys)
        kept[row * Shared<Tiles>::kPitch + begin + w] = words.w[w] >> 8 >= p.bound;
  }
}

// Element (i, j) of the tile belongs to query t + query(i, j) and key s + key(i, j).
template <class Tiles, bool kKeysInRows>
struct Axes {
  static constexpr int kQueries = kKeysInRows ? Tiles::kCols : Tiles::kRows;
  static constexpr int kKeys = kKeysInRows ? Tiles::kRows : Tiles::kCols;
  static constexpr int kQueryParts = kKeysInRows ? Tiles::kWide : Tiles::kMine;
  static constexpr int kKeyParts = kKeysInRows ? Tiles::kMine : Tiles::kWide;
  static __device__ __forceinline__ int query_part(int i, int j) { return kKeysInRows ? j : i; }
  static __device__ __forceinline__ int key_part(int i, int j) { return kKeysInRows ? i : j; }
  static __device__ __forceinline__ int query(int part) {
    return kKeysInRows ? Tiles::col(part) : Tiles::row(part);
  }
  static __device__ __forceinline__ int key(int part) {
    return kKeysInRows ? Tiles::row(part) : Tiles::col(part);
  }
};

__device__ __forceinline__ int clamped(int64_t x) {
  return static_cast<int>(x < -4096 ? -4096 : x > 4096 ? 4096 : x);
}

// The first key that query t of sequence n sees by p.reach.
template <class T>
__device__ __forceinline__ int64_t reached(const Problem<T>& p, int64_t n, int64_t t) {
  const int64_t reach = p.reach[n * p.t + t];
  return t + p.s - p.t - (reach > 0 ? reach : 0);
}

// The first key that one of `queries` queries from t on sees by p.reach.
template <class T>
__device__ __forceinline__ int64_t first_reached(const Problem<T>& p, int64_t n, int64_t t,
                                                 int queries) {
  int64_t first = p.s;
  for (int64_t i = t; i < t + queries && i < p.t; ++i) {
    const int64_t own = reached(p, n, i);
    first = own < first ? own : first;
  }
  return first < 0 ? 0 : first;
}

// Hides the scores of keys that p.reach hides.
template <class Tiles, bool kKeysInRows, class T>
__device__ __forceinline__ void hide_far_keys(const Problem<T>& p, const Place& at, int64_t t,
                                              int64_t s, Scores<Tiles>& x) {
  using A = Axes<Tiles, kKeysInRows>;
  int first[A::kQueryParts];
#pragma unroll
  for (int part = 0; part < A::kQueryParts; ++part) {
    const int query = A::query(part);
    first[part] = query < p.t - t ? clamped(reached(p, at.n, t + query) - s) : 0;
  }
#pragma unroll
  for (int i = 0; i < Tiles::kMine; ++i)
#pragma unroll
    for (int j = 0; j < Tiles::kWide; ++j)
      if (A::key(A::key_part(i, j)) < first[A::query_part(i, j)]) x[i][j] = kHidden;
}

// Turns products into scores: scales them and adds the masks, all but p.reach. A score without a
// query or a key becomes -inf.
template <class Tiles, bool kKeysInRows, class T>
__device__ __forceinline__ void scale_scores(const Problem<T>& p, const Place& at, int64_t t,
                                             int64_t s, Scores<Tiles>& x) {
  using A = Axes<Tiles, kKeysInRows>;
  const int queries = clamped(p.t - t), keys = clamped(p.s - s);
  const int64_t back = t - s + p.s - p.t;
  // A query sees the keys from query + oldest to query + seen.
  const int seen = p.causal ? clamped(back) : 4096;
  const int oldest = p.window > 0 ? clamped(back - p.window + 1) : -4096;
  // All queries of a whole tile see all of its keys.
  const bool whole = queries >= A::kQueries && keys >= A::kKeys && A::kKeys - 1 <= seen &&
                     A::kQueries - 1 + oldest <= 0;
  float scale = p.scale;
  if (p.cap > 0) {
    const float by = p.scale / p.cap;
#pragma unroll
    for (int i = 0; i < Tiles::kMine; ++i)
#pragma unroll
      for (int j = 0; j < Tiles::kWide; ++j) x[i][j] = p.cap * math::tanh(x[i][j] * by);
    scale = 1;
  }
  if (whole && p.keep == nullptr && p.added == nullptr && p.bias == nullptr) {
#pragma unroll
    for (int i = 0; i < Tiles::kMine; ++i)
#pragma unroll
      for (int j = 0; j < Tiles::kWide; ++j) x[i][j] *= scale;
    return;
  }
  float hidden[A::kKeyParts];
#pragma unroll
  for (int part = 0; part < A::kKeyParts; ++part) {
    const int key = A::key(part);
    hidden[part] =
        p.keep != nullptr && key < keys && p.keep[at.n * p.s + s + key] == 0 ? kHidden : 0.0f;
  }
  const float* added =
      p.added == nullptr ? nullptr
                         : p.added + at.n * p.added_of_n + at.head * p.added_of_head + t * p.s + s;
  const float* bias = p.bias == nullptr ? nullptr : p.bias + (at.head * p.t + t) * p.s + s;
#pragma unroll
  for (int i = 0; i < Tiles::kMine; ++i)
#pragma unroll
    for (int j = 0; j < Tiles::kWide; ++j) {
      const int query = A::query(A::query_part(i, j)), key = A::key(A::key_part(i, j));
      float score = x[i][j] * scale + hidden[A::key_part(i, j)];
      if (query >= queries || key >= keys || key > query + seen || key < query + oldest) {
        score = kHidden;
      } else {
        if (added != nullptr) score += added[query * p.s + key];
        if (bias != nullptr) score += bias[query * p.s + key];
      }
      x[i][j] = score;
    }
}

// Turns products into scores: scales them and adds all masks.
template <class Tiles, bool kKeysInRows, class T>
__device__ __forceinline__ void mask_scores(const Problem<T>& p, const Place& at, int64_t t,
                                            int64_t s, Scores<Tiles>& x) {
  scale_scores<Tiles, kKeysInRows>(p, at, t, s, x);
  if (p.reach != nullptr) hide_far_keys<Tiles, kKeysInRows>(p, at, t, s, x);
}

// The first key, a multiple of `keys`, of those that one of `queries` queries from t on sees.
template <class T>
__device__ __forceinline__ int64_t begin_of_keys(const Problem<T>& p, int64_t n, int64_t t,
                                                 int queries, int keys) {
  int64_t oldest = p.window > 0 ? t + p.s - p.t - p.window + 1 : 0;
  if (p.reach != nullptr) {
    const int64_t first = first_reached(p, n, t, queries);
    oldest = first > oldest ? first : oldest;
  }
  return oldest < 0 ? 0 : oldest / keys * keys;
}

// The end of the keys that at least one query of the tile sees; the tile begins at query t.
template <class T>
__device__ __forceinline__ int64_t end_of_keys(const Problem<T>& p, int64_t t, int queries) {
  const int64_t end = p.causal ? t + queries + p.s - p.t : p.s;
  return end < 0 ? 0 : end < p.s ? end : p.s;
}

// Calls put(row, column, sum) for those sums of the tile that lie in a matrix [there, d].
template <class Tiles, class Put>
__device__ __forceinline__ void for_each_sum(const Sums<Tiles>& x, int64_t there, int d,
                                             const Put& put) {
#pragma unroll
  for (int i = 0; i < Tiles::kMine; ++i) {
    if (Tiles::row(i) >= there) continue;
#pragma unroll
    for (int j = 0; j < Tiles::kOut; ++j)
      if (Tiles::out_col(j) < d) put(Tiles::row(i), Tiles::out_col(j), x[i][j]);
  }
}

template <class Tiles, class T>
__device__ __forceinline__ void write_sums(const Sums<Tiles>& x, float factor, T* to,
                                           int64_t stride, int64_t there, int d) {
  for_each_sum<Tiles>(x, there, d, [&](int row, int column, float sum) {
    to[row * stride + column] = store<T>(sum * factor);
  });
}

// Adds to what is there.
template <class Tiles>
__device__ __forceinline__ void add_sums(const Sums<Tiles>& x, float factor, float* to,
                                         int64_t stride, int64_t there, int d) {
  for_each_sum<Tiles>(x, there, d, [&](int row, int column, float sum) {
    to[row * stride + column] += sum * factor;
  });
}

// ---- the host's part

template <class T>
Rows<const T> rows_of(const Tensor& x) {
  if (!x.defined()) return {};
  return {x.data<T>(), x.strides()[0], x.strides()[1], x.strides()[2]};
}
template <class T>
Rows<T> mut_rows(const Tensor& x) {
  if (!x.defined()) return {};
  return {x.mut<T>(), x.strides()[0], x.strides()[1], x.strides()[2]};
}

template <class T>
bool packs(const Tensor& x) {
  constexpr int64_t kSize = Pack<T>::kSize;
  return !x.defined() || (is_packable(x.raw()) && x.strides()[0] % kSize == 0 &&
                          x.strides()[1] % kSize == 0 && x.strides()[2] % kSize == 0);
}

template <class T>
Problem<T> on_device(const AttentionProblem& p, const Tensor& dy, const Tensor& lse,
                     const Tensor& delta) {
  Problem<T> out{};
  out.q = rows_of<T>(p.q), out.k = rows_of<T>(p.k), out.v = rows_of<T>(p.v);
  out.dy = rows_of<T>(dy);
  if (p.keep.defined()) out.keep = p.keep.data<int64_t>();
  if (p.reach.defined()) out.reach = p.reach.data<int64_t>();
  if (p.bias.defined()) out.bias = p.bias.data<float>();
  if (p.added.defined()) {
    out.added = p.added.data<float>();
    out.added_of_n = p.added.size(0) == 1 ? 0 : p.added.strides()[0];
    out.added_of_head = p.added.size(1) == 1 ? 0 : p.added.strides()[1];
  }
  out.heads = p.heads, out.t = p.t, out.s = p.s, out.d = static_cast<int>(p.d);
  out.key_heads = p.key_heads, out.group = p.group, out.window = p.options.window;
  out.cap = static_cast<float>(p.options.soft_cap);
  out.packs =
      p.d % Pack<T>::kSize == 0 && packs<T>(p.q) && packs<T>(p.k) && packs<T>(p.v) && packs<T>(dy);
  out.causal = p.options.causal;
  out.scale = static_cast<float>(p.options.scale);
  out.drops = p.options.dropout > 0;
  out.bound = static_cast<uint32_t>(std::ceil(p.options.dropout * 0x1p24));
  out.kept = static_cast<float>(1 / (1 - p.options.dropout));
  out.key = cuda::device_key(p.options.key);
  out.lse = lse.mut<float>();
  if (delta.defined()) out.delta = delta.mut<float>();
  return out;
}

// The forward pass needs few registers, so its tiles are wide. At 256 channels, four tiles and the
// scratch memory fit the 99 KiB of small GPUs.
template <class T, int kD, bool forward>
struct TilesOf {
  using Type = FmaTiles<kD>;
};
template <int kD, bool forward>
struct TilesOf<BFloat16, kD, forward> {
  using Type = MmaTiles<kD, (forward || kD <= 64 ? 64 : 32) / (kD > 128 ? 2 : 1)>;
};

// As wide as fits 99 KiB. Where heads have more channels, f32 is multiplied without tensor cores.
template <bool forward, class F>
bool with_tf32_tiles(const AttentionProblem& p, F f) {
  if (matmul_precision() != MatmulPrecision::tf32 || p.d > 128) return false;
  if (p.d <= 32)
    f(Tf32Tiles<32, 64>{});
  else if (p.d <= 64)
    f(Tf32Tiles<64, 64>{});
  else
    f(Tf32Tiles < 128, forward ? 32 : 16 > {});
  return true;
}

template <bool forward, class F>
void with_tiles(const AttentionProblem& p, F f) {
  FRUGAL_CHECK(p.d <= 256, "[attention] expected heads of at most 256 channels on {}, got {}",
               p.q.device().str(), p.d);
  with_activation(p.q.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, float>)
      if (with_tf32_tiles<forward>(p, f)) return;
    if (p.d <= 32) return f(typename TilesOf<T, 32, forward>::Type{});
    if (p.d <= 64) return f(typename TilesOf<T, 64, forward>::Type{});
    if (p.d <= 128) return f(typename TilesOf<T, 128, forward>::Type{});
    f(typename TilesOf<T, 256, forward>::Type{});
  });
}

inline int64_t tiles_for(int64_t n, int64_t of) { return (n + of - 1) / of; }

inline constexpr size_t kMostShared = size_t{99} << 10;  // what a block may use on every GPU from
                                                         // sm_80 on

template <class Tiles>
Grid grid_of(int64_t blocks, int row_tiles, int col_tiles) {
  const size_t shared = Shared<Tiles>::bytes(row_tiles, col_tiles);
  FRUGAL_ASSERT(shared <= kMostShared);
  return {as_blocks(blocks), Tiles::kThreads, shared};
}

// Writes y (unless it is undefined) and lse; given dy, also delta = <dy, y>.
void attention_forward(const AttentionProblem& p, const Tensor& y, const Tensor& dy,
                       const Tensor& lse, const Tensor& delta);

}  // namespace frugal::ops::cuda

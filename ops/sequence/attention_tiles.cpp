#include "ops/sequence/attention_tiles.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/parallel.h"
#include "ops/dense/elementwise_loops.h"
#include "ops/sequence/attention_loops.h"
#include "ops/simd/convert_loops.h"

namespace frugal::ops {
namespace {

using simd::Strided;
using simd::Tile;

constexpr int64_t kQueries = 64, kKeys = 128;  // extents of a tile of scores, which fits the
                                               // first-level cache
constexpr float kHidden = -std::numeric_limits<float>::infinity();

int64_t padded(int64_t n) {
  return (n + simd::kTileLanes - 1) / simd::kTileLanes * simd::kTileLanes;
}

// The buffers of one thread, in one tensor.
class Workspace {
 public:
  explicit Workspace(int64_t elements) {
    CategoryScope scope(Category::workspace);
    room_ = Tensor::empty({std::max<int64_t>(elements, 1)});
  }
  float* take(int64_t elements) {
    float* at = room_.mut<float>() + used_;
    used_ += elements;
    FRUGAL_ASSERT(used_ <= room_.numel());
    return at;
  }

 private:
  Tensor room_;
  int64_t used_ = 0;
};

// to = from * factor. Most calls are plain copies.
template <class From, class To>
void scaled_copy(const From* from, float factor, To* to, int64_t n) {
  if constexpr (std::is_same_v<From, To>) {
    if (factor == 1) return std::copy_n(from, n, to), void();
  } else if constexpr (std::is_same_v<From, BFloat16>) {
    simd::widen(from, to, n);
    if (factor != 1)
      for (int64_t k = 0; k < n; ++k) to[k] *= factor;
    return;
  } else if (factor == 1) {
    return simd::narrow(from, to, n);
  }
  for (int64_t k = 0; k < n; ++k) to[k] = static_cast<To>(static_cast<float>(from[k]) * factor);
}

template <class T>
void read_rows(const T* from, int64_t stride, int64_t rows, int64_t d, float factor, float* to,
               int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r, from += stride, to += to_stride) {
    scaled_copy(from, factor, to, d);
    std::fill(to + d, to + to_stride, 0.0f);
  }
}

template <class T>
void write_rows(const float* from, int64_t from_stride, int64_t rows, int64_t d, float factor,
                T* to, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r, from += from_stride, to += stride)
    scaled_copy(from, factor, to, d);
}

int64_t offset(const Tensor& x, int64_t n, int64_t head) {
  return n * x.strides()[0] + head * x.strides()[2];
}

// Writes x[n, :, head] times factor to f32 rows of `stride` elements; the rest of each row becomes
// 0.
void read_head(const Tensor& x, int64_t n, int64_t head, float factor, float* to, int64_t stride) {
  const int64_t at = offset(x, n, head);
  if (x.dtype() == DType::bf16)
    read_rows(x.data<BFloat16>() + at, x.strides()[1], x.size(1), x.size(3), factor, to, stride);
  else
    read_rows(x.data<float>() + at, x.strides()[1], x.size(1), x.size(3), factor, to, stride);
}

void write_head(const float* from, int64_t stride, float factor, const Tensor& x, int64_t n,
                int64_t head) {
  const int64_t at = offset(x, n, head);
  if (x.dtype() == DType::bf16)
    write_rows(from, stride, x.size(1), x.size(3), factor, x.mut<BFloat16>() + at, x.strides()[1]);
  else
    write_rows(from, stride, x.size(1), x.size(3), factor, x.mut<float>() + at, x.strides()[1]);
}

// One head of the queries of one sequence.
struct Head {
  const AttentionProblem& p;
  int64_t n, head;
  const float* hidden_keys;  // [S], 0 or -inf; null without `keep`

  // The first key that query t sees, if it is not hidden otherwise.
  int64_t oldest_key(int64_t t) const {
    const int64_t own = t + p.s - p.t;
    int64_t oldest = p.options.window > 0 ? own - p.options.window + 1 : 0;
    if (p.reach.defined())
      oldest = std::max(oldest, own - std::max<int64_t>(p.reach.data<int64_t>()[n * p.t + t], 0));
    return std::clamp<int64_t>(oldest, 0, p.s);
  }
  // Queries [t, t + rows) see no key before this one, which begins a block.
  int64_t begin_of_keys(int64_t t, int64_t rows) const {
    int64_t begin = oldest_key(t);
    if (p.reach.defined())
      for (int64_t r = 1; r < rows; ++r) begin = std::min(begin, oldest_key(t + r));
    return begin / kKeys * kKeys;
  }
  // Queries [t, t + rows) see no key from here on.
  int64_t end_of_keys(int64_t t, int64_t rows) const {
    return p.options.causal ? std::clamp<int64_t>(t + rows + p.s - p.t, 0, p.s) : p.s;
  }

  // Adds all masks to the scores of queries from t and keys from s.
  void mask_scores(const Tile& scores, int64_t t, int64_t s) const {
    if (hidden_keys != nullptr) simd::tile_add(scores, hidden_keys + s, 0);
    if (p.added.defined()) {
      const int64_t of_n = p.added.size(0) == 1 ? 0 : n, of_head = p.added.size(1) == 1 ? 0 : head;
      simd::tile_add(
          scores, p.added.data<float>() + ((of_n * p.added.size(1) + of_head) * p.t + t) * p.s + s,
          p.s);
    }
    if (p.bias.defined())
      simd::tile_add(scores, p.bias.data<float>() + (head * p.t + t) * p.s + s, p.s);
    if (!p.options.causal) return;
    for (int64_t r = 0; r < scores.rows; ++r) {
      const int64_t seen = std::clamp<int64_t>(t + r + 1 + p.s - p.t - s, 0, scores.cols);
      std::fill(scores.data + r * scores.stride + seen,
                scores.data + r * scores.stride + scores.cols, kHidden);
    }
    if (p.options.window == 0 && !p.reach.defined()) return;
    for (int64_t r = 0; r < scores.rows; ++r)
      std::fill_n(scores.data + r * scores.stride,
                  std::clamp<int64_t>(oldest_key(t + r) - s, 0, scores.cols), kHidden);
  }

  // The factors of dropout for those probabilities, in rows `like.stride` apart.
  void dropout_factors(const Tile& like, int64_t t, int64_t s, float* to) const {
    const simd::Drop drop = simd::drop_of(p.options.dropout, p.options.key);
    for (int64_t r = 0; r < like.rows; ++r) {
      const int64_t first = ((n * p.heads + head) * p.t + t + r) * p.s + s;
      simd::dropout_factors(drop, to + r * like.stride, first, first + like.cols);
    }
  }
};

// Calls f(t, rows) for blocks of queries.
template <class F>
void for_queries(int64_t t, F f) {
  for (int64_t begin = 0; begin < t; begin += kQueries) f(begin, std::min(kQueries, t - begin));
}
// Calls f(s, cols) for blocks of the keys [begin, end).
template <class F>
void for_keys(int64_t begin, int64_t end, F f) {
  for (; begin < end; begin += kKeys) f(begin, std::min(kKeys, end - begin));
}

// Writes -inf for keys that p.keep hides, else 0.
void read_hidden(const AttentionProblem& p, int64_t n, float* to) {
  const int64_t* keep = p.keep.data<int64_t>() + n * p.s;
  for (int64_t s = 0; s < p.s; ++s) to[s] = keep[s] != 0 ? 0 : kHidden;
}

// Transposes k [s, d], whose rows lie `d_pad` apart, to [d, s_pad].
void transpose_keys(const float* k, int64_t s, int64_t d, int64_t d_pad, float* to, int64_t s_pad) {
  simd::tile_transpose(k, d_pad, s, d, to, s_pad);
  if (s < s_pad)
    for (int64_t i = 0; i < d; ++i) std::fill(to + i * s_pad + s, to + (i + 1) * s_pad, 0.0f);
}

class Forward {
 public:
  explicit Forward(const AttentionProblem& p)
      : p_(p), d_pad_(padded(p.d)), s_pad_(padded(p.s)), room_(room(p)) {
    q_ = room_.take(p.t * d_pad_);
    rows_ = room_.take(p.s * d_pad_);
    keys_ = room_.take(p.d * s_pad_);
    hidden_ = room_.take(p.s);
    scores_ = room_.take(kQueries * kKeys);
    factors_ = room_.take(kQueries * kKeys);
    sum_ = room_.take(kQueries * d_pad_);
    top_ = room_.take(kQueries);
    total_ = room_.take(kQueries);
    rescale_ = room_.take(kQueries);
  }

  // Elements of the buffers.
  static int64_t room(const AttentionProblem& p) {
    return (p.t + p.s) * padded(p.d) + p.d * padded(p.s) + p.s +
           kQueries * (2 * kKeys + padded(p.d) + 3);
  }

  // lse [T]
  void run(int64_t n, int64_t head, const Tensor& y, float* lse) {
    const Head at{p_, n, head, p_.keep.defined() ? hidden_ : nullptr};
    if (at.hidden_keys != nullptr) read_hidden(p_, n, hidden_);
    read_head(p_.q, n, head, static_cast<float>(p_.options.scale), q_, d_pad_);
    read_head(p_.k, n, head / p_.group, 1, rows_, d_pad_);
    transpose_keys(rows_, p_.s, p_.d, d_pad_, keys_, s_pad_);
    read_head(p_.v, n, head / p_.group, 1, rows_, d_pad_);
    for_queries(p_.t, [&](int64_t t, int64_t rows) {
      block(at, t, rows);
      for (int64_t r = 0; r < rows; ++r) {
        lse[t + r] = total_[r] == 0 ? -kHidden : top_[r] + std::log(total_[r]);
        total_[r] = total_[r] == 0 ? 0 : 1 / total_[r];
      }
      simd::tile_scale_rows({sum_, d_pad_, rows, d_pad_}, total_);
      // These queries are no longer needed, so their rows hold the results until all are written.
      std::copy_n(sum_, rows * d_pad_, q_ + t * d_pad_);
    });
    write_head(q_, d_pad_, 1, y, n, head);
  }

 private:
  void block(const Head& at, int64_t t, int64_t rows) {
    std::fill_n(top_, rows, kHidden);
    std::fill_n(total_, rows, 0.0f);
    std::fill_n(sum_, rows * d_pad_, 0.0f);
    const int64_t begin = at.begin_of_keys(t, rows);
    for_keys(begin, at.end_of_keys(t, rows), [&](int64_t s, int64_t cols) {
      const Tile scores{scores_, kKeys, rows, cols};
      simd::tile_product({q_ + t * d_pad_, d_pad_, 1}, keys_ + s, s_pad_, scores_, kKeys, rows,
                         padded(cols), p_.d, false);
      if (p_.options.soft_cap > 0)
        simd::tile_soft_cap(scores, static_cast<float>(p_.options.soft_cap), nullptr);
      at.mask_scores(scores, t, s);
      simd::tile_online_softmax(scores, top_, total_, rescale_);
      if (p_.options.dropout > 0) {
        at.dropout_factors(scores, t, s, factors_);
        simd::tile_multiply(scores, factors_);
      }
      if (s > begin) simd::tile_scale_rows({sum_, d_pad_, rows, d_pad_}, rescale_);
      simd::tile_product({scores_, kKeys, 1}, rows_ + s * d_pad_, d_pad_, sum_, d_pad_, rows,
                         d_pad_, cols, true);
    });
  }

  const AttentionProblem& p_;
  int64_t d_pad_, s_pad_;
  Workspace room_;
  float *q_, *rows_, *keys_, *hidden_, *scores_, *factors_, *sum_, *top_, *total_, *rescale_;
};

// With p the probabilities, f the factors of dropout and delta = <dy, y> of each row: dv = (p f)^T
// dy, ds = p (f (dy v^T) - delta), dq = scale ds k, dk = scale ds^T q.
// Heads of q that share a head of k and v take turns, and dk and dv are their sums.
// If y and lse are not given, p and delta = <p, f (dy v^T)> are computed from whole rows of scores,
// one block of queries at a time.
class BackwardPass {
 public:
  BackwardPass(const AttentionProblem& p, bool given)
      : p_(p),
        given_(given),
        d_pad_(padded(p.d)),
        s_pad_(padded(p.s)),
        width_(given ? kKeys : s_pad_),
        room_(room(p, given)) {
    q_ = room_.take(p.t * d_pad_);
    dy_ = room_.take(p.t * d_pad_);
    dq_ = room_.take(p.t * d_pad_);
    k_ = room_.take(p.s * d_pad_);
    dk_ = room_.take(p.s * d_pad_);
    dv_ = room_.take(p.s * d_pad_);
    keys_ = room_.take(p.d * s_pad_);
    values_ = room_.take(p.d * s_pad_);
    hidden_ = room_.take(p.s);
    delta_ = room_.take(p.t);
    scores_ = room_.take(kQueries * width_);
    gradient_ = room_.take(kQueries * width_);
    factors_ = room_.take(kQueries * width_);
    if (caps()) slopes_ = room_.take(kQueries * width_);
    top_ = room_.take(kQueries);
    total_ = room_.take(kQueries);
    rescale_ = room_.take(kQueries);
  }

  // Elements of the buffers.
  static int64_t room(const AttentionProblem& p, bool given) {
    return 3 * (p.t + p.s) * padded(p.d) + 2 * p.d * padded(p.s) + p.s + p.t + 3 * kQueries +
           (p.options.soft_cap > 0 ? 4 : 3) * kQueries * (given ? kKeys : padded(p.s));
  }

  // shared: a head of k and v.
  void run(int64_t n, int64_t shared, const Tensor& dy, const AttentionOutput& out,
           const AttentionGradients& to) {
    if (p_.keep.defined()) read_hidden(p_, n, hidden_);
    read_head(p_.v, n, shared, 1, k_, d_pad_);
    transpose_keys(k_, p_.s, p_.d, d_pad_, values_, s_pad_);
    read_head(p_.k, n, shared, 1, k_, d_pad_);
    transpose_keys(k_, p_.s, p_.d, d_pad_, keys_, s_pad_);
    std::fill_n(dk_, p_.s * d_pad_, 0.0f);
    std::fill_n(dv_, p_.s * d_pad_, 0.0f);
    for (int64_t i = 0; i < p_.group; ++i) add_head(n, shared * p_.group + i, dy, out, to);
    // q was multiplied by the scale before
    if (to.dk.defined()) write_head(dk_, d_pad_, 1, to.dk, n, shared);
    if (to.dv.defined()) write_head(dv_, d_pad_, 1, to.dv, n, shared);
  }

 private:
  // The queries from t by the keys from s.
  struct ScoreTile {
    int64_t t, s, rows, cols;
    float *scores, *gradient, *factors, *slopes;  // rows lie width_ apart
  };
  bool drops() const { return p_.options.dropout > 0; }
  bool caps() const { return p_.options.soft_cap > 0; }

  // Writes dq of a head of q, and adds its dk and dv.
  void add_head(int64_t n, int64_t head, const Tensor& dy, const AttentionOutput& out,
                const AttentionGradients& to) {
    const Head at{p_, n, head, p_.keep.defined() ? hidden_ : nullptr};
    read_head(dy, n, head, 1, dy_, d_pad_);
    const float* lse = nullptr;
    if (given_) {
      lse = out.lse.data<float>() + (n * p_.heads + head) * p_.t;
      read_head(out.y, n, head, 1, q_, d_pad_);
      for (int64_t t = 0; t < p_.t; ++t)
        delta_[t] = simd::dot(dy_ + t * d_pad_, q_ + t * d_pad_, p_.d);
    }
    read_head(p_.q, n, head, static_cast<float>(p_.options.scale), q_, d_pad_);
    std::fill_n(dq_, p_.t * d_pad_, 0.0f);
    for_queries(p_.t, [&](int64_t t, int64_t rows) {
      const int64_t begin = at.begin_of_keys(t, rows), end = at.end_of_keys(t, rows);
      const auto tile_at = [&](int64_t s, int64_t cols) {
        const int64_t first = given_ ? 0 : s;
        return ScoreTile{t,
                         s,
                         rows,
                         cols,
                         scores_ + first,
                         gradient_ + first,
                         factors_ + first,
                         caps() ? slopes_ + first : nullptr};
      };
      if (!given_) {
        for_keys(begin, end, [&](int64_t s, int64_t cols) { open(at, tile_at(s, cols)); });
        simd::tile_softmax({scores_ + begin, width_, rows, end - begin}, gradient_ + begin,
                           delta_ + t);
        for_keys(begin, end,
                 [&](int64_t s, int64_t cols) { close(at, tile_at(s, cols), to.dbias); });
        return;
      }
      const bool coarse = std::any_of(lse + t, lse + t + rows, is_coarse);
      if (coarse) {
        std::fill_n(top_, rows, kHidden);
        std::fill_n(total_, rows, 0.0f);
        for_keys(begin, end, [&](int64_t s, int64_t cols) {
          score(at, tile_at(s, cols));
          simd::tile_online_softmax({scores_, width_, rows, cols}, top_, total_, rescale_);
        });
        for (int64_t r = 0; r < rows; ++r) {
          if (top_[r] == kHidden) top_[r] = 0;
          total_[r] = total_[r] == 0 ? 0 : 1 / total_[r];
        }
      }
      for_keys(begin, end, [&](int64_t s, int64_t cols) {
        open(at, tile_at(s, cols));
        const Tile scores{scores_, width_, rows, cols};
        simd::tile_exp(scores, coarse ? top_ : lse + t);
        if (coarse) simd::tile_scale_rows(scores, total_);
        close(at, tile_at(s, cols), to.dbias);
      });
    });
    const auto scale = static_cast<float>(p_.options.scale);
    if (to.dq.defined()) write_head(dq_, d_pad_, scale, to.dq, n, head);
  }

  void score(const Head& at, const ScoreTile& x) {
    const Tile scores{x.scores, width_, x.rows, x.cols};
    simd::tile_product({q_ + x.t * d_pad_, d_pad_, 1}, keys_ + x.s, s_pad_, x.scores, width_,
                       x.rows, padded(x.cols), p_.d, false);
    if (caps()) simd::tile_soft_cap(scores, static_cast<float>(p_.options.soft_cap), x.slopes);
    at.mask_scores(scores, x.t, x.s);
  }

  // Computes the scores, and f (dy v^T).
  void open(const Head& at, const ScoreTile& x) {
    score(at, x);
    simd::tile_product({dy_ + x.t * d_pad_, d_pad_, 1}, values_ + x.s, s_pad_, x.gradient, width_,
                       x.rows, padded(x.cols), p_.d, false);
    if (!drops()) return;
    at.dropout_factors({x.scores, width_, x.rows, x.cols}, x.t, x.s, x.factors);
    simd::tile_multiply({x.gradient, width_, x.rows, x.cols}, x.factors);
  }

  // Continues when the scores have become p.
  void close(const Head& at, const ScoreTile& x, const Tensor& dbias) {
    simd::tile_softmax_gradient({x.gradient, width_, x.rows, x.cols}, x.scores, delta_ + x.t);
    if (caps()) simd::tile_multiply({x.gradient, width_, x.rows, x.cols}, x.slopes);
    if (drops()) simd::tile_multiply({x.scores, width_, x.rows, x.cols}, x.factors);
    simd::tile_product({x.scores, 1, width_}, dy_ + x.t * d_pad_, d_pad_, dv_ + x.s * d_pad_,
                       d_pad_, x.cols, d_pad_, x.rows, true);
    simd::tile_product({x.gradient, width_, 1}, k_ + x.s * d_pad_, d_pad_, dq_ + x.t * d_pad_,
                       d_pad_, x.rows, d_pad_, x.cols, true);
    simd::tile_product({x.gradient, 1, width_}, q_ + x.t * d_pad_, d_pad_, dk_ + x.s * d_pad_,
                       d_pad_, x.cols, d_pad_, x.rows, true);
    if (!dbias.defined()) return;
    for (int64_t r = 0; r < x.rows; ++r)
      simd::tile_add({dbias.mut<float>() + (at.head * p_.t + x.t + r) * p_.s + x.s, 0, 1, x.cols},
                     x.gradient + r * width_, 0);
  }

  const AttentionProblem& p_;
  bool given_;
  int64_t d_pad_, s_pad_, width_;
  Workspace room_;
  float *q_, *dy_, *dq_, *k_, *dk_, *dv_, *keys_, *values_, *hidden_, *delta_;
  float *scores_, *gradient_, *factors_, *slopes_ = nullptr;
  float *top_, *total_, *rescale_;
};

// Allocates on meta the buffers of as many passes as with_passes() makes.
void count_passes(int64_t n, int64_t elements) {
  const CategoryScope scope(Category::workspace);
  std::vector<Tensor> rooms;
  for (int64_t i = 0; i < parallel_ranges(n, 1); ++i)
    rooms.push_back(Tensor::empty({elements}, DType::f32, kMeta));
}

// Calls run(pass, i) for each i below n, with one of a few passes that make() gives.
template <class Make, class Run>
void with_passes(int64_t n, const Make& make, const Run& run) {
  std::vector<decltype(make())> passes;
  for (int64_t i = 0; i < parallel_ranges(n, 1); ++i) passes.push_back(make());
  std::atomic<size_t> next = 0;
  parallel_for(0, n, 1, [&](int64_t begin, int64_t end) {
    auto& pass = passes[next++];
    for (int64_t i = begin; i < end; ++i) run(pass, i);
  });
}

}  // namespace

void attention_tiles(const AttentionProblem& p, const AttentionOutput& out) {
  with_passes(
      p.n * p.heads, [&] { return Forward(p); },
      [&](Forward& pass, int64_t i) {
        pass.run(i / p.heads, i % p.heads, out.y, out.lse.mut<float>() + i * p.t);
      });
}

void count_attention_tiles(const AttentionProblem& p) {
  count_passes(p.n * p.heads, Forward::room(p));
}

void count_attention_backward_tiles(const AttentionProblem& p, bool given, bool adds_to_bias) {
  count_passes(adds_to_bias ? p.key_heads : p.n * p.key_heads, BackwardPass::room(p, given));
}

void attention_backward_tiles(const Tensor& dy, const AttentionProblem& p,
                              const AttentionOutput& out, const AttentionGradients& gradients) {
  const auto make = [&] { return BackwardPass(p, out.y.defined()); };
  if (!gradients.dbias.defined())
    return with_passes(p.n * p.key_heads, make, [&](BackwardPass& pass, int64_t i) {
      pass.run(i / p.key_heads, i % p.key_heads, dy, out, gradients);
    });
  // Sequences are added to the gradient of a head's bias one after the other, so that the order is
  // fixed.
  std::fill_n(gradients.dbias.mut<float>(), gradients.dbias.numel(), 0.0f);
  with_passes(p.key_heads, make, [&](BackwardPass& pass, int64_t head) {
    for (int64_t n = 0; n < p.n; ++n) pass.run(n, head, dy, out, gradients);
  });
}

}  // namespace frugal::ops

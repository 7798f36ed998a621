#include "ops/sequence/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/kernel_memory.h"
#include "ops/sequence/attention_tiles.h"

namespace frugal::ops {
namespace {

// ---- f64, plain loops

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

const double* row(const Tensor& x, int64_t n, int64_t at, int64_t head) {
  return x.data<double>() + n * x.strides()[0] + at * x.strides()[1] + head * x.strides()[2];
}
double* mut_row(const Tensor& x, int64_t n, int64_t at, int64_t head) {
  return x.mut<double>() + n * x.strides()[0] + at * x.strides()[1] + head * x.strides()[2];
}

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// The head of k and v that a head of q reads.
int64_t key_head(const AttentionProblem& p, int64_t head) { return head / p.group; }

// Computes the scores of query t, [S].
void scores_of(const AttentionProblem& p, int64_t n, int64_t head, int64_t t, double* to) {
  for (int64_t s = 0; s < p.s; ++s) {
    to[s] = p.options.scale * dot(row(p.q, n, t, head), row(p.k, n, s, key_head(p, head)), p.d);
    if (p.options.soft_cap > 0) to[s] = p.options.soft_cap * std::tanh(to[s] / p.options.soft_cap);
    if (p.keep.defined() && p.keep.data<int64_t>()[n * p.s + s] == 0) to[s] = kMinusInfinity;
    const int64_t back = t + p.s - p.t - s;  // how far the key lies behind the query's own place
    if (p.options.causal && back < 0) to[s] = kMinusInfinity;
    if (p.options.window > 0 && back >= p.options.window) to[s] = kMinusInfinity;
    if (p.reach.defined() && back > std::max<int64_t>(p.reach.data<int64_t>()[n * p.t + t], 0))
      to[s] = kMinusInfinity;
    if (p.added.defined()) {
      const int64_t of_n = p.added.size(0) == 1 ? 0 : n, of_head = p.added.size(1) == 1 ? 0 : head;
      to[s] += p.added.data<double>()[((of_n * p.added.size(1) + of_head) * p.t + t) * p.s + s];
    }
    if (p.bias.defined()) to[s] += p.bias.data<double>()[(head * p.t + t) * p.s + s];
  }
}

// The derivative of a score by what was capped.
double slope_of(const AttentionProblem& p, double score) {
  if (p.options.soft_cap == 0) return 1;
  const double share = score / p.options.soft_cap;
  return score == kMinusInfinity ? 0 : 1 - share * share;
}

double factor_of(const AttentionProblem& p, int64_t n, int64_t head, int64_t t, int64_t s) {
  if (p.options.dropout == 0) return 1;
  const auto bound = static_cast<uint32_t>(std::ceil(p.options.dropout * 0x1p24));
  const auto index = static_cast<uint64_t>(((n * p.heads + head) * p.t + t) * p.s + s);
  const bool kept = philox(p.options.key, index / 4)[index % 4] >> 8 >= bound;
  return kept ? 1 / (1 - p.options.dropout) : 0;
}

// The probability of a score is e^(score - shift) / total.
struct RowSum {
  double shift, total;
  double log() const { return shift + std::log(total); }
  double weight(double score) const { return std::exp(score - shift) / total; }
};

RowSum sum_of(const std::vector<double>& scores) {
  const double top = std::max(kMinusInfinity, *std::max_element(scores.begin(), scores.end()));
  if (top == kMinusInfinity) return {-kMinusInfinity, 1};
  double total = 0;
  for (const double score : scores) total += std::exp(score - top);
  return {top, total};
}

void attention_reference(const AttentionProblem& p, const AttentionOutput& out) {
  parallel_for(0, p.n * p.heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> scores(static_cast<size_t>(p.s));
    for (int64_t i = begin; i < end; ++i)
      for (int64_t t = 0; t < p.t; ++t) {
        const int64_t n = i / p.heads, head = i % p.heads;
        scores_of(p, n, head, t, scores.data());
        const RowSum sum = sum_of(scores);
        out.lse.mut<double>()[i * p.t + t] = sum.log();
        double* y = mut_row(out.y, n, t, head);
        std::fill_n(y, p.d, 0.0);
        for (int64_t s = 0; s < p.s; ++s) {
          const double weight =
              sum.weight(scores[static_cast<size_t>(s)]) * factor_of(p, n, head, t, s);
          const double* v = row(p.v, n, s, key_head(p, head));
          for (int64_t k = 0; k < p.d; ++k) y[k] += weight * v[k];
        }
      }
  });
}

AttentionOutput empty_output(const AttentionProblem& p) {
  const DType sums = p.q.dtype() == DType::f64 ? DType::f64 : DType::f32;
  return {Tensor::empty({p.n, p.t, p.heads, p.d}, p.q.dtype(), p.q.device()),
          Tensor::empty({p.n, p.heads, p.t}, sums, p.q.device())};
}

// ops/sequence/attention_tiles.cpp has the formulas.
void attention_backward_reference(const Tensor& dy, const AttentionProblem& p, AttentionOutput out,
                                  const AttentionGradients& to) {
  if (!out.y.defined()) {
    CategoryScope scope(Category::workspace);
    out = empty_output(p);
    attention_reference(p, out);
  }
  for (const Tensor* x : {&to.dq, &to.dk, &to.dv, &to.dbias})
    if (x->defined()) fill_kernel(Cpu{}, *x, 0);
  std::vector<double> scores(static_cast<size_t>(p.s));
  for (int64_t i = 0; i < p.n * p.heads; ++i)
    for (int64_t t = 0; t < p.t; ++t) {
      const int64_t n = i / p.heads, head = i % p.heads, shared = key_head(p, head);
      const double* g = row(dy, n, t, head);
      const double delta = dot(g, row(out.y, n, t, head), p.d);
      scores_of(p, n, head, t, scores.data());
      // lse is rounded in the unit of its size, which a factor of all weights would show.
      const double lse = out.lse.data<double>()[i * p.t + t];
      const RowSum sum = std::abs(lse) < 0x1p40 ? RowSum{lse, 1} : sum_of(scores);
      for (int64_t s = 0; s < p.s; ++s) {
        const double weight = sum.weight(scores[static_cast<size_t>(s)]);
        const double factor = factor_of(p, n, head, t, s);
        const double ds = weight * (factor * dot(g, row(p.v, n, s, shared), p.d) - delta);
        const double by = p.options.scale * ds * slope_of(p, scores[static_cast<size_t>(s)]);
        for (int64_t k = 0; k < p.d; ++k) {
          if (to.dq.defined()) mut_row(to.dq, n, t, head)[k] += by * row(p.k, n, s, shared)[k];
          if (to.dk.defined()) mut_row(to.dk, n, s, shared)[k] += by * row(p.q, n, t, head)[k];
          if (to.dv.defined()) mut_row(to.dv, n, s, shared)[k] += weight * factor * g[k];
        }
        if (to.dbias.defined()) to.dbias.mut<double>()[(head * p.t + t) * p.s + s] += ds;
      }
    }
}

// ---- checks

constexpr const char* kAttention = "attention";

// x, or a copy of it whose rows of D numbers are contiguous.
Tensor with_dense_rows(const Tensor& x) {
  return x.strides()[3] == 1 || x.size(3) == 1 ? x : contiguous(x);
}

// A mask or bias in the dtype of the sums.
Tensor as_added(const Tensor& x) {
  return contiguous(x.dtype() == DType::bf16 ? cast(x, DType::f32) : x);
}

void set_mask(AttentionProblem& p, const Tensor& mask) {
  if (!mask.defined()) return;
  FRUGAL_CHECK(mask.device() == p.q.device(), "[{}] expected the mask on {}, got {}", kAttention,
               p.q.device().str(), describe(mask));
  if (mask.dtype() == DType::i64 && mask.dim() == 3) {
    check_shape(kAttention, "an i64 mask of 3 axes", mask, {p.n, p.t, 1});
    FRUGAL_CHECK(p.options.causal, "[{}] expected `causal` with a mask [N, T, 1] i64", kAttention);
    p.reach = contiguous(mask).view({p.n, p.t});
    return;
  }
  if (mask.dtype() == DType::i64) {
    check_shape(kAttention, "an i64 mask", mask, {p.n, p.s});
    p.keep = contiguous(mask);
    return;
  }
  const Shape shape = mask.shape();
  const int axes = shape.dim(), of_head = axes - 3;
  const bool fits = (axes == 3 || axes == 4) && shape[axes - 1] == p.s && shape[axes - 2] == p.t &&
                    (shape[of_head] == 1 || shape[of_head] == p.heads) &&
                    (axes == 3 || shape[0] == p.n);
  FRUGAL_CHECK(fits && mask.dtype() == p.q.dtype(),
               "[{}] expected a mask [N, S] i64, [N, T, 1] i64, or [heads or 1, T, S] or [N, heads "
               "or 1, T, S] of q's dtype, for N {}, heads {}, T {}, S {}, got {}",
               kAttention, p.n, p.heads, p.t, p.s, describe(mask));
  p.added = as_added(mask).view({axes == 3 ? 1 : p.n, shape[of_head], p.t, p.s});
}

AttentionProblem checked(const AttentionInputs& in, const AttentionOptions& options) {
  check_dim(kAttention, "q", in.q, 4);
  check_dim(kAttention, "k", in.k, 4);
  const DType dtype = in.q.dtype();
  FRUGAL_CHECK(dtype == DType::f32 || dtype == DType::bf16 ||
                   (dtype == DType::f64 && in.q.device().type != DeviceType::cuda),
               "[{}] expected q of dtype f32, f64 or bf16, got {}", kAttention, describe(in.q));
  check_same(kAttention, in.q, {&in.k, &in.v});
  // A bias that is a parameter stays f32 beside bf16.
  const bool wider = dtype == DType::bf16 && in.bias.defined() && in.bias.dtype() == DType::f32;
  wider ? check_beside(kAttention, in.q, {&in.bias}) : check_same(kAttention, in.q, {&in.bias});
  const Shape &q = in.q.shape(), &k = in.k.shape();
  const bool shares = k[2] == q[2] || (k[2] > 0 && q[2] % k[2] == 0);
  FRUGAL_CHECK(k[0] == q[0] && shares && k[3] == q[3],
               "[{}] expected q [N, T, heads, D] and k [N, S, heads or a divisor of them, D], got "
               "{} and {}",
               kAttention, q, k);
  check_shape(kAttention, "v", in.v, k);
  FRUGAL_CHECK(q[3] >= 1, "[{}] expected heads of at least one channel, got q {}", kAttention, q);
  FRUGAL_CHECK(options.dropout >= 0 && options.dropout < 1,
               "[{}] expected dropout in [0, 1), got {}", kAttention, options.dropout);
  FRUGAL_CHECK(options.window >= 0 && (options.window == 0 || options.causal),
               "[{}] expected a window of at least 1 key with causal, or 0, got {}{}", kAttention,
               options.window, options.causal ? "" : " without causal");
  const bool adds = in.bias.defined() || (in.mask.defined() && in.mask.dtype() != DType::i64);
  FRUGAL_CHECK(options.soft_cap >= 0 && (options.soft_cap == 0 || !adds),
               "[{}] expected a soft cap above 0 without a bias or a mask that is added, or 0, got "
               "{}{}",
               kAttention, options.soft_cap, adds ? " with one" : "");
  AttentionProblem p;
  p.options = options;
  if (options.window >= k[1]) p.options.window = 0;  // it hides nothing
  p.n = q[0], p.t = q[1], p.s = k[1], p.heads = q[2], p.d = q[3];
  p.key_heads = k[2];
  p.group = k[2] > 0 ? q[2] / k[2] : 1;
  if (options.scale == 0) p.options.scale = 1 / std::sqrt(static_cast<double>(p.d));
  p.q = with_dense_rows(in.q), p.k = with_dense_rows(in.k), p.v = with_dense_rows(in.v);
  set_mask(p, in.mask);
  if (in.bias.defined()) {
    check_shape(kAttention, "bias", in.bias, {p.heads, p.t, p.s});
    p.bias = as_added(in.bias);
  }
  return p;
}

bool is_empty(const AttentionProblem& p) { return p.n * p.heads * p.t == 0; }

// Are there tiles whose buffers count on meta?
bool counts_tiles(const AttentionProblem& p) {
  return counts_kernel_memory(p.q.device()) && p.q.dtype() != DType::f64 && !is_empty(p) && p.s > 0;
}

}  // namespace

void attention_kernel(Cpu, const AttentionProblem& p, const AttentionOutput& out) {
  if (is_empty(p)) return;
  if (p.s == 0) {
    fill_kernel(Cpu{}, out.lse, -kMinusInfinity);
    fill_kernel(Cpu{}, out.y, 0);
    return;
  }
  p.q.dtype() == DType::f64 ? attention_reference(p, out) : attention_tiles(p, out);
}

void attention_backward_kernel(Cpu, const Tensor& dy, const AttentionProblem& p,
                               const AttentionOutput& out, const AttentionGradients& gradients) {
  if (is_empty(p) || p.s == 0) {
    for (const Tensor* x : {&gradients.dq, &gradients.dk, &gradients.dv, &gradients.dbias})
      if (x->defined()) fill_kernel(Cpu{}, *x, 0);
    return;
  }
  p.q.dtype() == DType::f64 ? attention_backward_reference(dy, p, out, gradients)
                            : attention_backward_tiles(dy, p, out, gradients);
}

AttentionOutput attention(const AttentionInputs& in, const AttentionOptions& options) {
  const AttentionProblem p = checked(in, options);
  const AttentionOutput out = empty_output(p);
  if (counts_tiles(p)) count_attention_tiles(p);
  dispatch(in.q.device(), [&](auto backend) { attention_kernel(backend, p, out); });
  return out;
}

void attention_backward(const Tensor& dy, const AttentionInputs& in, const AttentionOutput& out,
                        const AttentionOptions& options, const AttentionGradients& gradients) {
  const AttentionProblem p = checked(in, options);
  check_shape("attention_backward", "dy", dy, in.q.shape());
  check_same("attention_backward", in.q, {&dy, &gradients.dq, &gradients.dk, &gradients.dv});
  check_beside("attention_backward", in.q, {&gradients.dbias});
  AttentionOutput given;
  if (out.y.defined()) {
    check_shape("attention_backward", "y", out.y, in.q.shape());
    check_same("attention_backward", in.q, {&out.y});
    check_shape("attention_backward", "lse", out.lse, {p.n, p.heads, p.t});
    given = {with_dense_rows(out.y), contiguous(out.lse)};
  }
  const Tensor g = with_dense_rows(dy);
  if (counts_tiles(p))
    count_attention_backward_tiles(p, given.y.defined(), gradients.dbias.defined());
  dispatch(in.q.device(),
           [&](auto backend) { attention_backward_kernel(backend, g, p, given, gradients); });
}

}  // namespace frugal::ops

#include "ops/sequence/attention_cudnn.h"

#include <limits>
#include <mutex>
#include <set>

#include "core/log.h"
#include "core/memory.h"
#include "ops/cuda/cuda_map.h"
#include "ops/cuda/cudnn_attention.h"
#include "ops/dense/copy.h"
#include "ops/library_fallbacks.h"
#include "ops/precision.h"

namespace frugal::ops {
namespace {

// The problems at which cuDNN failed, and those whose backward pass it does not take. They are not
// given to it again.
struct Failed {
  std::mutex mutex;
  std::set<std::string> problems;
  bool holds(const std::string& problem) {
    const std::lock_guard lock(mutex);
    return problems.contains(problem);
  }
  void add(const std::string& problem) {
    const std::lock_guard lock(mutex);
    problems.insert(problem);
  }
};
Failed& failed() {
  static auto* one = new Failed;
  return *one;
}

// cuDNN's causal mask counts keys from the first, ours from the last.
bool fits(const AttentionProblem& p) {
  if (p.group > 1 || p.options.window > 0 || p.options.soft_cap > 0 || p.reach.defined())
    return false;
  return p.q.dtype() == DType::bf16 && !p.added.defined() && !p.bias.defined() &&
         p.options.dropout == 0 && (!p.options.causal || p.t == p.s) && p.q.numel() != 0 &&
         p.s != 0;
}

// Only whole tiles of cuDNN's engines are given to its backward pass. On an H100, cuDNN 9.19 gave
// wrong gradients of keys or values for 2 samples of 20 tokens, and right ones for the same tokens
// with another limit of its workspace.
bool fits_backward(const AttentionProblem& p) {
  constexpr int64_t kTile = 64;
  return fits(p) && p.t % kTile == 0 && p.s % kTile == 0;
}

cudnn::Attention problem_of(const AttentionProblem& p, const Tensor& y) {
  cudnn::Attention problem;
  problem.n = p.n, problem.t = p.t, problem.s = p.s, problem.heads = p.heads, problem.d = p.d;
  problem.q = p.q.strides(), problem.k = p.k.strides(), problem.v = p.v.strides();
  problem.y = y.strides();
  problem.causal = p.options.causal;
  problem.hides = p.keep.defined();
  problem.scale = static_cast<float>(p.options.scale);
  return problem;
}

// Calls f(name of the problem). Where it returns false or the library fails, that is counted.
template <class F>
bool by_library(const char* pass, const AttentionProblem& p, const F& f) {
  const std::string name =
      fmt::format("{}{}{} bf16 q {} keys {}", pass, p.options.causal ? " causal" : "",
                  p.keep.defined() ? " padded" : "", p.q.shape(), p.s);
  if (!failed().holds(name)) {
    try {
      if (f(name)) return true;
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& e) {
      log().warn("{} fails: {}", name, e.what());
      failed().add(name);
    }
  }
  note_fallback("cuDNN has no plan for " + name, "our kernel");
  return false;
}

struct Hide {
  const int64_t* keep;
  float* hidden;
  int64_t rows, keys;
  __device__ void operator()(int64_t i) const {
    const bool kept = keep[i / (rows * keys) * keys + i % keys] != 0;
    hidden[i] = kept ? 0 : std::numeric_limits<float>::lowest();
  }
};
// [N, rows, S]: `rows` equal rows for each sample.
Tensor hidden_keys(const AttentionProblem& p, int64_t rows) {
  if (!p.keep.defined()) return {};
  const CategoryScope scope(Category::workspace);
  const Tensor hidden = Tensor::empty({p.n, rows, p.s}, DType::f32, p.q.device());
  cuda::for_each(hidden.numel(), Hide{p.keep.data<int64_t>(), hidden.mut<float>(), rows, p.s});
  return hidden;
}

struct FirstKey {
  const int64_t* keep;
  int64_t keys;
  int64_t* first;  // the first visible key of each sample, or the number of keys
  __device__ void operator()(int64_t n) const {
    int64_t s = 0;
    while (s < keys && keep[n * keys + s] == 0) ++s;
    first[n] = s;
  }
};
// y and lse of the rows that see no key. cuDNN gives them a mean of values.
struct ClearRows {
  const int64_t* first;
  BFloat16* y;
  float* lse;
  bool causal;
  int64_t t, s, heads, d;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i % t, head = i / t % heads, n = i / t / heads;
    if (first[n] < (causal ? row + 1 : s)) return;
    lse[i] = std::numeric_limits<float>::infinity();
    for (int64_t k = 0; k < d; ++k) y[((n * t + row) * heads + head) * d + k] = BFloat16(0.0f);
  }
};
void clear_rows_without_keys(const AttentionProblem& p, const AttentionOutput& out) {
  if (!p.keep.defined()) return;
  const CategoryScope scope(Category::workspace);
  const Tensor first = Tensor::empty({p.n}, DType::i64, p.q.device());
  cuda::for_each(p.n, FirstKey{p.keep.data<int64_t>(), p.s, first.mut<int64_t>()});
  cuda::for_each(p.n * p.heads * p.t,
                 ClearRows{first.data<int64_t>(), out.y.mut<BFloat16>(), out.lse.mut<float>(),
                           p.options.causal, p.t, p.s, p.heads, p.d});
}

cudnn::AttentionData data_of(const AttentionProblem& p, const AttentionOutput& out,
                             const Tensor& hidden) {
  return {p.q.raw(),   p.k.raw(),     p.v.raw(),
          out.y.raw(), out.lse.raw(), hidden.defined() ? hidden.raw() : nullptr};
}

bool forward(const AttentionProblem& p, const AttentionOutput& out, const Tensor& hidden) {
  if (!cudnn::attend(problem_of(p, out.y), data_of(p, out, hidden))) return false;
  clear_rows_without_keys(p, out);
  return true;
}

}  // namespace

bool attention_by_cudnn(const AttentionProblem& p, const AttentionOutput& out) {
  return fits(p) && by_library("attention", p, [&](const std::string&) {
           return forward(p, out, hidden_keys(p, 1));
         });
}

bool attention_backward_by_cudnn(const Tensor& dy, const AttentionProblem& p,
                                 const AttentionOutput& out, const AttentionGradients& to) {
  if (!fits_backward(p) || !to.dq.defined() || !to.dk.defined() || !to.dv.defined()) return false;
  return by_library("attention backward", p, [&](const std::string& name) {
    const int64_t pairs = p.n * p.t * p.s;
    const int64_t kept =
        (deterministic() ? 2 * p.heads * pairs : 0) +  // by engines that add in order
        (p.keep.defined() ? 4 * pairs : 0);
    if (kept > library_workspace(convolution_workspace(), false)) return false;
    const CategoryScope scope(Category::workspace);
    AttentionOutput known = out;
    if (!known.y.defined()) {
      known.y = Tensor::empty(p.q.shape(), DType::bf16, p.q.device());
      known.lse = Tensor::empty({p.n, p.heads, p.t}, DType::f32, p.q.device());
      if (!forward(p, known, hidden_keys(p, 1))) return false;
    }
    const Tensor delta = Tensor::empty({p.n, p.heads, p.t}, DType::f32, p.q.device());
    Tensor sum_of_dq;
    if (!deterministic()) {
      sum_of_dq = Tensor::empty({p.n, p.heads, p.t, p.d}, DType::f32, p.q.device());
      fill_kernel(Cuda{}, sum_of_dq, 0);
    }
    const Tensor hidden = hidden_keys(p, p.t);
    cudnn::Attention problem = problem_of(p, known.y);
    problem.dq = to.dq.strides(), problem.dk = to.dk.strides(), problem.dv = to.dv.strides();
    problem.dy = dy.strides();
    const bool done =
        cudnn::attend_backward(problem, {data_of(p, known, hidden), dy.raw(), delta.raw(),
                                         sum_of_dq.defined() ? sum_of_dq.raw() : nullptr,
                                         to.dq.raw(), to.dk.raw(), to.dv.raw()});
    if (!done) failed().add(name);  // so that y is not computed again for nothing
    return done;
  });
}

}  // namespace frugal::ops

// Stands in for cuDNN's attention: plain loops behind the same interface.
#include "ops/cuda/cudnn_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/cuda/cuda.h"
#include "core/dtype.h"
#include "core/error.h"
#include "cuda_runtime.h"

namespace frugal::ops::cudnn {
namespace {

template <class T>
struct Rows {
  T* data;
  const Shape& strides;
  T& at(int64_t n, int64_t row, int64_t head, int64_t d) const {
    return data[n * strides[0] + row * strides[1] + head * strides[2] + d * strides[3]];
  }
};
using In = Rows<const BFloat16>;
using Out = Rows<BFloat16>;
In in(const void* data, const Shape& strides) {
  return {static_cast<const BFloat16*>(data), strides};
}
Out out(void* data, const Shape& strides) { return {static_cast<BFloat16*>(data), strides}; }

double dot(const Attention& p, const In& a, int64_t t, const In& b, int64_t s, int64_t n,
           int64_t head) {
  double sum = 0;
  for (int64_t d = 0; d < p.d; ++d)
    sum += static_cast<double>(static_cast<float>(a.at(n, t, head, d)) *
                               static_cast<float>(b.at(n, s, head, d)));
  return sum;
}

// The scores of one query. hidden_rows: 1 or T, rows of `hidden` for a sample.
std::vector<double> scores_of(const Attention& p, const AttentionData& data, int64_t hidden_rows,
                              int64_t n, int64_t head, int64_t t) {
  const In q = in(data.q, p.q), k = in(data.k, p.k);
  const auto* hidden = static_cast<const float*>(data.hidden);
  std::vector<double> scores(static_cast<size_t>(p.causal ? std::min(p.s, t + 1) : p.s));
  for (size_t s = 0; s < scores.size(); ++s) {
    const auto key = static_cast<int64_t>(s);
    scores[s] = dot(p, q, t, k, key, n, head) * static_cast<double>(p.scale);
    const int64_t row = n * hidden_rows + (hidden_rows > 1 ? t : 0);
    if (p.hides) scores[s] += static_cast<double>(hidden[row * p.s + key]);
  }
  return scores;
}

template <class F>
void for_each_query(const Attention& p, const F& f) {
  for (int64_t n = 0; n < p.n; ++n)
    for (int64_t head = 0; head < p.heads; ++head)
      for (int64_t t = 0; t < p.t; ++t) f(n, head, t);
}

void run(const Attention& p, const AttentionData& data) {
  const emulator::DeviceAccess access;
  const In v = in(data.v, p.v);
  const Out y = out(data.y, p.y);
  for_each_query(p, [&](int64_t n, int64_t head, int64_t t) {
    std::vector<double> scores = scores_of(p, data, 1, n, head, t);
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - most);
    static_cast<float*>(data.lse)[(n * p.heads + head) * p.t + t] =
        static_cast<float>(most + std::log(sum));
    for (int64_t d = 0; d < p.d; ++d) {
      double value = 0;
      for (size_t s = 0; s < scores.size(); ++s)
        value += scores[s] / sum *
                 static_cast<double>(static_cast<float>(v.at(n, static_cast<int64_t>(s), head, d)));
      y.at(n, t, head, d) = BFloat16(static_cast<float>(value));
    }
  });
}

void run_backward(const Attention& p, const AttentionGradientData& data) {
  const emulator::DeviceAccess access;
  const AttentionData& known = data.forward;
  const In q = in(known.q, p.q), k = in(known.k, p.k), v = in(known.v, p.v);
  const In y = in(known.y, p.y), dy = in(data.dy, p.dy);
  const Shape dense_q{p.t * p.heads * p.d, p.heads * p.d, p.d, 1};
  const Shape dense_k{p.s * p.heads * p.d, p.heads * p.d, p.d, 1};
  const auto sums = [&](int64_t rows) {
    return std::vector<double>(static_cast<size_t>(p.n * rows * p.heads * p.d));
  };
  std::vector<double> dq = sums(p.t), dk = sums(p.s), dv = sums(p.s);
  const Rows<double> of_q{dq.data(), dense_q}, of_k{dk.data(), dense_k}, of_v{dv.data(), dense_k};
  for_each_query(p, [&](int64_t n, int64_t head, int64_t t) {
    const std::vector<double> scores = scores_of(p, known, p.t, n, head, t);
    const int64_t row = (n * p.heads + head) * p.t + t;
    const double delta = dot(p, dy, t, y, t, n, head);
    static_cast<float*>(data.delta)[row] = static_cast<float>(delta);
    for (size_t at = 0; at < scores.size(); ++at) {
      const auto s = static_cast<int64_t>(at);
      const double weight =
          std::exp(scores[at] - static_cast<double>(static_cast<const float*>(known.lse)[row]));
      const double g =
          weight * (dot(p, dy, t, v, s, n, head) - delta) * static_cast<double>(p.scale);
      for (int64_t d = 0; d < p.d; ++d) {
        const auto value = [&](const In& x, int64_t r) {
          return static_cast<double>(static_cast<float>(x.at(n, r, head, d)));
        };
        of_q.at(n, t, head, d) += g * value(k, s);
        of_k.at(n, s, head, d) += g * value(q, t);
        of_v.at(n, s, head, d) += weight * value(dy, t);
      }
    }
  });
  const auto write = [&](const Rows<double>& from, const Out& to, int64_t rows) {
    for (int64_t n = 0; n < p.n; ++n)
      for (int64_t head = 0; head < p.heads; ++head)
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t d = 0; d < p.d; ++d)
            to.at(n, r, head, d) = BFloat16(static_cast<float>(from.at(n, r, head, d)));
  };
  write(of_q, out(data.dq, p.dq), p.t);
  write(of_k, out(data.dk, p.dk), p.s);
  write(of_v, out(data.dv, p.dv), p.s);
}

}  // namespace

// As cuDNN may: channels of a head are 64, no backward pass of 3 heads, and an engine that fails
// for 4 heads.
bool attend(const Attention& problem, const AttentionData& data) {
  if (problem.d != 64) return false;
  if (problem.heads == 4) throw Error("[cudnn] engine 1: execution failed");
  emulator::submit(cuda::stream(), [problem, data] { run(problem, data); });
  return true;
}
bool attend_backward(const Attention& problem, const AttentionGradientData& data) {
  if (problem.d != 64 || problem.heads == 3) return false;
  if (problem.heads == 4) throw Error("[cudnn] engine 1: execution failed");
  emulator::submit(cuda::stream(), [problem, data] { run_backward(problem, data); });
  return true;
}

}  // namespace frugal::ops::cudnn

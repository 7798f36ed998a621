// Stands in for cuDNN's attention: plain loops behind the same interface.
#include "ops/cuda/cudnn_attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "cuda_runtime.h"

namespace frugal::ops::cudnn {
namespace {

struct Rows {
  const BFloat16* data;
  const Shape& strides;
  float at(int64_t n, int64_t row, int64_t head, int64_t d) const {
    return static_cast<float>(
        data[n * strides[0] + row * strides[1] + head * strides[2] + d * strides[3]]);
  }
};

void run(const Attention& p, const AttentionData& data) {
  const emulator::DeviceAccess access;
  const Rows q{static_cast<const BFloat16*>(data.q), p.q},
      k{static_cast<const BFloat16*>(data.k), p.k}, v{static_cast<const BFloat16*>(data.v), p.v};
  auto* y = static_cast<BFloat16*>(data.y);
  auto* lse = static_cast<float*>(data.lse);
  std::vector<double> scores(static_cast<size_t>(p.s));
  for (int64_t n = 0; n < p.n; ++n)
    for (int64_t head = 0; head < p.heads; ++head)
      for (int64_t t = 0; t < p.t; ++t) {
        const int64_t seen = p.causal ? std::min(p.s, t + 1) : p.s;
        double most = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t s = 0; s < seen; ++s) {
          double& score = scores[static_cast<size_t>(s)];
          score = 0;
          for (int64_t d = 0; d < p.d; ++d)
            score += static_cast<double>(q.at(n, t, head, d) * k.at(n, s, head, d));
          score *= static_cast<double>(p.scale);
          most = std::max(most, score);
        }
        for (int64_t s = 0; s < seen; ++s) {
          double& score = scores[static_cast<size_t>(s)];
          score = std::exp(score - most);
          sum += score;
        }
        lse[(n * p.heads + head) * p.t + t] = static_cast<float>(most + std::log(sum));
        for (int64_t d = 0; d < p.d; ++d) {
          double out = 0;
          for (int64_t s = 0; s < seen; ++s)
            out += scores[static_cast<size_t>(s)] / sum * static_cast<double>(v.at(n, s, head, d));
          y[n * p.y[0] + t * p.y[1] + head * p.y[2] + d * p.y[3]] =
              BFloat16(static_cast<float>(out));
        }
      }
}

}  // namespace

// As cuDNN may: heads of 64 only, and an engine that fails for 17 queries.
bool attend(const Attention& problem, const AttentionData& data) {
  if (problem.d != 64) return false;
  if (problem.t == 17) throw Error("[cudnn] engine 1: execution failed");
  emulator::submit([problem, data] { run(problem, data); });
  return true;
}

}  // namespace frugal::ops::cudnn

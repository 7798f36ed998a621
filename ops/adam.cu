#include "ops/adam.h"

#include "ops/adam_cuda.h"
#include "ops/cuda_sum.h"
#include "ops/cuda_tensors.h"

namespace frugal::ops {
namespace {

using Factors = AdamFactors<float>;

struct Adam {  // parameter, gradient, m, v
  using Factors = AdamFactors<float>;
  static constexpr int kTensors = 4;
  static constexpr unsigned kWritten = 0b1101;
  __device__ static void apply(const Factors& f, float (&x)[4]) {
    adam_element(f, x[0], x[1], x[2], x[3]);
  }
};

struct Approach {  // average, value
  using Factors = float;
  static constexpr int kTensors = 2;
  static constexpr unsigned kWritten = 0b01;
  __device__ static void apply(float share, float (&x)[2]) { x[0] += share * (x[1] - x[0]); }
};

// Updates the moments, and adds up |p|^2 and |u|^2.
struct LambMoments {
  using Term = cuda::Two;
  static constexpr int kWidth = 1;
  Factors f;
  const float *p, *g;
  float *m, *v;
  __device__ void operator()(int64_t, int64_t i, int64_t, cuda::Two* terms) const {
    const float value = p[i], first = adam_m(f, g[i], m[i]), second = adam_v(f, g[i], v[i]);
    m[i] = first;
    v[i] = second;
    const double u = static_cast<double>(fmaf(f.decay, value, adam_direction(f, first, second)));
    terms[0].first = static_cast<double>(value) * static_cast<double>(value);
    terms[0].second = u * u;
  }
};

// p -= lr |p| / |u| u, where that ratio is to be taken and is a number above 0.
struct LambUpdate {
  Factors f;
  double lr;
  bool adapt;
  const cuda::Two* norms;
  float* p;
  const float *m, *v;
  __device__ void operator()(int64_t i) const {
    double ratio = sqrt(norms->first / norms->second);
    if (!adapt || !(ratio > 0) || ratio - ratio != 0) ratio = 1;
    const float u = fmaf(f.decay, p[i], adam_direction(f, m[i], v[i]));
    p[i] = fmaf(-static_cast<float>(lr * ratio), u, p[i]);
  }
};

}  // namespace

void adam_steps_kernel(Cuda, const std::vector<AdamUpdate>& updates) {
  std::vector<cuda::TensorEntry<4, Factors>> entries;
  for (const AdamUpdate& u : updates)
    entries.push_back({{&u.parameter, &u.gradient, &u.m, &u.v}, Factors::of(u.step)});
  cuda::update_tensors<Adam>(entries);
}

void average_into_kernel(Cuda, const std::vector<Average>& averages, double share) {
  std::vector<cuda::TensorEntry<2, float>> entries;
  for (const Average& a : averages)
    entries.push_back({{&a.average, &a.value}, static_cast<float>(share)});
  cuda::update_tensors<Approach>(entries);
}

void lamb_kernel(Cuda, const Tensor& parameter, const Tensor& gradient, const Tensor& m,
                 const Tensor& v, const AdamStep& step, bool adapt) {
  const Factors factors = Factors::of_lamb(step);
  const int64_t n = parameter.numel();
  const CategoryScope scope(Category::workspace);
  const Tensor sums = Tensor::empty({2}, DType::f64, parameter.device());
  auto* norms = static_cast<cuda::Two*>(sums.raw());
  float* p = parameter.mut<float>();
  cuda::sum_over<cuda::Two>(
      parameter.device(), 1, n, 1,
      LambMoments{factors, p, gradient.data<float>(), m.mut<float>(), v.mut<float>()},
      cuda::StoreTotal<cuda::Two>{norms});
  cuda::for_each(n,
                 LambUpdate{factors, step.lr, adapt, norms, p, m.data<float>(), v.data<float>()});
}

}  // namespace frugal::ops

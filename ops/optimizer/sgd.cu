#include "ops/optimizer/sgd.h"

#include "ops/cuda/cuda_sum.h"
#include "ops/cuda/cuda_tensors.h"
#include "ops/optimizer/sgd_loops.h"

namespace frugal::ops {
namespace {

struct Plain {  // tensors: parameter, gradient
  using Factors = SgdFactors<float>;
  static constexpr int kTensors = 2;
  static constexpr unsigned kWritten = 0b01;
  __device__ static void apply(const SgdFactors<float>& f, float (&v)[2]) {
    v[0] -= f.lr * (v[1] + f.decay * v[0]);
  }
};
struct Momentum {  // tensors: parameter, gradient, velocity
  using Factors = SgdFactors<float>;
  static constexpr int kTensors = 3;
  static constexpr unsigned kWritten = 0b101;
  __device__ static void apply(const SgdFactors<float>& f, float (&v)[3]) {
    const float total = v[1] + f.decay * v[0];
    v[2] = f.momentum * v[2] + total;
    v[0] -= f.lr * (f.of_total * total + f.of_velocity * v[2]);
  }
};

template <class T>
struct Squares {
  using Term = double;
  static constexpr int kWidth = 1;
  const T* x;
  __device__ void operator()(int64_t, int64_t r, int64_t, double* terms) const {
    const auto value = static_cast<double>(cuda::load(x[r]));
    terms[0] = value * value;
  }
};

}  // namespace

void sgd_steps_kernel(Cuda, const std::vector<SgdUpdate>& updates) {
  std::vector<cuda::TensorEntry<2, SgdFactors<float>>> plain;
  std::vector<cuda::TensorEntry<3, SgdFactors<float>>> moving;
  for (const SgdUpdate& u : updates) {
    const auto factors = SgdFactors<float>::of(u.step);
    if (u.velocity.defined())
      moving.push_back({{&u.parameter, &u.gradient, &u.velocity}, factors});
    else
      plain.push_back({{&u.parameter, &u.gradient}, factors});
  }
  cuda::update_tensors<Plain>(plain);
  cuda::update_tensors<Momentum>(moving);
}

void sum_of_squares_kernel(Cuda, const Tensor& x, double& sum) {
  const CategoryScope scope(Category::workspace);
  const Tensor total = Tensor::empty({}, DType::f64, x.device());
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::sum_over<double>(x.device(), 1, x.numel(), 1, Squares<T>{x.data<T>()},
                           cuda::StoreTotal<double>{total.mut<double>()});
  });
  double value = 0;
  copy_bytes(&value, kCpu, total.raw(), total.device(), sizeof value);
  sum += value;
}

}  // namespace frugal::ops

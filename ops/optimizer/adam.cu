#include "ops/optimizer/adam.h"

#include "core/finite.h"
#include "ops/cuda/cuda_tensors.h"
#include "ops/optimizer/adam_cuda.h"

namespace frugal::ops {
namespace {

using Factors = AdamFactors<float>;

struct Adam {  // tensors: parameter, gradient, m, v
  using Factors = AdamFactors<float>;
  static constexpr int kTensors = 4;
  static constexpr unsigned kWritten = 0b1101;
  __device__ static void apply(const Factors& f, float (&x)[4]) {
    adam_element(f, x[0], x[1], x[2], x[3]);
  }
};

struct Approach {  // tensors: average, value
  using Factors = float;
  static constexpr int kTensors = 2;
  static constexpr unsigned kWritten = 0b01;
  __device__ static void apply(float share, float (&x)[2]) { x[0] += share * (x[1] - x[0]); }
};

struct LambFactors {
  Factors f;
  double lr;
  bool adapt;
};
using LambTable = cuda::TensorTable<4, LambFactors>;  // parameter, gradient, m, v

// Updates the moments, and adds |p|^2 and |u|^2 for each chunk.
template <class Argument>
__global__ void lamb_moments_kernel(const Argument argument, double* partial) {
  const LambTable* table = cuda::value_of(argument);
  if (table == nullptr) return;
  for (int64_t chunk = blockIdx.x; chunk < table->chunks; chunk += gridDim.x) {
    const auto row = cuda::row_of(*table, chunk);
    const Factors& f = row.factors.f;
    double of_p = 0, of_u = 0;
    cuda::for_chunk<4, 0b1111, 0b1100>(row, chunk, [&](float(&x)[4]) {
      x[2] = adam_m(f, x[1], x[2]);
      x[3] = adam_v(f, x[1], x[3]);
      const auto p = static_cast<double>(x[0]);
      const auto u = static_cast<double>(fmaf(f.decay, x[0], adam_direction(f, x[2], x[3])));
      of_p += p * p;
      of_u += u * u;
    });
    of_p = cuda::block_sum(of_p);
    of_u = cuda::block_sum(of_u);
    if (threadIdx.x == 0) partial[2 * chunk] = of_p, partial[2 * chunk + 1] = of_u;
  }
}

// p -= lr |p| / |u| u; where the ratio is not wanted or is no number above 0, p -= lr u.
template <class Argument>
__global__ void lamb_update_kernel(const Argument argument, const double* totals) {
  const LambTable* table = cuda::value_of(argument);
  if (table == nullptr) return;
  for (int64_t chunk = blockIdx.x; chunk < table->chunks; chunk += gridDim.x) {
    const int at = cuda::row_at(*table, chunk);
    const auto row = table->row[at];
    const Factors& f = row.factors.f;
    double ratio = sqrt(totals[2 * at] / totals[2 * at + 1]);
    if (!row.factors.adapt || !(ratio > 0) || !is_finite(ratio)) ratio = 1;
    const auto rate = static_cast<float>(row.factors.lr * ratio);
    cuda::for_chunk<4, 0b1101, 0b0001>(row, chunk, [&](float(&x)[4]) {
      x[0] = fmaf(-rate, fmaf(f.decay, x[0], adam_direction(f, x[2], x[3])), x[0]);
    });
  }
}

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

void lamb_steps_kernel(Cuda, const std::vector<LambUpdate>& updates) {
  std::vector<cuda::TensorEntry<4, LambFactors>> entries;
  for (const LambUpdate& u : updates)
    entries.push_back(
        {{&u.parameter, &u.gradient, &u.m, &u.v}, {Factors::of_lamb(u.step), u.step.lr, u.adapt}});
  cuda::update_by_sums<2>(
      entries,
      []<class Argument>(const Argument& argument, const cuda::Grid& chunks, double* partial) {
        cuda::launch(lamb_moments_kernel<Argument>, chunks, argument, partial);
      },
      []<class Argument>(const Argument& argument, const cuda::Grid& chunks, const double* totals) {
        cuda::launch(lamb_update_kernel<Argument>, chunks, argument, totals);
      });
}

}  // namespace frugal::ops

#include "ops/optimizer/lars.h"

#include "core/finite.h"
#include "ops/cuda/cuda_tensors.h"

namespace frugal::ops {
namespace {

struct LarsFactors {
  double lr, trust, weight_decay;
  float momentum, decay;
  bool adapt;
};
using LarsTable = cuda::TensorTable<3, LarsFactors>;  // parameter, gradient, velocity

// Adds |p|^2 and |g|^2 for each chunk.
template <class Argument>
__global__ void lars_norms_kernel(const Argument argument, double* partial) {
  const LarsTable* table = cuda::value_of(argument);
  if (table == nullptr) return;
  for (int64_t chunk = blockIdx.x; chunk < table->chunks; chunk += gridDim.x) {
    const auto row = cuda::row_of(*table, chunk);
    double of_p = 0, of_g = 0;
    cuda::for_chunk<3, 0b011, 0>(row, chunk, [&](float(&x)[3]) {
      const auto p = static_cast<double>(x[0]), g = static_cast<double>(x[1]);
      of_p += p * p;
      of_g += g * g;
    });
    of_p = cuda::block_sum(of_p);
    of_g = cuda::block_sum(of_g);
    if (threadIdx.x == 0) partial[2 * chunk] = of_p, partial[2 * chunk + 1] = of_g;
  }
}

template <class Argument>
__global__ void lars_update_kernel(const Argument argument, const double* totals) {
  const LarsTable* table = cuda::value_of(argument);
  if (table == nullptr) return;
  for (int64_t chunk = blockIdx.x; chunk < table->chunks; chunk += gridDim.x) {
    const int at = cuda::row_at(*table, chunk);
    const auto row = table->row[at];
    const LarsFactors& f = row.factors;
    double scaled = f.lr;
    if (f.adapt) {
      const double of_p = sqrt(totals[2 * at]), of_g = sqrt(totals[2 * at + 1]);
      const double ratio = f.trust * of_p / (of_g + f.weight_decay * of_p);
      if (of_g > 0 && ratio > 0 && is_finite(ratio)) scaled *= ratio;
    }
    const auto rate = static_cast<float>(scaled);
    cuda::for_chunk<3, 0b111, 0b101>(row, chunk, [&](float(&x)[3]) {
      x[2] = f.momentum * x[2] + rate * (x[1] + f.decay * x[0]);
      x[0] -= x[2];
    });
  }
}

}  // namespace

void lars_steps_kernel(Cuda, const std::vector<LarsUpdate>& updates) {
  std::vector<cuda::TensorEntry<3, LarsFactors>> entries;
  for (const LarsUpdate& u : updates)
    entries.push_back(
        {{&u.parameter, &u.gradient, &u.velocity},
         {u.step.lr, u.step.trust, u.step.weight_decay, static_cast<float>(u.step.momentum),
          static_cast<float>(u.step.weight_decay), u.step.adapt}});
  cuda::update_by_sums<2>(
      entries,
      []<class Argument>(const Argument& argument, const cuda::Grid& chunks, double* partial) {
        cuda::launch(lars_norms_kernel<Argument>, chunks, argument, partial);
      },
      []<class Argument>(const Argument& argument, const cuda::Grid& chunks, const double* totals) {
        cuda::launch(lars_update_kernel<Argument>, chunks, argument, totals);
      });
}

}  // namespace frugal::ops

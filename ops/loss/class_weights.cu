#include "ops/loss/class_weights.h"

#include "core/cuda/cuda_kernel.h"

namespace frugal::ops {
namespace {

struct Lookup {
  int64_t classes, ignored;
  const int64_t* target;
  const float* weights;
  float* y;
  __device__ void operator()(int64_t row) const {
    const int64_t c = target[row];
    y[row] = c == ignored || c < 0 || c >= classes ? 0.0f : weights[c];
  }
};

}  // namespace

void weights_of_rows_kernel(Cuda, const Tensor& target, const Tensor& class_weights,
                            int64_t ignore_index, const Tensor& y) {
  cuda::for_each(target.numel(), Lookup{class_weights.numel(), ignore_index, target.data<int64_t>(),
                                        class_weights.data<float>(), y.mut<float>()});
}

}  // namespace frugal::ops

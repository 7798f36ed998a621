#include "ops/detection/nms.h"

#include "core/cuda/cuda_kernel.h"
#include "ops/detection/box_kernels.h"

namespace frugal::ops {
namespace {

constexpr int64_t kWord = 64;

struct Suppresses {
  int64_t n, words;
  double threshold;
  const float* box;
  const int64_t *order, *group;
  int64_t* out;
  __device__ void operator()(int64_t at) const {
    const int64_t i = at / words, first = at % words * kWord;
    uint64_t bits = 0;
    for (int64_t k = 0; k < kWord && first + k < n; ++k) {
      const int64_t j = first + k;
      if (j <= i || (group != nullptr && group[order[i]] != group[order[j]])) continue;
      const float overlap = boxes::iou(box + 4 * order[i], box + 4 * order[j]);
      if (static_cast<double>(overlap) > threshold) bits |= uint64_t{1} << k;
    }
    out[at] = static_cast<int64_t>(bits);
  }
};

}  // namespace

void nms_kernel(Cuda, const Tensor& boxes, const Tensor& order, const Tensor& groups,
                double threshold, const Tensor& suppresses) {
  cuda::for_each(suppresses.numel(), Suppresses{order.numel(), suppresses.size(1), threshold,
                                                boxes.data<float>(), order.data<int64_t>(),
                                                groups.defined() ? groups.data<int64_t>() : nullptr,
                                                suppresses.mut<int64_t>()});
}

}  // namespace frugal::ops

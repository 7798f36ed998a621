#include "ops/detection/boxes.h"

#include "core/cuda/cuda_kernel.h"
#include "ops/detection/box_kernels.h"

namespace frugal::ops {
namespace {

struct Overlap {
  int64_t columns;
  bool generalized;
  const float *a, *b;
  float* y;
  __device__ void operator()(int64_t i) const {
    const float *row = a + i / columns * 4, *other = b + i % columns * 4;
    y[i] = generalized ? boxes::giou(row, other) : boxes::iou(row, other);
  }
};

struct Encode {
  boxes::Weights weights;
  const float *from, *references;
  float* y;
  __device__ void operator()(int64_t i) const {
    boxes::encode(from + 4 * i, references + 4 * i, weights, y + 4 * i);
  }
};

struct Decode {
  boxes::Weights weights;
  int64_t each;
  const float *codes, *references;
  float* y;
  __device__ void operator()(int64_t i) const {
    boxes::decode(codes + 4 * i, references + i / each * 4, weights, y + 4 * i);
  }
};

}  // namespace

void box_overlaps_kernel(Cuda, const Tensor& a, const Tensor& b, bool generalized,
                         const Tensor& y) {
  cuda::for_each(y.numel(),
                 Overlap{b.size(0), generalized, a.data<float>(), b.data<float>(), y.mut<float>()});
}

void encode_boxes_kernel(Cuda, const Tensor& boxes, const Tensor& references,
                         const BoxCoding& coding, const Tensor& y) {
  cuda::for_each(y.size(0), Encode{boxes::weights_of(coding), boxes.data<float>(),
                                   references.data<float>(), y.mut<float>()});
}

void decode_boxes_kernel(Cuda, const Tensor& codes, const Tensor& references,
                         const BoxCoding& coding, const Tensor& y) {
  const int64_t each = y.size(1) / 4;
  cuda::for_each(y.size(0) * each, Decode{boxes::weights_of(coding), each, codes.data<float>(),
                                          references.data<float>(), y.mut<float>()});
}

}  // namespace frugal::ops

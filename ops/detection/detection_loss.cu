#include "ops/detection/detection_loss.h"

#include <limits>

#include "ops/cuda/cuda_sum.h"
#include "ops/detection/loss_kernels.h"

namespace frugal::ops {
namespace {

struct Weight {
  const float* weights;
  __device__ float of(int64_t row) const { return weights == nullptr ? 1 : weights[row]; }
};

Weight weight_of(const Tensor& weights) {
  return {weights.defined() ? weights.data<float>() : nullptr};
}

// Each of these structs writes gradients and gives terms of the loss. For a row of weight 0 both
// are 0, and the loss of its values is not computed.
template <class T>
struct Focal {
  using Term = double;
  static constexpr int kWidth = 1;
  int64_t width;
  float alpha, gamma;
  Weight weight;
  const int64_t* classes;
  const T* x;
  T* gradient;
  __device__ void operator()(int64_t, int64_t i, int64_t, double* terms) const {
    const int64_t row = i / width, target = classes[row];
    const float own = weight.of(row);
    terms[0] = 0;
    gradient[i] = T{};
    if (own == 0) return;
    float slope = 0;
    const float loss = boxes::focal(cuda::load(x[i]), i % width == target, alpha, gamma, slope);
    terms[0] = target < width ? static_cast<double>(own) * static_cast<double>(loss)
                              : std::numeric_limits<double>::quiet_NaN();
    gradient[i] = cuda::store<T>(own * slope);
  }
};

template <class T>
struct SmoothL1 {
  using Term = double;
  static constexpr int kWidth = 1;
  int64_t width;
  float beta;
  Weight weight;
  const T *x, *target;
  T* gradient;
  __device__ void operator()(int64_t, int64_t i, int64_t, double* terms) const {
    const float own = weight.of(i / width);
    terms[0] = 0;
    gradient[i] = T{};
    if (own == 0) return;
    float slope = 0;
    const float loss = boxes::smooth_l1(cuda::load(x[i]) - cuda::load(target[i]), beta, slope);
    terms[0] = static_cast<double>(own) * static_cast<double>(loss);
    gradient[i] = cuda::store<T>(own * slope);
  }
};

template <class T>
struct Giou {
  using Term = double;
  static constexpr int kWidth = 1;
  Weight weight;
  const T *x, *target;
  T* gradient;
  __device__ void operator()(int64_t, int64_t row, int64_t, double* terms) const {
    const float own = weight.of(row);
    terms[0] = 0;
    float from[4], to[4], slope[4]{};
    for (int k = 0; k < 4; ++k) {
      from[k] = cuda::load(x[4 * row + k]);
      to[k] = cuda::load(target[4 * row + k]);
    }
    if (own != 0)
      terms[0] = static_cast<double>(own) * static_cast<double>(boxes::giou_loss(from, to, slope));
    for (int k = 0; k < 4; ++k) gradient[4 * row + k] = cuda::store<T>(own * slope[k]);
  }
};

template <class T>
struct CodedGiou {
  using Term = double;
  static constexpr int kWidth = 1;
  int64_t references, objects;
  boxes::Weights factors;
  Weight weight;
  const float *reference, *object;
  const int64_t* match;
  const T* code;
  T* gradient;
  __device__ void operator()(int64_t, int64_t row, int64_t, double* terms) const {
    const int64_t own_match = match[row];
    const float own = own_match < 0 ? 0 : weight.of(row);
    terms[0] = 0;
    float from[4], slope[4]{};
    for (int k = 0; k < 4; ++k) from[k] = cuda::load(code[4 * row + k]);
    if (own_match >= objects)
      terms[0] = std::numeric_limits<double>::quiet_NaN();
    else if (own != 0)
      terms[0] = static_cast<double>(own) * static_cast<double>(boxes::coded_giou_loss(
                                                from, reference + row % references * 4,
                                                object + 4 * own_match, factors, slope));
    for (int k = 0; k < 4; ++k) gradient[4 * row + k] = cuda::store<T>(own * slope[k]);
  }
};

struct StoreLoss {
  float* loss;
  __device__ void operator()(int64_t, double total) const { *loss = static_cast<float>(total); }
};

template <class F>
void add_all(int64_t terms, const F& f, const WeightedLoss& result) {
  cuda::sum_over<double>(result.loss.device(), 1, terms, 1, f, StoreLoss{result.loss.mut<float>()});
}

}  // namespace

void sigmoid_focal_kernel(Cuda, const Tensor& logits, const Tensor& classes, const Tensor& weights,
                          const SigmoidFocalOptions& options, const WeightedLoss& result) {
  cuda::with_activation(logits.dtype(), [&](auto zero) {
    using T = decltype(zero);
    add_all(logits.numel(),
            Focal<T>{logits.size(1), static_cast<float>(options.alpha),
                     static_cast<float>(options.gamma), weight_of(weights), classes.data<int64_t>(),
                     logits.data<T>(), result.gradient.mut<T>()},
            result);
  });
}

void smooth_l1_kernel(Cuda, const Tensor& x, const Tensor& target, const Tensor& weights,
                      double beta, const WeightedLoss& result) {
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    add_all(x.numel(),
            SmoothL1<T>{x.size(1), static_cast<float>(beta), weight_of(weights), x.data<T>(),
                        target.data<T>(), result.gradient.mut<T>()},
            result);
  });
}

void giou_kernel(Cuda, const Tensor& x, const Tensor& target, const Tensor& weights,
                 const WeightedLoss& result) {
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    add_all(x.size(0),
            Giou<T>{weight_of(weights), x.data<T>(), target.data<T>(), result.gradient.mut<T>()},
            result);
  });
}

void coded_giou_kernel(Cuda, const Tensor& codes, const CodedBoxes& boxes, const BoxCoding& coding,
                       const WeightedLoss& result) {
  cuda::with_activation(codes.dtype(), [&](auto zero) {
    using T = decltype(zero);
    add_all(codes.size(0),
            CodedGiou<T>{boxes.references.size(0),
                         boxes.boxes.size(0),
                         {coding.x, coding.y, coding.width, coding.height},
                         weight_of(boxes.weights),
                         boxes.references.data<float>(),
                         boxes.boxes.data<float>(),
                         boxes.matches.data<int64_t>(),
                         codes.data<T>(),
                         result.gradient.mut<T>()},
            result);
  });
}

}  // namespace frugal::ops

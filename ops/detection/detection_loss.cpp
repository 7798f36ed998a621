#include "ops/detection/detection_loss.h"

#include <algorithm>
#include <vector>

#include "core/dtype_switch.h"
#include "core/integers.h"
#include "core/parallel.h"
#include "ops/dense/copy.h"
#include "ops/detection/box_checks.h"
#include "ops/detection/loss_kernels.h"
#include "ops/f32_blocks.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

// row(i, weight, gradient of the row) gives the loss of a row; rows of weight 0 are not computed.
template <class T, class F>
void add_weighted_rows(const Tensor& weights, const WeightedLoss& result, F row) {
  const int64_t rows = result.gradient.size(0), width = result.gradient.size(1);
  constexpr int64_t kRows = 1 << 8;  // rows whose losses are added in one sum
  const int64_t chunks = ceil_div(rows, kRows);
  const T* weight = weights.defined() ? weights.data<T>() : nullptr;
  std::vector<double> partial(static_cast<size_t>(chunks));
  parallel_for(0, chunks, 1 + 64 / (width + 1), [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      double total = 0;
      for (int64_t i = chunk * kRows; i < std::min(rows, (chunk + 1) * kRows); ++i) {
        T* gradient = result.gradient.mut<T>() + i * width;
        const T own = weight == nullptr ? T{1} : weight[i];
        if (own == 0)
          std::fill_n(gradient, width, T{0});
        else
          total += static_cast<double>(own) * row(i, own, gradient);
      }
      partial[static_cast<size_t>(chunk)] = total;
    }
  });
  double total = 0;
  for (const double term : partial) total += term;
  *result.loss.mut<T>() = static_cast<T>(total);
}

// A loss in bf16. `kernel` takes slices of `in` and of the result; their losses add up.
template <class Kernel>
void add_slices(const std::vector<Tensor>& in, const WeightedLoss& result, Kernel kernel) {
  double total = 0;
  in_f32_slices(in, {result.gradient}, [&](const auto& from, const auto& to) {
    const WeightedLoss part{Tensor::empty({}), to[0]};
    kernel(from, part);
    total += part.loss.item();
  });
  *result.loss.mut<float>() = static_cast<float>(total);
}

// Checks what the losses share, and makes the result.
WeightedLoss result_of(const char* op, const char* name, const Tensor& x, const Tensor& weights,
                       bool overwrite = false) {
  check_dim(op, name, x, 2);
  check_real(op, name, x);
  if (weights.defined()) check_shape(op, "weights", weights, {x.size(0)});
  check_beside(op, x, {&weights});
  const DType dtype = dtype_beside(x);
  return {Tensor::empty({}, dtype, x.device()),
          overwrite ? x : Tensor::empty(x.shape(), x.dtype(), x.device())};
}

}  // namespace

void sigmoid_focal_kernel(Cpu, const Tensor& logits, const Tensor& classes, const Tensor& weights,
                          const SigmoidFocalOptions& options, const WeightedLoss& result) {
  const int64_t width = logits.size(1);
  const auto* target = classes.data<int64_t>();
  for (int64_t i = 0; i < classes.numel(); ++i)
    FRUGAL_CHECK(target[i] < width,
                 "[sigmoid_focal_loss] expected classes below {}, got {} in row {}", width,
                 target[i], i);
  if (logits.dtype() == DType::bf16)
    return add_slices({logits, classes, weights}, result, [&](const auto& in, const auto& part) {
      sigmoid_focal_kernel(Cpu{}, in[0], in[1], in[2], options, part);
    });
  with_real(logits.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* x = logits.data<T>();
    const auto alpha = static_cast<T>(options.alpha), gamma = static_cast<T>(options.gamma);
    add_weighted_rows<T>(weights, result, [&](int64_t i, T weight, T* gradient) {
      double total = 0;
      for (int64_t k = 0; k < width; ++k) {
        total += static_cast<double>(
            boxes::focal(x[i * width + k], k == target[i], alpha, gamma, gradient[k]));
        gradient[k] *= weight;
      }
      return total;
    });
  });
}

void smooth_l1_kernel(Cpu, const Tensor& x, const Tensor& target, const Tensor& weights,
                      double beta, const WeightedLoss& result) {
  if (x.dtype() == DType::bf16)
    return add_slices({x, target, weights}, result, [&](const auto& in, const auto& part) {
      smooth_l1_kernel(Cpu{}, in[0], in[1], in[2], beta, part);
    });
  const int64_t width = x.size(1);
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *from = x.data<T>(), *to = target.data<T>();
    add_weighted_rows<T>(weights, result, [&](int64_t i, T weight, T* gradient) {
      double total = 0;
      for (int64_t k = 0; k < width; ++k) {
        total += static_cast<double>(boxes::smooth_l1(from[i * width + k] - to[i * width + k],
                                                      static_cast<T>(beta), gradient[k]));
        gradient[k] *= weight;
      }
      return total;
    });
  });
}

void giou_kernel(Cpu, const Tensor& x, const Tensor& target, const Tensor& weights,
                 const WeightedLoss& result) {
  if (x.dtype() == DType::bf16)
    return add_slices({x, target, weights}, result, [&](const auto& in, const auto& part) {
      giou_kernel(Cpu{}, in[0], in[1], in[2], part);
    });
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *from = x.data<T>(), *to = target.data<T>();
    add_weighted_rows<T>(weights, result, [&](int64_t i, T weight, T* gradient) {
      const T loss = boxes::giou_loss(from + 4 * i, to + 4 * i, gradient);
      for (int k = 0; k < 4; ++k) gradient[k] *= weight;
      return static_cast<double>(loss);
    });
  });
}

void coded_giou_kernel(Cpu, const Tensor& codes, const CodedBoxes& boxes, const BoxCoding& coding,
                       const WeightedLoss& result) {
  if (codes.dtype() == DType::bf16) {
    InF32 wide;
    coded_giou_kernel(Cpu{}, wide.read(codes), boxes, coding,
                      {result.loss, wide.write(result.gradient)});
    return wide.finish();
  }
  const auto* match = boxes.matches.data<int64_t>();
  const int64_t seen_from = boxes.references.size(0), objects = boxes.boxes.size(0);
  for (int64_t i = 0; i < codes.size(0); ++i)
    FRUGAL_CHECK(match[i] < objects,
                 "[coded_giou_loss] expected matches below {}, got {} in row {}", objects, match[i],
                 i);
  const boxes::Weights factors{coding.x, coding.y, coding.width, coding.height};
  with_real(codes.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *code = codes.data<T>(), *reference = boxes.references.data<T>();
    const T* object = boxes.boxes.data<T>();
    add_weighted_rows<T>(boxes.weights, result, [&](int64_t i, T weight, T* gradient) {
      if (match[i] < 0) {
        std::fill_n(gradient, 4, T{0});
        return 0.0;
      }
      const T loss = boxes::coded_giou_loss(code + 4 * i, reference + i % seen_from * 4,
                                            object + 4 * match[i], factors, gradient);
      for (int k = 0; k < 4; ++k) gradient[k] *= weight;
      return static_cast<double>(loss);
    });
  });
}

WeightedLoss sigmoid_focal(const Tensor& logits, const Tensor& classes, const Tensor& weights,
                           const SigmoidFocalOptions& options, bool overwrite) {
  constexpr const char* kOp = "sigmoid_focal_loss";
  const WeightedLoss result = result_of(kOp, "logits", logits, weights, overwrite);
  check_i64(kOp, "classes", classes, {logits.size(0)}, logits.device());
  const Tensor x = contiguous(logits), target = contiguous(classes);
  const Tensor own = contiguous_or_none(weights);
  dispatch(x.device(),
           [&](auto backend) { sigmoid_focal_kernel(backend, x, target, own, options, result); });
  if (overwrite) logits.bump_version();
  return result;
}

WeightedLoss smooth_l1(const Tensor& x, const Tensor& target, const Tensor& weights, double beta) {
  constexpr const char* kOp = "smooth_l1_loss";
  FRUGAL_CHECK(beta >= 0, "[{}] expected a beta of at least 0, got {}", kOp, beta);
  const WeightedLoss result = result_of(kOp, "x", x, weights);
  check_shape(kOp, "target", target, x.shape());
  check_same(kOp, x, {&target});
  const Tensor from = contiguous(x), to = contiguous(target), own = contiguous_or_none(weights);
  dispatch(x.device(),
           [&](auto backend) { smooth_l1_kernel(backend, from, to, own, beta, result); });
  return result;
}

WeightedLoss giou(const Tensor& x, const Tensor& target, const Tensor& weights) {
  constexpr const char* kOp = "giou_loss";
  const WeightedLoss result = result_of(kOp, "x", x, weights);
  FRUGAL_CHECK(x.size(1) == 4, "[{}] expected x [R, 4], got {}", kOp, describe(x));
  check_shape(kOp, "target", target, x.shape());
  check_same(kOp, x, {&target});
  const Tensor from = contiguous(x), to = contiguous(target), own = contiguous_or_none(weights);
  dispatch(x.device(), [&](auto backend) { giou_kernel(backend, from, to, own, result); });
  return result;
}

WeightedLoss coded_giou(const Tensor& codes, const Tensor& references, const Tensor& boxes,
                        const Tensor& matches, const Tensor& weights, const BoxCoding& coding) {
  constexpr const char* kOp = "coded_giou_loss";
  const WeightedLoss result = result_of(kOp, "codes", codes, weights);
  FRUGAL_CHECK(codes.size(1) == 4, "[{}] expected codes [R, 4], got {}", kOp, describe(codes));
  check_boxes(kOp, "references", references);
  check_boxes(kOp, "boxes", boxes);
  check_beside(kOp, codes, {&references, &boxes});
  check_i64(kOp, "matches", matches, {codes.size(0)}, codes.device());
  const int64_t rows = codes.size(0), seen_from = references.size(0);
  FRUGAL_CHECK(seen_from > 0 ? rows % seen_from == 0 : rows == 0,
               "[{}] expected a multiple of {} rows of codes, one for each reference, got {}", kOp,
               seen_from, rows);
  const Tensor all = contiguous(codes);
  const CodedBoxes beside = {contiguous(references), contiguous(boxes), contiguous(matches),
                             contiguous_or_none(weights)};
  dispatch(codes.device(),
           [&](auto backend) { coded_giou_kernel(backend, all, beside, coding, result); });
  return result;
}

}  // namespace frugal::ops

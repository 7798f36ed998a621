#include "ops/detection/boxes.h"

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/detection/box_checks.h"
#include "ops/detection/box_kernels.h"

namespace frugal::ops {
namespace {

constexpr int64_t kBoxGrain = 1 << 12;  // boxes for each thread at least

Tensor overlaps(const char* op, const Tensor& a, const Tensor& b, bool generalized) {
  check_boxes(op, "a", a);
  check_boxes(op, "b", b);
  check_same(op, a, {&b});
  Tensor y = Tensor::empty({a.size(0), b.size(0)}, a.dtype(), a.device());
  const Tensor first = contiguous(a), second = contiguous(b);
  dispatch(a.device(),
           [&](auto backend) { box_overlaps_kernel(backend, first, second, generalized, y); });
  return y;
}

}  // namespace

void box_overlaps_kernel(Cpu, const Tensor& a, const Tensor& b, bool generalized, const Tensor& y) {
  const int64_t columns = b.size(0);
  with_real(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *rows = a.data<T>(), *others = b.data<T>();
    T* out = y.mut<T>();
    parallel_for(0, a.size(0), kBoxGrain / (columns + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t j = 0; j < columns; ++j)
          out[i * columns + j] = generalized ? boxes::giou(rows + 4 * i, others + 4 * j)
                                             : boxes::iou(rows + 4 * i, others + 4 * j);
    });
  });
}

void encode_boxes_kernel(Cpu, const Tensor& boxes, const Tensor& references,
                         const BoxCoding& coding, const Tensor& y) {
  with_real(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *from = boxes.data<T>(), *seen_from = references.data<T>();
    T* out = y.mut<T>();
    parallel_for(0, y.size(0), kBoxGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        boxes::encode(from + 4 * i, seen_from + 4 * i, boxes::weights_of(coding), out + 4 * i);
    });
  });
}

void decode_boxes_kernel(Cpu, const Tensor& codes, const Tensor& references,
                         const BoxCoding& coding, const Tensor& y) {
  const int64_t each = y.size(1) / 4;
  with_real(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *from = codes.data<T>(), *seen_from = references.data<T>();
    T* out = y.mut<T>();
    parallel_for(0, y.size(0) * each, kBoxGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        boxes::decode(from + 4 * i, seen_from + i / each * 4, boxes::weights_of(coding),
                      out + 4 * i);
    });
  });
}

Tensor box_iou(const Tensor& a, const Tensor& b) { return overlaps("box_iou", a, b, false); }
Tensor box_giou(const Tensor& a, const Tensor& b) { return overlaps("box_giou", a, b, true); }

Tensor encode_boxes(const Tensor& boxes, const Tensor& references, const BoxCoding& coding) {
  check_boxes("encode_boxes", "boxes", boxes);
  check_shape("encode_boxes", "references", references, boxes.shape());
  check_same("encode_boxes", boxes, {&references});
  Tensor y = Tensor::empty(boxes.shape(), boxes.dtype(), boxes.device());
  const Tensor from = contiguous(boxes), seen_from = contiguous(references);
  dispatch(y.device(),
           [&](auto backend) { encode_boxes_kernel(backend, from, seen_from, coding, y); });
  return y;
}

Tensor decode_boxes(const Tensor& codes, const Tensor& references, const BoxCoding& coding) {
  constexpr const char* kOp = "decode_boxes";
  check_dim(kOp, "codes", codes, 2);
  check_box_dtype(kOp, "codes", codes);
  FRUGAL_CHECK(codes.size(1) > 0 && codes.size(1) % 4 == 0,
               "[{}] expected codes [N, K * 4], got {}", kOp, describe(codes));
  check_shape(kOp, "references", references, {codes.size(0), 4});
  check_same(kOp, codes, {&references});
  Tensor y = Tensor::empty(codes.shape(), codes.dtype(), codes.device());
  const Tensor from = contiguous(codes), seen_from = contiguous(references);
  dispatch(y.device(),
           [&](auto backend) { decode_boxes_kernel(backend, from, seen_from, coding, y); });
  return y;
}

}  // namespace frugal::ops

#include "ops/detection/match.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/dense/copy.h"
#include "ops/detection/box_checks.h"
#include "ops/detection/box_kernels.h"

namespace frugal::ops {
namespace {

constexpr int64_t kAnchorGrain = 1 << 10;  // anchors for each thread at least

}  // namespace

void match_boxes_kernel(Cpu, const Tensor& boxes, const Tensor& counts, const Tensor& anchors,
                        const MatchOptions& options, const Tensor& best, const Tensor& y) {
  const int64_t pictures = y.size(0), each = y.size(1), objects = boxes.size(0);
  const auto* number = counts.data<int64_t>();
  FRUGAL_CHECK(std::accumulate(number, number + pictures, int64_t{0}) == objects &&
                   std::all_of(number, number + pictures, [](int64_t n) { return n >= 0; }),
               "[match_boxes] expected counts with the sum {}, got another sum", objects);
  std::vector<int64_t> first(static_cast<size_t>(pictures) + 1);
  std::partial_sum(number, number + pictures, first.begin() + 1);
  with_real(boxes.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *box = boxes.data<T>(), *anchor = anchors.data<T>();
    T* top = best.mut<T>();
    if (options.low_quality)
      parallel_for(0, objects, kAnchorGrain / (each + 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          T most = 0;
          for (int64_t a = 0; a < each; ++a)
            most = std::max(most, boxes::iou(box + 4 * t, anchor + 4 * a));
          top[t] = most;
        }
      });
    const auto low = static_cast<T>(options.low), high = static_cast<T>(options.high);
    parallel_for(0, pictures * each, kAnchorGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto n = static_cast<size_t>(i / each);
        int64_t match = kBackground;
        T most = -1;
        bool keep = false;
        for (int64_t t = first[n]; t < first[n + 1]; ++t) {
          const T overlap = boxes::iou(box + 4 * t, anchor + i % each * 4);
          if (overlap > most) {
            most = overlap;
            match = t;
          }
          keep = keep || (options.low_quality && overlap == top[t]);
        }
        if (match >= 0 && !keep && !(most >= high)) match = most < low ? kBackground : kBetween;
        y.mut<int64_t>()[i] = match;
      }
    });
  });
}

void encode_matches_kernel(Cpu, const Tensor& matches, const Tensor& boxes, const Tensor& anchors,
                           const BoxCoding& coding, const Tensor& y) {
  const int64_t each = matches.size(1);
  const auto* match = matches.data<int64_t>();
  with_real(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *box = boxes.data<T>(), *anchor = anchors.data<T>();
    T* out = y.mut<T>();
    parallel_for(0, matches.numel(), kAnchorGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (match[i] < 0)
          std::fill_n(out + 4 * i, 4, T{0});
        else
          boxes::encode(box + 4 * match[i], anchor + i % each * 4, boxes::weights_of(coding),
                        out + 4 * i);
      }
    });
  });
}

void focal_targets_kernel(Cpu, const Tensor& matches, const Tensor& labels,
                          const FocalTargets& targets) {
  const int64_t pictures = matches.size(0), each = matches.size(1);
  const auto *match = matches.data<int64_t>(), *label = labels.data<int64_t>();
  with_real(targets.class_weight.dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(0, pictures, 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const auto* own = match + n * each;
        const int64_t positive = std::count_if(own, own + each, [](int64_t m) { return m >= 0; });
        const T share = T{1} / static_cast<T>(std::max<int64_t>(positive, 1) * pictures);
        for (int64_t i = n * each; i < (n + 1) * each; ++i) {
          targets.classes.mut<int64_t>()[i] = match[i] >= 0 ? label[match[i]] : -1;
          targets.class_weight.mut<T>()[i] = match[i] == kBetween ? T{0} : share;
          targets.box_weight.mut<T>()[i] = match[i] >= 0 ? share : T{0};
        }
      }
    });
  });
}

Tensor match_boxes(const Tensor& boxes, const Tensor& counts, const Tensor& anchors,
                   const MatchOptions& options) {
  constexpr const char* kOp = "match_boxes";
  check_boxes(kOp, "boxes", boxes);
  check_boxes(kOp, "anchors", anchors);
  check_same(kOp, boxes, {&anchors});
  check_dim(kOp, "counts", counts, 1);
  check_i64(kOp, "counts", counts, counts.shape(), boxes.device());
  FRUGAL_CHECK(options.low <= options.high,
               "[match_boxes] expected low to be at most high, got {} and {}", options.low,
               options.high);
  Tensor y = Tensor::empty({counts.size(0), anchors.size(0)}, DType::i64, boxes.device());
  const CategoryScope scope(Category::workspace);
  const Tensor best = Tensor::empty({boxes.size(0)}, boxes.dtype(), boxes.device());
  const Tensor from = contiguous(boxes), all = contiguous(anchors), number = contiguous(counts);
  dispatch(y.device(),
           [&](auto backend) { match_boxes_kernel(backend, from, number, all, options, best, y); });
  return y;
}

Tensor encode_matches(const Tensor& matches, const Tensor& boxes, const Tensor& anchors,
                      const BoxCoding& coding) {
  constexpr const char* kOp = "encode_matches";
  check_boxes(kOp, "boxes", boxes);
  check_boxes(kOp, "anchors", anchors);
  check_same(kOp, boxes, {&anchors});
  check_dim(kOp, "matches", matches, 2);
  check_i64(kOp, "matches", matches, {matches.size(0), anchors.size(0)}, boxes.device());
  Tensor y = Tensor::empty({matches.size(0), matches.size(1), 4}, boxes.dtype(), boxes.device());
  const Tensor which = contiguous(matches), from = contiguous(boxes), all = contiguous(anchors);
  dispatch(y.device(),
           [&](auto backend) { encode_matches_kernel(backend, which, from, all, coding, y); });
  return y;
}

FocalTargets focal_targets(const Tensor& matches, const Tensor& labels, DType dtype) {
  constexpr const char* kOp = "focal_targets";
  check_dim(kOp, "matches", matches, 2);
  check_dim(kOp, "labels", labels, 1);
  check_i64(kOp, "matches", matches, matches.shape(), labels.device());
  check_i64(kOp, "labels", labels, labels.shape(), labels.device());
  const Shape shape = {matches.numel()};
  const FocalTargets targets = {Tensor::empty(shape, DType::i64, labels.device()),
                                Tensor::empty(shape, dtype, labels.device()),
                                Tensor::empty(shape, dtype, labels.device())};
  const Tensor which = contiguous(matches), names = contiguous(labels);
  dispatch(labels.device(),
           [&](auto backend) { focal_targets_kernel(backend, which, names, targets); });
  return targets;
}

}  // namespace frugal::ops

#include "ops/detection/nms.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/dtype_switch.h"
#include "core/integers.h"
#include "core/parallel.h"
#include "ops/dense/copy.h"
#include "ops/detection/box_checks.h"
#include "ops/detection/box_kernels.h"

namespace frugal::ops {
namespace {

constexpr int64_t kWord = 64;

// The rows by falling scores.
std::vector<int64_t> by_score(const Tensor& scores) {
  const std::vector<double> score = scores.to_vector();
  for (size_t i = 0; i < score.size(); ++i)
    FRUGAL_CHECK(!std::isnan(score[i]), "[nms] expected numbers as scores, got nan in row {}", i);
  std::vector<int64_t> order(score.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)];
  });
  return order;
}

}  // namespace

void nms_kernel(Cpu, const Tensor& boxes, const Tensor& order, const Tensor& groups,
                double threshold, const Tensor& suppresses) {
  const int64_t n = order.numel(), words = suppresses.size(1);
  const auto* row = order.data<int64_t>();
  const int64_t* group = groups.defined() ? groups.data<int64_t>() : nullptr;
  with_real(boxes.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* box = boxes.data<T>();
    parallel_for(0, n, 4096 / (n + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t* out = suppresses.mut<int64_t>() + i * words;
        std::fill_n(out, words, int64_t{0});
        for (int64_t j = i + 1; j < n; ++j) {
          if (group != nullptr && group[row[i]] != group[row[j]]) continue;
          if (static_cast<double>(boxes::iou(box + 4 * row[i], box + 4 * row[j])) > threshold)
            out[j / kWord] |= static_cast<int64_t>(uint64_t{1} << (j % kWord));
        }
      }
    });
  });
}

Tensor nms(const Tensor& boxes, const Tensor& scores, double threshold, const Tensor& groups) {
  check_boxes("nms", "boxes", boxes);
  check_shape("nms", "scores", scores, {boxes.size(0)});
  check_same("nms", boxes, {&scores});
  if (groups.defined()) check_i64("nms", "groups", groups, {boxes.size(0)}, boxes.device());
  const int64_t n = boxes.size(0), words = ceil_div(n, kWord);
  if (boxes.device() == kMeta) return Tensor::empty({n}, DType::i64, kMeta);
  std::vector<int64_t> taken;
  {
    const CategoryScope scope(Category::workspace);
    const std::vector<int64_t> by_falling_score = by_score(scores);
    const Tensor order = to_device(Tensor::from(by_falling_score, {n}), boxes.device());
    const Tensor suppresses = Tensor::empty({n, words}, DType::i64, boxes.device());
    const Tensor all = contiguous(boxes);
    const Tensor own = groups.defined() ? contiguous(groups) : groups;
    dispatch(boxes.device(),
             [&](auto backend) { nms_kernel(backend, all, order, own, threshold, suppresses); });
    const Tensor read = to_device(suppresses, kCpu);
    const auto* bits = read.data<int64_t>();
    std::vector<uint64_t> gone(static_cast<size_t>(words));
    for (int64_t i = 0; i < n; ++i) {
      if ((gone[static_cast<size_t>(i / kWord)] >> (i % kWord) & 1) != 0) continue;
      taken.push_back(by_falling_score[static_cast<size_t>(i)]);
      for (int64_t w = i / kWord; w < words; ++w)
        gone[static_cast<size_t>(w)] |= static_cast<uint64_t>(bits[i * words + w]);
    }
  }
  return to_device(Tensor::from(taken, {static_cast<int64_t>(taken.size())}), boxes.device());
}

}  // namespace frugal::ops

#include "train/targets.h"

#include <algorithm>

#include "data/dataset.h"

namespace frugal::train {
namespace {

// The rows whose targets count. The first target of a row tells whether they do.
Tensor counted_rows(const Tensor& target) {
  std::vector<int64_t> rows;
  const int64_t width = target.numel() / std::max<int64_t>(target.size(0), 1);
  for (int64_t row = 0; row < target.size(0); ++row)
    if (has_several_labels(target) ? target.data<float>()[row * width] >= 0
                                   : target.data<int64_t>()[row] != kIgnored)
      rows.push_back(row);
  return Tensor::from(rows, {static_cast<int64_t>(rows.size())});
}

template <class T>
Tensor pick(const Tensor& from, const Tensor& rows) {
  Shape shape = from.shape();
  const int64_t width = from.numel() / std::max<int64_t>(shape[0], 1);
  shape[0] = rows.size(0);
  const Tensor to = Tensor::empty(shape, from.dtype());
  for (int64_t i = 0; i < shape[0]; ++i)
    std::copy_n(from.data<T>() + rows.data<int64_t>()[i] * width, width, to.mut<T>() + i * width);
  return to;
}

}  // namespace

bool has_several_labels(const Tensor& target) { return is_floating(target.dtype()); }

CountedNodes counted_nodes(const Tensor& target, const Tensor& weights) {
  const bool several = has_several_labels(target);
  const CategoryScope scope(Category::input);
  const Tensor rows = counted_rows(target);
  if (!several && (rows.size(0) == 0 || 2 * rows.size(0) > target.size(0)))
    return {{}, target, weights};
  return {rows, several ? pick<float>(target, rows) : pick<int64_t>(target, rows),
          weights.defined() ? pick<float>(weights, rows) : weights};
}

}  // namespace frugal::train

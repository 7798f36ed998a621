#include "train/metrics/knn.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/contrastive_functions.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/matmul.h"

namespace frugal::train {
namespace {

constexpr int64_t kRowsAtOnce = 64;  // rows that are multiplied with all features at once

Tensor units(const Tensor& features) {
  const CategoryScope scope(Category::workspace);
  return ops::contiguous(unit_rows(features));
}

}  // namespace

Knn::Knn(const Tensor& features, std::vector<int64_t> labels, int64_t classes,
         const KnnOptions& options)
    : labels_(std::move(labels)), classes_(classes), options_(options) {
  ops::check_dim("knn", "the features", features, 2);
  FRUGAL_CHECK(features.size(0) > 0 && features.size(0) == static_cast<int64_t>(labels_.size()),
               "[knn] expected a label for each of at least one feature, got {} for {}",
               labels_.size(), features.shape());
  for (const int64_t label : labels_)
    FRUGAL_CHECK(label >= 0 && label < classes, "[knn] expected labels in [0, {}), got {}", classes,
                 label);
  FRUGAL_CHECK(options.k >= 1 && options.temperature > 0,
               "[knn] expected a k of at least 1 and a temperature above 0, got {} and {}",
               options.k, options.temperature);
  options_.k = std::min(options.k, features.size(0));
  bank_ = units(features);
}

std::vector<int64_t> Knn::classify(const Tensor& features) const {
  ops::check_shape("knn", "the features", features, {features.size(0), bank_.size(1)});
  const Tensor rows = units(features);
  const int64_t count = rows.size(0), known = bank_.size(0);
  std::vector<int64_t> answers(static_cast<size_t>(count));
  const CategoryScope scope(Category::workspace);
  for (int64_t begin = 0; begin < count; begin += kRowsAtOnce) {
    const int64_t end = std::min(count, begin + kRowsAtOnce);
    const Tensor cosines = ops::linear(rows.slice(0, begin, end), bank_, {});
    const float* all = cosines.data<float>();
    parallel_for(begin, end, 1, [&](int64_t first, int64_t last) {
      std::vector<int64_t> order(static_cast<size_t>(known));
      std::vector<double> votes(static_cast<size_t>(classes_));
      for (int64_t row = first; row < last; ++row) {
        const float* cosine = all + (row - begin) * known;
        std::iota(order.begin(), order.end(), int64_t{0});
        const auto nearer = [&](int64_t a, int64_t b) {
          return cosine[a] != cosine[b] ? cosine[a] > cosine[b] : a < b;
        };
        const auto behind = order.begin() + static_cast<std::ptrdiff_t>(options_.k);
        std::nth_element(order.begin(), behind - 1, order.end(), nearer);
        std::sort(order.begin(), behind);  // so that votes add up in one order
        std::fill(votes.begin(), votes.end(), 0.0);
        for (auto at = order.begin(); at != behind; ++at)
          votes[static_cast<size_t>(labels_[static_cast<size_t>(*at)])] +=
              std::exp(static_cast<double>(cosine[*at]) / options_.temperature);
        answers[static_cast<size_t>(row)] =
            std::max_element(votes.begin(), votes.end()) - votes.begin();
      }
    });
  }
  return answers;
}

}  // namespace frugal::train

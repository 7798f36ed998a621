// Classification by nearest neighbours, which judges features without training on them.
#pragma once
#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "train/tasks/make_task.h"

namespace frugal::train {

// Features with classes. The neighbours of a feature are those with the highest cosine; among equal
// cosines the first ones. A neighbour of cosine s has e^(s / temperature) votes for its class, and
// the class with most votes is the answer; among equal ones the lowest.
// Ref: Wu et al. 2018, section 3.4. Results do not depend on the number of threads.
class Knn {
 public:
  // features [M, D] f32 on the cpu; labels: M of them in [0, classes).  Errors: other shapes, no
  // features, labels outside, k below 1, a temperature not above 0.
  Knn(const Tensor& features, std::vector<int64_t> labels, int64_t classes,
      const KnnOptions& options = {});

  // The class of each row of features [N, D] f32 on the cpu.  Errors: another D.
  std::vector<int64_t> classify(const Tensor& features) const;

 private:
  Tensor bank_;  // unit rows
  std::vector<int64_t> labels_;
  int64_t classes_;
  KnnOptions options_;
};

}  // namespace frugal::train

#include "data/dataset.h"

#include <utility>

namespace frugal {

TargetRows::TargetRows(std::vector<float> rows, int64_t columns, FloatTargets what)
    : width(columns), kind(what) {
  FRUGAL_CHECK(columns >= 1 && rows.size() % static_cast<size_t>(columns) == 0,
               "[dataset] expected rows of {} targets, got {} numbers", columns, rows.size());
  values = std::make_shared<const std::vector<float>>(std::move(rows));
}

Sample Dataset::get(int64_t index, RngKey key) const {
  FRUGAL_CHECK(index >= 0 && index < size(), "[dataset] expected an index in [0, {}), got {}",
               size(), index);
  const CategoryScope category(Category::input);
  Sample sample;
  sample.input = Tensor::empty(sample_shape());
  sample.label = get_into(index, key, sample.input.mut<float>());
  return sample;
}

void Dataset::get_pixels_into(int64_t, RngKey, float*, int64_t*) const {
  FRUGAL_ASSERT(false);  // a dataset with a target_shape() writes targets
}

}  // namespace frugal

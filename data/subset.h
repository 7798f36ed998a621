// Subset: a range of another dataset's samples.
#pragma once
#include <algorithm>

#include "data/dataset.h"

namespace frugal::data {

// Samples [begin, end) of `inner`. An end of -1 means the last sample. Errors: a range outside
// inner.
class Subset : public Dataset {
 public:
  Subset(DatasetPtr inner, int64_t begin, int64_t end)
      : inner_(std::move(inner)), begin_(begin), end_(end < 0 ? inner_->size() : end) {
    FRUGAL_CHECK(0 <= begin_ && begin_ <= end_ && end_ <= inner_->size(),
                 "[subset] expected 0 <= begin <= end <= {}, got [{}, {})", inner_->size(), begin,
                 end);
  }
  int64_t size() const override { return end_ - begin_; }
  int64_t classes() const override { return inner_->classes(); }
  Shape sample_shape() const override { return inner_->sample_shape(); }
  TargetRows target_rows() const override { return inner_->target_rows(); }
  int64_t get_into(int64_t index, RngKey key, float* out) const override {
    return inner_->get_into(begin_ + index, key, out);
  }
  Shape target_shape() const override { return inner_->target_shape(); }
  void get_pixels_into(int64_t index, RngKey key, float* out, int64_t* target) const override {
    inner_->get_pixels_into(begin_ + index, key, out, target);
  }

 private:
  DatasetPtr inner_;
  int64_t begin_, end_;
};

// The first `count` samples, or all of them when there are fewer.
inline DatasetPtr first(DatasetPtr inner, int64_t count) {
  const int64_t end = std::min(count, inner->size());
  return std::make_shared<Subset>(std::move(inner), 0, end);
}

}  // namespace frugal::data

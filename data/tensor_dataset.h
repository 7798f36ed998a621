// TensorDataset: samples from arrays of numbers in memory.
#pragma once
#include <string>
#include <vector>

#include "data/dataset.h"

namespace frugal::data {

// What the samples' targets are.
struct SampleTargets {
  std::vector<int64_t> labels;  // for each sample: a class, or a row of `rows`
  int64_t classes = 0;          // number of classes, labels or values
  TargetRows rows = {};
};

// Errors: a number of f32 samples [N, ...] that is not finite, with its sample. The message names
// the samples `where`.
void check_finite_samples(const std::string& where, const Tensor& samples);

// Samples of one shape as f32: those of an array [N, ...]. Bytes count as 0 to 1 (divided by 255),
// other numbers as they are. The allocator does not count them, because they stay on the host when
// the device is a GPU.
class TensorDataset : public Dataset {
 public:
  // inputs: contiguous, on the cpu, f32 or u8, with `targets.labels` samples. channels_first:
  // [N, C, H, W] becomes [N, H, W, C] as samples are read. Messages name the inputs `where`.
  // Errors: other dtypes, no samples, numbers of samples or labels that do not fit, a number that
  // is not finite (with its sample).
  TensorDataset(const std::string& where, const Tensor& inputs, SampleTargets targets,
                bool channels_first = false);
  int64_t size() const override { return static_cast<int64_t>(targets_.labels.size()); }
  int64_t classes() const override { return targets_.classes; }
  Shape sample_shape() const override { return shape_; }
  TargetRows target_rows() const override { return targets_.rows; }
  int64_t get_into(int64_t index, RngKey key, float* out) const override;

 private:
  std::vector<float> floats_;  // one of the two holds the samples
  std::vector<uint8_t> bytes_;
  SampleTargets targets_;
  Shape shape_;
  bool channels_first_;
};

// Some samples of another dataset, by their indices. Errors: an index outside it.
class Selection : public Dataset {
 public:
  Selection(DatasetPtr inner, std::vector<int64_t> indices);
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  int64_t classes() const override { return inner_->classes(); }
  Shape sample_shape() const override { return inner_->sample_shape(); }
  TargetRows target_rows() const override { return inner_->target_rows(); }
  int64_t get_into(int64_t index, RngKey key, float* out) const override {
    return inner_->get_into(indices_[static_cast<size_t>(index)], key, out);
  }
  Shape target_shape() const override { return inner_->target_shape(); }
  void get_pixels_into(int64_t index, RngKey key, float* out, int64_t* target) const override {
    inner_->get_pixels_into(indices_[static_cast<size_t>(index)], key, out, target);
  }

 private:
  DatasetPtr inner_;
  std::vector<int64_t> indices_;
};

}  // namespace frugal::data

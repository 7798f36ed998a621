// Datasets in memory: ImageDataset of 8-bit images, as files hold them, and MemoryDataset of
// numbers. The allocator does not count them, because they stay on the host when the device is a
// GPU.
#pragma once
#include <vector>

#include "data/dataset.h"

namespace frugal::data {

// 8-bit images [N, H, W, C]. A sample's values are the bytes / 255. Errors: a number of bytes or
// labels that differs from the shape's; a label outside [0, classes).
class ImageDataset : public Dataset {
 public:
  ImageDataset(std::vector<uint8_t> pixels, const Shape& shape, std::vector<int64_t> labels,
               int64_t classes);
  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  int64_t classes() const override { return classes_; }
  Shape sample_shape() const override { return sample_shape_; }
  int64_t get_into(int64_t index, RngKey key, float* out) const override;

 private:
  std::vector<uint8_t> pixels_;
  std::vector<int64_t> labels_;
  Shape sample_shape_;
  int64_t classes_;
};

// What contiguous tensors on the cpu hold: inputs [N, H, W, C] f32, which are not scaled, and
// labels [N] i64. It is copied, so the tensors may go. Errors: other dtypes or shapes, a label
// outside [0, classes).
class MemoryDataset : public Dataset {
 public:
  MemoryDataset(const Tensor& inputs, const Tensor& labels, int64_t classes);
  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  int64_t classes() const override { return classes_; }
  Shape sample_shape() const override { return sample_shape_; }
  int64_t get_into(int64_t index, RngKey key, float* out) const override;

 private:
  std::vector<float> inputs_;
  std::vector<int64_t> labels_;
  Shape sample_shape_;
  int64_t classes_;
};

}  // namespace frugal::data

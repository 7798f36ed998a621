// Datasets held in memory: 8-bit images as the file formats give them, and tensors of the caller's.
#pragma once
#include <vector>

#include "data/dataset.h"

namespace frugal::data {

// 8-bit images [N, H, W, C]; a sample is value / 255. Host memory of the process, in no category:
// the accounts are of what a device would hold.
// Errors: bytes or labels of another count than the shape says, a label outside [0, classes).
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

// Contiguous cpu tensors: inputs [N, H, W, C] f32, taken as they are, and labels [N] i64.
// Errors: other dtypes or shapes, a label outside [0, classes).
class MemoryDataset : public Dataset {
 public:
  MemoryDataset(Tensor inputs, Tensor labels, int64_t classes);
  int64_t size() const override { return inputs_.size(0); }
  int64_t classes() const override { return classes_; }
  Shape sample_shape() const override;
  int64_t get_into(int64_t index, RngKey key, float* out) const override;

 private:
  Tensor inputs_, labels_;
  int64_t classes_;
};

}  // namespace frugal::data

// Decorators of image datasets. A random decorator draws from the sample's key and gives its inner
// dataset another key, derived from that. So decorators of one sample are independent of each
// other, and equal keys give equal samples.
#pragma once
#include <vector>

#include "data/dataset.h"

namespace frugal::data {

// The base of decorators that keep size, classes and shape.
class Transform : public Dataset {
 public:
  explicit Transform(DatasetPtr inner) : inner_(std::move(inner)), shape_(inner_->sample_shape()) {}
  int64_t size() const override { return inner_->size(); }
  int64_t classes() const override { return inner_->classes(); }
  Shape sample_shape() const override { return shape_; }
  TargetRows target_rows() const override { return inner_->target_rows(); }

 protected:
  DatasetPtr inner_;
  Shape shape_;  // [H, W, C]
};

// The base of those that change values and move no pixels. So classes of pixels stay as they are.
class ValueTransform : public Transform {
 public:
  using Transform::Transform;
  Shape target_shape() const override { return inner_->target_shape(); }
  int64_t get_into(int64_t index, RngKey key, float* out) const override;
  void get_pixels_into(int64_t index, RngKey key, float* out, int64_t* target) const override;

 private:
  // Changes one sample, and the key of the inner dataset.
  virtual void change(RngKey key, float* out) const = 0;
  virtual RngKey key_within(RngKey key) const;
};

// (x - mean[c]) / std[c]. Errors: a number of means or stds that differs from the channels'; a mean
// that is not finite; a std that is not positive and finite.
class Normalize : public ValueTransform {
 public:
  Normalize(DatasetPtr inner, const std::vector<double>& mean, const std::vector<double>& std);

 private:
  void change(RngKey key, float* out) const override;
  RngKey key_within(RngKey key) const override { return key; }

  std::vector<float> mean_, scale_;  // [W * C]: one row, so that the loop has no inner channel loop
};

// Adds `padding` pixels of `value` on each side and takes a random crop of the image's former size.
// Errors: padding < 0.
class PadCrop : public Transform {
 public:
  PadCrop(DatasetPtr inner, int64_t padding, float value = 0);
  int64_t get_into(int64_t index, RngKey key, float* out) const override;

 private:
  int64_t padding_;
  float value_;
};

// Mirrors left and right with probability p, classes of pixels too. Errors: p outside [0, 1].
class HorizontalFlip : public Transform {
 public:
  explicit HorizontalFlip(DatasetPtr inner, double p = 0.5);
  Shape target_shape() const override { return inner_->target_shape(); }
  int64_t get_into(int64_t index, RngKey key, float* out) const override;
  void get_pixels_into(int64_t index, RngKey key, float* out, int64_t* target) const override;

 private:
  double p_;
};

// Sets a square of `side` pixels around a uniformly drawn centre, clipped at the border, to
// `value`. Errors: side < 0.  Ref: DeVries and Taylor 2017.
class Cutout : public Transform {
 public:
  Cutout(DatasetPtr inner, int64_t side, float value = 0);
  int64_t get_into(int64_t index, RngKey key, float* out) const override;

 private:
  int64_t side_;
  float value_;
};

// Mean and standard deviation of each channel over all samples, for Normalize.
struct ChannelStats {
  std::vector<double> mean, std;
};
ChannelStats channel_stats(const Dataset& dataset);

}  // namespace frugal::data

// Random changes of pictures while training. Each decorates a dataset whose samples are [H, W, C]
// f32 in [0, 1] (so Normalize comes after them), and draws from the sample's key as transforms.h
// says. Names and default strengths are those of torchvision's transforms.
#pragma once
#include "data/image/transforms.h"

namespace frugal::data {

// Brightness, contrast, saturation and hue change by random factors, in random order. A factor of
// the first three is uniform in [max(0, 1 - x), 1 + x]; hue turns by up to `hue` of a circle.
// Errors: a strength below 0, hue above 0.5, one channel with saturation or hue.
struct ColorJitterOptions {
  double brightness = 0.4, contrast = 0.4, saturation = 0.4, hue = 0.1;
  double p = 1;  // probability that a sample is changed
};
class ColorJitter : public ValueTransform {
 public:
  ColorJitter(DatasetPtr inner, const ColorJitterOptions& options);

 private:
  void change(RngKey key, float* out) const override;

  ColorJitterOptions options_;
};

// A random part of at least `least_area` of the picture's area, with sides in a ratio of 3/4 to
// 4/3, is resized to the picture's own size: bilinear, of the part alone, as torchvision's
// RandomResizedCrop with antialiasing. Errors: least_area not in (0, 1].
class RandomResizedCrop : public Transform {
 public:
  RandomResizedCrop(DatasetPtr inner, double least_area);
  int64_t get_into(int64_t index, RngKey key, float* out) const override;

 private:
  double least_area_;
};

// Values of at least `threshold` become 1 minus themselves, with probability p. Errors: p outside
// [0, 1].  Ref: Grill et al. 2020 (BYOL), appendix B, whose threshold is 0.5.
class Solarize : public ValueTransform {
 public:
  Solarize(DatasetPtr inner, double p, double threshold = 0.5);

 private:
  void change(RngKey key, float* out) const override;

  double p_, threshold_;
};

// Three equal channels of luminance, with probability p. Errors: p outside [0, 1], not 3 channels.
class RandomGrayscale : public ValueTransform {
 public:
  RandomGrayscale(DatasetPtr inner, double p);

 private:
  void change(RngKey key, float* out) const override;

  double p_;
};

// A Gaussian blur whose deviation is uniform in [least, most] pixels, with probability p; edges are
// mirrored. Errors: p outside [0, 1], not 0 < least <= most.
class GaussianBlur : public ValueTransform {
 public:
  GaussianBlur(DatasetPtr inner, double p, double least = 0.1, double most = 2.0);

 private:
  void change(RngKey key, float* out) const override;

  double p_, least_, most_;
};

// `count` random operations (shear, move, turn, colours, posterize, solarize, ...), each of
// strength `magnitude` of 30.  Ref: Cubuk et al. 2020. Errors: count < 0, magnitude outside [0,
// 30].
class RandAugment : public Transform {
 public:
  explicit RandAugment(DatasetPtr inner, int64_t count = 2, int64_t magnitude = 9);
  int64_t get_into(int64_t index, RngKey key, float* out) const override;

 private:
  int64_t count_, magnitude_;
};

// One random operation of a random strength, in wider ranges.  Ref: Müller and Hutter 2021.
class TrivialAugment : public Transform {
 public:
  explicit TrivialAugment(DatasetPtr inner);
  int64_t get_into(int64_t index, RngKey key, float* out) const override;
};

// Sets a random rectangle to `value`, with probability p: its area is 0.02 to 0.33 of the picture,
// its sides in a ratio of 0.3 to 3.3.  Ref: Zhong et al. 2020. Errors: p outside [0, 1].
class RandomErasing : public Transform {
 public:
  RandomErasing(DatasetPtr inner, double p, float value = 0);
  int64_t get_into(int64_t index, RngKey key, float* out) const override;

 private:
  double p_;
  float value_;
};

}  // namespace frugal::data

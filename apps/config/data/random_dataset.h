// Noise with a faint pattern per class: images of any size without files, which a network can
// learn.
#pragma once
#include <algorithm>

#include "apps/config/config.h"
#include "core/random/random_streams.h"
#include "data/dataset.h"

namespace frugal::apps {

// How many samples random data have: as many as asked for, or 2048 to train on, or two batches
// where those are more, and 512 to test.
inline int64_t random_samples(const DataConfig& config, bool train) {
  const int64_t wanted = train ? config.train_samples : config.test_samples;
  if (wanted > 0) return wanted;
  return train ? std::max<int64_t>(2048, 2 * config.batch_size) : 512;
}

class RandomDataset : public Dataset {
 public:
  // `stream`: samples draw from it. Train and test have one each; their patterns are equal.
  RandomDataset(const Shape& shape, int64_t classes, int64_t size, uint64_t seed,
                const RandomStream& stream)
      : shape_(shape), classes_(classes), size_(size), seed_(seed), stream_(stream) {}
  int64_t size() const override { return size_; }
  int64_t classes() const override { return classes_; }
  Shape sample_shape() const override { return shape_; }
  int64_t get_into(int64_t index, RngKey, float* out) const override {
    const RngKey noise = stream_.key(seed_, static_cast<uint64_t>(index));
    const auto label = uniform_int(noise, 0, static_cast<uint64_t>(classes_));
    const RngKey pattern = streams::kImageClasses.key(seed_, label);
    const int64_t n = shape_.numel();
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<uint64_t>(i);
      // Two uniforms, centred: cheap, and close enough to a bell.
      out[i] = (uniform(noise, at + 1) + uniform(noise, at + 1 + static_cast<uint64_t>(n)) - 1) +
               2 * uniform(pattern, at) - 1;
    }
    return static_cast<int64_t>(label);
  }

 protected:
  Shape shape_;
  int64_t classes_, size_;
  uint64_t seed_;
  RandomStream stream_;
};

// Random pictures with a class for each pixel: squares of one class each, which has a colour.
class RandomMasks : public RandomDataset {
 public:
  using RandomDataset::RandomDataset;
  Shape target_shape() const override { return {shape_[0], shape_[1]}; }
  void get_pixels_into(int64_t index, RngKey, float* out, int64_t* target) const override {
    constexpr int64_t kSide = 8;  // pixels of a square's side
    const RngKey noise = stream_.key(seed_, static_cast<uint64_t>(index));
    const int64_t columns = (shape_[1] + kSide - 1) / kSide, channels = shape_[2];
    for (int64_t h = 0; h < shape_[0]; ++h)
      for (int64_t w = 0; w < shape_[1]; ++w) {
        const auto square = static_cast<uint64_t>(h / kSide * columns + w / kSide);
        const auto label = uniform_int(noise, square, static_cast<uint64_t>(classes_));
        *target++ = static_cast<int64_t>(label);
        const RngKey colour = streams::kImageClasses.key(seed_, label);
        for (int64_t c = 0; c < channels; ++c) {
          const auto at = static_cast<uint64_t>((h * shape_[1] + w) * channels + c);
          *out++ = uniform(noise, at + (uint64_t{1} << 32)) - 0.5f +
                   2 * uniform(colour, static_cast<uint64_t>(c)) - 1;
        }
      }
  }
};

}  // namespace frugal::apps

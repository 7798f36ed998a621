// Noise with a faint pattern per class: images of any size without files, which a network can
// learn.
#pragma once
#include "data/dataset.h"

namespace frugal::apps {

class RandomDataset : public Dataset {
 public:
  RandomDataset(const Shape& shape, int64_t classes, int64_t size, uint64_t seed, uint64_t stream)
      : shape_(shape), classes_(classes), size_(size), seed_(seed), stream_(stream) {}
  int64_t size() const override { return size_; }
  int64_t classes() const override { return classes_; }
  Shape sample_shape() const override { return shape_; }
  int64_t get_into(int64_t index, RngKey, float* out) const override {
    // Streams: classes below 2^32, then one range of 2^48 samples for each of train and test.
    const RngKey noise{seed_, (stream_ << 48) + static_cast<uint64_t>(index)};
    const auto label = uniform_int(noise, 0, static_cast<uint64_t>(classes_));
    const RngKey pattern{seed_, label};
    const int64_t n = shape_.numel();
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<uint64_t>(i);
      // Two uniforms, centred: cheap, and close enough to a bell.
      out[i] = (uniform(noise, at + 1) + uniform(noise, at + 1 + static_cast<uint64_t>(n)) - 1) +
               2 * uniform(pattern, at) - 1;
    }
    return static_cast<int64_t>(label);
  }

 private:
  Shape shape_;
  int64_t classes_, size_;
  uint64_t seed_, stream_;
};

}  // namespace frugal::apps

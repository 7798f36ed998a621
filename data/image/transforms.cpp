#include "data/image/transforms.h"

#include <algorithm>
#include <cmath>

#include "data/image/draws.h"

namespace frugal::data {

RngKey ValueTransform::key_within(RngKey key) const { return inner_key(key); }

int64_t ValueTransform::get_into(int64_t index, RngKey key, float* out) const {
  const int64_t label = inner_->get_into(index, key_within(key), out);
  change(key, out);
  return label;
}

void ValueTransform::get_pixels_into(int64_t index, RngKey key, float* out, int64_t* target) const {
  inner_->get_pixels_into(index, key_within(key), out, target);
  change(key, out);
}

Normalize::Normalize(DatasetPtr inner, const std::vector<double>& mean,
                     const std::vector<double>& std)
    : ValueTransform(std::move(inner)) {
  const auto channels = static_cast<size_t>(shape_.back());
  FRUGAL_CHECK(mean.size() == channels && std.size() == channels,
               "[normalize] expected a mean and a std for each of {} channels, got {} and {}",
               channels, mean.size(), std.size());
  for (size_t c = 0; c < channels; ++c)
    FRUGAL_CHECK(std::isfinite(mean[c]) && std::isfinite(std[c]) && std[c] > 0,
                 "[normalize] expected finite means and positive stds, got {} and {} at channel {}",
                 mean[c], std[c], c);
  for (int64_t w = 0; w < shape_[1]; ++w)
    for (size_t c = 0; c < channels; ++c) {
      mean_.push_back(static_cast<float>(mean[c]));
      scale_.push_back(static_cast<float>(1 / std[c]));
    }
}

void Normalize::change(RngKey, float* out) const {
  const float *mean = mean_.data(), *scale = scale_.data();
  const size_t row = mean_.size();
  for (int64_t h = 0; h < shape_[0]; ++h, out += row)
    for (size_t i = 0; i < row; ++i) out[i] = (out[i] - mean[i]) * scale[i];
}

PadCrop::PadCrop(DatasetPtr inner, int64_t padding, float value)
    : Transform(std::move(inner)), padding_(padding), value_(value) {
  FRUGAL_CHECK(padding >= 0, "[pad_crop] expected a padding of at least 0, got {}", padding);
}

int64_t PadCrop::get_into(int64_t index, RngKey key, float* out) const {
  const int64_t height = shape_[0], width = shape_[1], channels = shape_[2];
  std::vector<float> image(static_cast<size_t>(shape_.numel()));
  const int64_t label = inner_->get_into(index, inner_key(key), image.data());
  const int64_t down = draw(key, 0, 2 * padding_ + 1) - padding_;
  const int64_t right = draw(key, 1, 2 * padding_ + 1) - padding_;
  std::fill_n(out, shape_.numel(), value_);
  const int64_t begin = std::max<int64_t>(0, -right), end = std::min(width, width - right);
  if (begin >= end) return label;
  for (int64_t h = std::max<int64_t>(0, -down); h < std::min(height, height - down); ++h)
    std::copy_n(image.data() + ((h + down) * width + begin + right) * channels,
                (end - begin) * channels, out + (h * width + begin) * channels);
  return label;
}

namespace {

// Left and right of values [height, width, channels].
template <class T>
void mirror_rows(T* values, int64_t height, int64_t width, int64_t channels) {
  for (int64_t h = 0; h < height; ++h) {
    T* row = values + h * width * channels;
    for (int64_t w = 0; w < width / 2; ++w)
      std::swap_ranges(row + w * channels, row + (w + 1) * channels,
                       row + (width - 1 - w) * channels);
  }
}

}  // namespace

HorizontalFlip::HorizontalFlip(DatasetPtr inner, double p) : Transform(std::move(inner)), p_(p) {
  FRUGAL_CHECK(p >= 0 && p <= 1, "[flip] expected a probability in [0, 1], got {}", p);
}

int64_t HorizontalFlip::get_into(int64_t index, RngKey key, float* out) const {
  const int64_t label = inner_->get_into(index, inner_key(key), out);
  if (uniform(key, 0) < p_) mirror_rows(out, shape_[0], shape_[1], shape_[2]);
  return label;
}

void HorizontalFlip::get_pixels_into(int64_t index, RngKey key, float* out, int64_t* target) const {
  inner_->get_pixels_into(index, inner_key(key), out, target);
  if (uniform(key, 0) >= p_) return;
  mirror_rows(out, shape_[0], shape_[1], shape_[2]);
  mirror_rows(target, shape_[0], shape_[1], 1);
}

Cutout::Cutout(DatasetPtr inner, int64_t side, float value)
    : Transform(std::move(inner)), side_(side), value_(value) {
  FRUGAL_CHECK(side >= 0, "[cutout] expected a side of at least 0 pixels, got {}", side);
}

int64_t Cutout::get_into(int64_t index, RngKey key, float* out) const {
  const int64_t label = inner_->get_into(index, inner_key(key), out);
  const int64_t height = shape_[0], width = shape_[1], channels = shape_[2];
  const int64_t top = draw(key, 0, height) - side_ / 2, left = draw(key, 1, width) - side_ / 2;
  const int64_t begin = std::max<int64_t>(0, left), end = std::min(width, left + side_);
  if (begin >= end) return label;
  for (int64_t h = std::max<int64_t>(0, top); h < std::min(height, top + side_); ++h)
    std::fill_n(out + (h * width + begin) * channels, (end - begin) * channels, value_);
  return label;
}

ChannelStats channel_stats(const Dataset& dataset) {
  const Shape shape = dataset.sample_shape();
  const auto channels = static_cast<size_t>(shape.back());
  const auto n = static_cast<size_t>(shape.numel());
  FRUGAL_CHECK(dataset.size() > 0 && n > 0, "[channel_stats] expected samples, got none of {}",
               shape);
  // Differences to the first pixel are summed: with a variance far below the square of the mean,
  // sums of the values would lose its digits.
  std::vector<double> first(channels), sum(channels), squares(channels);
  std::vector<float> image(n);
  for (int64_t index = 0; index < dataset.size(); ++index) {
    dataset.get_into(index, {}, image.data());
    if (index == 0) std::copy_n(image.begin(), channels, first.begin());
    for (size_t i = 0; i < n; ++i) {
      const double x = static_cast<double>(image[i]) - first[i % channels];
      sum[i % channels] += x;
      squares[i % channels] += x * x;
    }
  }
  ChannelStats stats;
  const double count = static_cast<double>(dataset.size()) * static_cast<double>(n / channels);
  for (size_t c = 0; c < channels; ++c) {
    const double mean = sum[c] / count;
    stats.mean.push_back(first[c] + mean);
    stats.std.push_back(std::sqrt(std::max(0.0, squares[c] / count - mean * mean)));
  }
  return stats;
}

}  // namespace frugal::data

#include "data/image/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "data/image/draws.h"

namespace frugal::data {
namespace {

// The pixels of one sample.
struct Pixels {
  float* data = nullptr;
  int64_t height = 0, width = 0, channels = 0;
  int64_t count() const { return height * width; }
  int64_t numel() const { return count() * channels; }
  float* at(int64_t y, int64_t x) const { return data + (y * width + x) * channels; }
};

Pixels pixels_of(const Shape& shape, float* out) { return {out, shape[0], shape[1], shape[2]}; }

float luminance(const float* pixel, int64_t channels) {
  if (channels < 3) return pixel[0];
  return 0.299f * pixel[0] + 0.587f * pixel[1] + 0.114f * pixel[2];
}

float clamped(float value) { return std::clamp(value, 0.0f, 1.0f); }

// factor * value + (1 - factor) * other, within [0, 1].
void brighten(const Pixels& p, double factor) {
  const auto f = static_cast<float>(factor);
  for (int64_t i = 0; i < p.numel(); ++i) p.data[i] = clamped(f * p.data[i]);
}

void change_contrast(const Pixels& p, double factor) {
  double sum = 0;
  for (int64_t i = 0; i < p.count(); ++i) sum += luminance(p.data + i * p.channels, p.channels);
  const auto f = static_cast<float>(factor);
  const float rest = (1 - f) * static_cast<float>(sum / static_cast<double>(p.count()));
  for (int64_t i = 0; i < p.numel(); ++i) p.data[i] = clamped(f * p.data[i] + rest);
}

void saturate(const Pixels& p, double factor) {
  const auto f = static_cast<float>(factor);
  for (int64_t i = 0; i < p.count(); ++i) {
    float* const pixel = p.data + i * p.channels;
    const float rest = (1 - f) * luminance(pixel, p.channels);
    for (int64_t c = 0; c < p.channels; ++c) pixel[c] = clamped(f * pixel[c] + rest);
  }
}

// Turns the hue by `turn` of a circle, in the colour space HSV.
void turn_hue(const Pixels& p, double turn) {
  if (p.channels != 3) return;
  for (int64_t i = 0; i < p.count(); ++i) {
    float* const pixel = p.data + i * 3;
    const float most = std::max({pixel[0], pixel[1], pixel[2]});
    const float least = std::min({pixel[0], pixel[1], pixel[2]}), range = most - least;
    if (range <= 0) continue;
    float hue = 0;  // in sixths of a circle
    if (most == pixel[0])
      hue = (pixel[1] - pixel[2]) / range;
    else if (most == pixel[1])
      hue = (pixel[2] - pixel[0]) / range + 2;
    else
      hue = (pixel[0] - pixel[1]) / range + 4;
    hue += static_cast<float>(6 * turn);
    hue -= 6 * std::floor(hue / 6);
    // A channel's value at this hue: trapezoids that are shifted by a third of a circle.
    for (int c = 0; c < 3; ++c) {
      float k = hue + static_cast<float>(c == 0 ? 5 : c == 1 ? 3 : 1);
      k -= 6 * std::floor(k / 6);
      pixel[c] = most - range * std::clamp(std::min(k, 4 - k), 0.0f, 1.0f);
    }
  }
}

void check_probability(const char* op, double p) {
  FRUGAL_CHECK(p >= 0 && p <= 1, "[{}] expected a probability in [0, 1], got {}", op, p);
}

// Mirrors a position into [0, extent).
int64_t mirrored(int64_t at, int64_t extent) {
  if (extent == 1) return 0;
  const int64_t period = 2 * (extent - 1);
  at = ((at % period) + period) % period;
  return at < extent ? at : period - at;
}

// Convolves with a symmetric kernel of `weights` along one axis: `outer` lines of `extent` values,
// `stride` values apart, for `inner` neighbours each.
void convolve(const std::vector<float>& weights, const Pixels& p, bool along_rows) {
  const auto radius = static_cast<int64_t>(weights.size() / 2);
  const int64_t extent = along_rows ? p.width : p.height;
  const int64_t lines = along_rows ? p.height : p.width;
  std::vector<float> line(static_cast<size_t>(extent * p.channels));
  for (int64_t l = 0; l < lines; ++l) {
    for (int64_t i = 0; i < extent; ++i)
      std::copy_n(along_rows ? p.at(l, i) : p.at(i, l), p.channels, line.data() + i * p.channels);
    for (int64_t i = 0; i < extent; ++i) {
      float* const to = along_rows ? p.at(l, i) : p.at(i, l);
      for (int64_t c = 0; c < p.channels; ++c) {
        float sum = 0;
        for (int64_t k = -radius; k <= radius; ++k)
          sum += weights[static_cast<size_t>(k + radius)] *
                 line[static_cast<size_t>(mirrored(i + k, extent) * p.channels + c)];
        to[c] = sum;
      }
    }
  }
}

void blur(const Pixels& p, double sigma) {
  const auto radius = static_cast<int64_t>(std::ceil(3 * sigma));
  std::vector<float> weights;
  double sum = 0;
  for (int64_t k = -radius; k <= radius; ++k)
    sum += std::exp(-0.5 * static_cast<double>(k * k) / (sigma * sigma));
  for (int64_t k = -radius; k <= radius; ++k)
    weights.push_back(
        static_cast<float>(std::exp(-0.5 * static_cast<double>(k * k) / (sigma * sigma)) / sum));
  convolve(weights, p, true);
  convolve(weights, p, false);
}

// Each output pixel takes the nearest source pixel at matrix * (x, y, 1) about the centre; black
// where that lies outside.
void warp(const Pixels& p, const std::array<double, 6>& m) {
  const std::vector<float> source(p.data, p.data + p.numel());
  const double cx = static_cast<double>(p.width - 1) / 2,
               cy = static_cast<double>(p.height - 1) / 2;
  for (int64_t y = 0; y < p.height; ++y)
    for (int64_t x = 0; x < p.width; ++x) {
      const double dx = static_cast<double>(x) - cx, dy = static_cast<double>(y) - cy;
      const auto sx = static_cast<int64_t>(std::floor(m[0] * dx + m[1] * dy + m[2] + cx + 0.5));
      const auto sy = static_cast<int64_t>(std::floor(m[3] * dx + m[4] * dy + m[5] + cy + 0.5));
      const bool inside = sx >= 0 && sx < p.width && sy >= 0 && sy < p.height;
      for (int64_t c = 0; c < p.channels; ++c)
        p.at(y, x)[c] =
            inside ? source[static_cast<size_t>((sy * p.width + sx) * p.channels + c)] : 0;
    }
}

// From 1: a blurred picture's share is taken away or added.
void sharpen(const Pixels& p, double factor) {
  const std::vector<float> source(p.data, p.data + p.numel());
  const auto at = [&](int64_t y, int64_t x, int64_t c) {
    return source[static_cast<size_t>((y * p.width + x) * p.channels + c)];
  };
  const auto f = static_cast<float>(factor);
  for (int64_t y = 1; y + 1 < p.height; ++y)  // the border stays
    for (int64_t x = 1; x + 1 < p.width; ++x)
      for (int64_t c = 0; c < p.channels; ++c) {
        float sum = 4 * at(y, x, c);  // the centre counts 5 of 13
        for (int64_t i = -1; i <= 1; ++i)
          for (int64_t j = -1; j <= 1; ++j) sum += at(y + i, x + j, c);
        p.at(y, x)[c] = clamped(f * at(y, x, c) + (1 - f) * sum / 13);
      }
}

int level_of(float value) { return static_cast<int>(std::lround(clamped(value) * 255)); }

void posterize(const Pixels& p, int64_t bits) {
  const int mask = ~((1 << (8 - bits)) - 1) & 255;
  for (int64_t i = 0; i < p.numel(); ++i)
    p.data[i] = static_cast<float>(level_of(p.data[i]) & mask) / 255;
}

void solarize(const Pixels& p, double threshold) {
  for (int64_t i = 0; i < p.numel(); ++i)
    if (p.data[i] >= static_cast<float>(threshold)) p.data[i] = 1 - p.data[i];
}

void auto_contrast(const Pixels& p) {
  for (int64_t c = 0; c < p.channels; ++c) {
    float least = 1, most = 0;
    for (int64_t i = 0; i < p.count(); ++i) {
      least = std::min(least, p.data[i * p.channels + c]);
      most = std::max(most, p.data[i * p.channels + c]);
    }
    if (most <= least) continue;
    for (int64_t i = 0; i < p.count(); ++i) {
      float& value = p.data[i * p.channels + c];
      value = (value - least) / (most - least);
    }
  }
}

// Spreads the 256 levels of each channel so that each is used about as often.
void equalize(const Pixels& p) {
  for (int64_t c = 0; c < p.channels; ++c) {
    std::array<int64_t, 256> histogram{};
    for (int64_t i = 0; i < p.count(); ++i)
      ++histogram[static_cast<size_t>(level_of(p.data[i * p.channels + c]))];
    int64_t last = 0;
    for (int64_t count : histogram)
      if (count > 0) last = count;
    const int64_t step = (p.count() - last) / 255;
    if (step == 0) continue;
    std::array<float, 256> map{};
    int64_t before = step / 2;
    for (size_t level = 0; level < 256; ++level) {
      map[level] = static_cast<float>(std::min<int64_t>(before / step, 255)) / 255;
      before += histogram[level];
    }
    for (int64_t i = 0; i < p.count(); ++i) {
      float& value = p.data[i * p.channels + c];
      value = map[static_cast<size_t>(level_of(value))];
    }
  }
}

// The operations of RandAugment and TrivialAugment, and their strongest forms in each.
enum class Operation : uint8_t {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  auto_contrast,
  equalize
};
constexpr int64_t kOperations = 14;
struct Strongest {
  double shear, translate_x, translate_y, degrees, factor;
  int64_t posterize;  // bits that are dropped
};

// `strength` in [0, 1]; `negative`: the other way round, where there is one.
void apply(Operation operation, const Pixels& p, double strength, bool negative,
           const Strongest& most) {
  const double sign = negative ? -1 : 1;
  switch (operation) {
    case Operation::identity:
      return;
    case Operation::shear_x:
      return warp(p, {1, sign * strength * most.shear, 0, 0, 1, 0});
    case Operation::shear_y:
      return warp(p, {1, 0, 0, sign * strength * most.shear, 1, 0});
    case Operation::translate_x:
      return warp(p, {1, 0, -std::trunc(sign * strength * most.translate_x), 0, 1, 0});
    case Operation::translate_y:
      return warp(p, {1, 0, 0, 0, 1, -std::trunc(sign * strength * most.translate_y)});
    case Operation::rotate: {
      const double angle = sign * strength * most.degrees * std::numbers::pi / 180;
      return warp(p, {std::cos(angle), -std::sin(angle), 0, std::sin(angle), std::cos(angle), 0});
    }
    case Operation::brightness:
      return brighten(p, 1 + sign * strength * most.factor);
    case Operation::color:
      return saturate(p, 1 + sign * strength * most.factor);
    case Operation::contrast:
      return change_contrast(p, 1 + sign * strength * most.factor);
    case Operation::sharpness:
      return sharpen(p, 1 + sign * strength * most.factor);
    case Operation::posterize:
      return posterize(p, 8 - std::llround(strength * static_cast<double>(most.posterize)));
    case Operation::solarize:
      return solarize(p, 1 - strength);
    case Operation::auto_contrast:
      return auto_contrast(p);
    case Operation::equalize:
      return equalize(p);
  }
}

constexpr int64_t kLevels = 30;  // levels of strength above 0

}  // namespace

ColorJitter::ColorJitter(DatasetPtr inner, const ColorJitterOptions& options)
    : ValueTransform(std::move(inner)), options_(options) {
  check_probability("color_jitter", options.p);
  FRUGAL_CHECK(options.brightness >= 0 && options.contrast >= 0 && options.saturation >= 0 &&
                   options.hue >= 0 && options.hue <= 0.5,
               "[color_jitter] expected strengths of at least 0 and a hue of at most 0.5, got {}, "
               "{}, {} and {}",
               options.brightness, options.contrast, options.saturation, options.hue);
  FRUGAL_CHECK(shape_[2] == 3 || (options.saturation == 0 && options.hue == 0),
               "[color_jitter] expected 3 channels to change saturation or hue, got {}", shape_[2]);
}

void ColorJitter::change(RngKey key, float* out) const {
  if (uniform(key, 0) >= options_.p) return;
  const Pixels p = pixels_of(shape_, out);
  const auto factor = [&](uint64_t counter, double x) {
    return draw_between(key, counter, std::max(0.0, 1 - x), 1 + x);
  };
  std::array<int, 4> order{0, 1, 2, 3};
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<size_t>(draw(key, i, static_cast<int64_t>(i)))]);
  for (int what : order) {
    if (what == 0 && options_.brightness > 0) brighten(p, factor(5, options_.brightness));
    if (what == 1 && options_.contrast > 0) change_contrast(p, factor(6, options_.contrast));
    if (what == 2 && options_.saturation > 0) saturate(p, factor(7, options_.saturation));
    if (what == 3 && options_.hue > 0)
      turn_hue(p, draw_between(key, 8, -options_.hue, options_.hue));
  }
}

RandomResizedCrop::RandomResizedCrop(DatasetPtr inner, double least_area)
    : Transform(std::move(inner)), least_area_(least_area) {
  FRUGAL_CHECK(least_area > 0 && least_area <= 1,
               "[random_resized_crop] expected a least area in (0, 1], got {}", least_area);
}

int64_t RandomResizedCrop::get_into(int64_t index, RngKey key, float* out) const {
  const int64_t height = shape_[0], width = shape_[1], channels = shape_[2];
  std::vector<float> whole(static_cast<size_t>(shape_.numel()));
  const int64_t label = inner_->get_into(index, inner_key(key), whole.data());
  RectangleOptions options;
  options.least_area = least_area_;
  const PictureBox box = random_part(key, height, width, options);
  // The part is cut out first, so that no value beyond its edge counts. Only where no rectangle
  // was drawn do its edges lie between pixels.
  const auto top = static_cast<int64_t>(box.top), left = static_cast<int64_t>(box.left);
  const auto tall = static_cast<int64_t>(std::ceil(box.top + box.height)) - top,
             wide = static_cast<int64_t>(std::ceil(box.left + box.width)) - left;
  std::vector<float> part(static_cast<size_t>(tall * wide * channels));
  for (int64_t y = 0; y < tall; ++y)
    std::copy_n(whole.data() + ((top + y) * width + left) * channels, wide * channels,
                part.data() + y * wide * channels);
  const PictureBox within{box.top - static_cast<double>(top), box.left - static_cast<double>(left),
                          box.height, box.width};
  resize_into(part.data(), {tall, wide}, channels, within, height, width, out);
  return label;
}

Solarize::Solarize(DatasetPtr inner, double p, double threshold)
    : ValueTransform(std::move(inner)), p_(p), threshold_(threshold) {
  check_probability("solarize", p);
}

void Solarize::change(RngKey key, float* out) const {
  if (uniform(key, 0) < p_) solarize(pixels_of(shape_, out), threshold_);
}

RandomGrayscale::RandomGrayscale(DatasetPtr inner, double p)
    : ValueTransform(std::move(inner)), p_(p) {
  check_probability("grayscale", p);
  FRUGAL_CHECK(shape_[2] == 3, "[grayscale] expected 3 channels, got {}", shape_[2]);
}

void RandomGrayscale::change(RngKey key, float* out) const {
  if (uniform(key, 0) < p_) saturate(pixels_of(shape_, out), 0);
}

GaussianBlur::GaussianBlur(DatasetPtr inner, double p, double least, double most)
    : ValueTransform(std::move(inner)), p_(p), least_(least), most_(most) {
  check_probability("gaussian_blur", p);
  FRUGAL_CHECK(least > 0 && most >= least && most <= 1e3,
               "[gaussian_blur] expected deviations above 0 in order, got {} and {}", least, most);
}

void GaussianBlur::change(RngKey key, float* out) const {
  if (uniform(key, 0) < p_) blur(pixels_of(shape_, out), draw_between(key, 1, least_, most_));
}

RandAugment::RandAugment(DatasetPtr inner, int64_t count, int64_t magnitude)
    : Transform(std::move(inner)), count_(count), magnitude_(magnitude) {
  FRUGAL_CHECK(count >= 0 && magnitude >= 0 && magnitude <= kLevels,
               "[rand_augment] expected a count of at least 0 and a magnitude in [0, {}], got {} "
               "and {}",
               kLevels, count, magnitude);
}

int64_t RandAugment::get_into(int64_t index, RngKey key, float* out) const {
  const int64_t label = inner_->get_into(index, inner_key(key), out);
  const Pixels p = pixels_of(shape_, out);
  constexpr double kMove = 150.0 / 331;  // moves by up to this share of the side
  const Strongest most{
      0.3, kMove * static_cast<double>(p.width), kMove * static_cast<double>(p.height), 30, 0.9, 4};
  const double strength = static_cast<double>(magnitude_) / static_cast<double>(kLevels);
  for (int64_t i = 0; i < count_; ++i) {
    const auto counter = static_cast<uint64_t>(2 * i);
    apply(static_cast<Operation>(draw(key, counter, kOperations)), p, strength,
          draw(key, counter + 1, 2) == 1, most);
  }
  return label;
}

TrivialAugment::TrivialAugment(DatasetPtr inner) : Transform(std::move(inner)) {}

int64_t TrivialAugment::get_into(int64_t index, RngKey key, float* out) const {
  const int64_t label = inner_->get_into(index, inner_key(key), out);
  constexpr Strongest kMost{0.99, 32, 32, 135, 0.99, 6};
  apply(static_cast<Operation>(draw(key, 0, kOperations)), pixels_of(shape_, out),
        static_cast<double>(draw(key, 1, kLevels + 1)) / static_cast<double>(kLevels),
        draw(key, 2, 2) == 1, kMost);
  return label;
}

RandomErasing::RandomErasing(DatasetPtr inner, double p, float value)
    : Transform(std::move(inner)), p_(p), value_(value) {
  check_probability("random_erasing", p);
}

int64_t RandomErasing::get_into(int64_t index, RngKey key, float* out) const {
  const int64_t label = inner_->get_into(index, inner_key(key), out);
  if (uniform(key, 0) >= p_) return label;
  const Pixels p = pixels_of(shape_, out);
  constexpr RectangleOptions kErased{0.02, 0.33, 0.3, 3.3};
  const std::optional<Rectangle> erased = draw_rectangle(key, 1, p.height, p.width, kErased);
  if (!erased) return label;
  for (int64_t y = erased->top; y < erased->top + erased->height; ++y)
    std::fill_n(p.at(y, erased->left), erased->width * p.channels, value_);
  return label;
}

}  // namespace frugal::data

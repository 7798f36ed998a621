// What random changes of pictures draw. Internal to data/image.
#pragma once
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/rng.h"
#include "data/image/picture.h"

namespace frugal::data {

// A decorator draws at counters 0, 1, ... of its key. The inner key comes from a counter that no
// decorator uses.
inline RngKey inner_key(RngKey key) {
  const auto words = philox(key, ~uint64_t{0});
  return {words[0] | static_cast<uint64_t>(words[1]) << 32, key.offset};
}

// The key of a second, independent view of the sample with this key: from a counter that no
// decorator uses either.
inline RngKey second_view_key(RngKey key) {
  const auto words = philox(key, ~uint64_t{1});
  return {words[0] | static_cast<uint64_t>(words[1]) << 32, key.offset};
}

// A number in [0, bound) from counter `index`.
inline int64_t draw(RngKey key, uint64_t index, int64_t bound) {
  return static_cast<int64_t>(uniform_int(key, index, static_cast<uint64_t>(bound)));
}

// In [least, most).
inline double draw_between(RngKey key, uint64_t index, double least, double most) {
  return least + (most - least) * static_cast<double>(uniform(key, index));
}

// A random rectangle: its share of the area and the ratio of width to height, within these.
struct RectangleOptions {
  double least_area = 0.08, most_area = 1, least_ratio = 3.0 / 4, most_ratio = 4.0 / 3;
};
struct Rectangle {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

// The first of ten tries that fits into height x width; draws at 4 counters from `counter` on for
// each try. The ratio's logarithm is uniform. Nothing: none fits.
inline std::optional<Rectangle> draw_rectangle(RngKey key, uint64_t counter, int64_t height,
                                               int64_t width, const RectangleOptions& options) {
  constexpr int kTries = 10;
  const double area = static_cast<double>(height) * static_cast<double>(width);
  for (int i = 0; i < kTries; ++i, counter += 4) {
    const double wanted = area * draw_between(key, counter, options.least_area, options.most_area);
    const double ratio = std::exp(draw_between(key, counter + 1, std::log(options.least_ratio),
                                               std::log(options.most_ratio)));
    const int64_t w = std::llround(std::sqrt(wanted * ratio)),
                  h = std::llround(std::sqrt(wanted / ratio));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    return Rectangle{draw(key, counter + 2, height - h + 1), draw(key, counter + 3, width - w + 1),
                     h, w};
  }
  return std::nullopt;
}

// The part of a picture that training takes: draw_rectangle() from counter 0 on; where none fits,
// the largest part in the middle whose ratio is allowed. Edges may lie between pixels.
inline PictureBox random_part(RngKey key, int64_t height, int64_t width,
                              const RectangleOptions& options) {
  if (const auto part = draw_rectangle(key, 0, height, width, options))
    return {static_cast<double>(part->top), static_cast<double>(part->left),
            static_cast<double>(part->height), static_cast<double>(part->width)};
  const auto h = static_cast<double>(height), w = static_cast<double>(width);
  const double ratio = std::clamp(w / h, options.least_ratio, options.most_ratio);
  const double tall = std::min(h, w / ratio), wide = std::min(w, h * ratio);
  return {(h - tall) / 2, (w - wide) / 2, tall, wide};
}

}  // namespace frugal::data

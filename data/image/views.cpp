#include "data/image/views.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/formats/file_bytes.h"

namespace frugal::data {
namespace {

// The options with `resize` filled in.
ViewOptions checked(ViewOptions options) {
  const int64_t side = std::max(options.height, options.width);
  if (options.resize == 0) options.resize = side;
  FRUGAL_CHECK(options.height > 0 && options.width > 0 && options.resize >= side,
               "[pictures] expected a resize of at least {}, the sample's size, got {}", side,
               options.resize);
  return options;
}

std::vector<PictureBox> boxes_of(const PictureInfo& info, const ViewOptions& options,
                                 std::span<const Crop> crops) {
  std::vector<PictureBox> boxes;
  for (const Crop crop : crops) boxes.push_back(crop_box(info, options, crop));
  return boxes;
}

}  // namespace

std::vector<Crop> crops_of(Views views) {
  switch (views) {
    case Views::centre:
    case Views::flip:
      return {Crop::centre};
    case Views::ten_crop:
      break;
  }
  return {Crop::top_left, Crop::top_right, Crop::bottom_left, Crop::bottom_right, Crop::centre};
}

bool mirrors(Views views) { return views != Views::centre; }

PictureBox crop_box(const PictureInfo& info, const ViewOptions& options, Crop crop) {
  const int64_t shorter = std::min(info.height, info.width);
  const int64_t tall = info.height * options.resize / shorter,
                wide = info.width * options.resize / shorter;
  const double down = static_cast<double>(info.height) / static_cast<double>(tall);
  const double across = static_cast<double>(info.width) / static_cast<double>(wide);
  const auto spare_down = static_cast<double>(tall - options.height);
  const auto spare_across = static_cast<double>(wide - options.width);
  double top = std::round(spare_down / 2), left = std::round(spare_across / 2);
  if (crop != Crop::centre) {
    top = crop == Crop::bottom_left || crop == Crop::bottom_right ? spare_down : 0;
    left = crop == Crop::top_right || crop == Crop::bottom_right ? spare_across : 0;
  }
  return {top * down, left * across, static_cast<double>(options.height) * down,
          static_cast<double>(options.width) * across};
}

void decode_parts(PictureReader& reader, std::span<const PictureBox> boxes,
                  const ViewOptions& options, float* out) {
  const PictureInfo info = reader.info();
  const auto enough = [](int64_t whole, double part, int64_t sample) {
    return static_cast<int64_t>(
        std::ceil(static_cast<double>(whole) * static_cast<double>(sample) / part));
  };
  const Picture picture =
      reader.decode(options.channels, enough(info.height, boxes.front().height, options.height),
                    enough(info.width, boxes.front().width, options.width));
  const double down = static_cast<double>(picture.height) / static_cast<double>(info.height);
  const double across = static_cast<double>(picture.width) / static_cast<double>(info.width);
  for (const PictureBox& box : boxes) {
    resize_into(picture, {box.top * down, box.left * across, box.height * down, box.width * across},
                options.height, options.width, out);
    out += options.height * options.width * options.channels;
  }
}

void read_views(const std::string& path, const ViewOptions& options, std::span<const Crop> crops,
                float* out) {
  const ViewOptions filled = checked(options);
  const std::vector<uint8_t> bytes = read_file("pictures", path);
  PictureReader reader(bytes, path, options.exif);
  decode_parts(reader, boxes_of(reader.info(), filled, crops), filled, out);
}

void cut_views(const Picture& picture, const ViewOptions& options, std::span<const Crop> crops,
               float* out) {
  const ViewOptions filled = checked(options);
  FRUGAL_CHECK(picture.channels == options.channels,
               "[pictures] expected a picture of {} channels, got {}", options.channels,
               picture.channels);
  FRUGAL_CHECK(picture.height > 0 && picture.width > 0 &&
                   static_cast<int64_t>(picture.pixels.size()) ==
                       picture.height * picture.width * picture.channels,
               "[pictures] expected {} x {} x {} pixels, got {}", picture.height, picture.width,
               picture.channels, picture.pixels.size());
  for (const PictureBox& box : boxes_of({picture.height, picture.width}, filled, crops)) {
    resize_into(picture, box, options.height, options.width, out);
    out += options.height * options.width * options.channels;
  }
}

void mirror(float* samples, int64_t count, int64_t height, int64_t width, int64_t channels) {
  for (int64_t row = 0; row < count * height; ++row) {
    float* const begin = samples + row * width * channels;
    for (int64_t left = 0, right = width - 1; left < right; ++left, --right)
      std::swap_ranges(begin + left * channels, begin + (left + 1) * channels,
                       begin + right * channels);
  }
}

}  // namespace frugal::data

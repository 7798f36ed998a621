// What the readers of data/detection check alike. Internal.
#pragma once
#include <algorithm>
#include <cmath>

#include "data/detection/box_set.h"
#include "data/formats/file_bytes.h"
#include "data/image/picture.h"

namespace frugal::data {

// How a box lies in a picture of this size.
enum class BoxFit : uint8_t { inside, clipped, empty };

// Cuts off what reaches beyond the picture. A pixel may, because tools that count pixels from 0
// write lists of formats that count from 1, and because lists hold rounded numbers.
// Errors: a box that ends before it begins; more than a pixel outside, with a hint where the box
// would fit a picture whose sides are exchanged.
inline BoxFit fit_box(std::array<float, 4>& box, int64_t height, int64_t width) {
  constexpr float kPixel = 1.01F;    // a pixel and what rounding adds
  constexpr float kNothing = 0.01F;  // what rounding adds alone; does not count as cut off
  const auto text = [&] {
    return fmt::format("got {}, {}, {}, {}", box[0], box[1], box[2], box[3]);
  };
  FRUGAL_CHECK(box[2] >= box[0] && box[3] >= box[1],
               "expected a box that ends behind its beginning, {}", text());
  const auto excess = [&](int64_t tall, int64_t wide) {
    return std::max(
        {-box[0], -box[1], box[2] - static_cast<float>(wide), box[3] - static_cast<float>(tall)});
  };
  const float beyond = excess(height, width);
  FRUGAL_CHECK(
      std::isfinite(beyond) && beyond <= kPixel, "expected a box within {} x {} pixels, {}{}",
      width, height, text(),
      std::isfinite(beyond) && excess(width, height) <= kPixel
          ? fmt::format("; it lies within {} x {}: is the size that of the stored picture, "
                        "and the box one of the turned picture, or the other way round?",
                        height, width)
          : "");
  box[0] = std::max(box[0], 0.0F);
  box[1] = std::max(box[1], 0.0F);
  box[2] = std::min(box[2], static_cast<float>(width));
  box[3] = std::min(box[3], static_cast<float>(height));
  if (!(box[2] > box[0] && box[3] > box[1])) return BoxFit::empty;
  return beyond > kNothing ? BoxFit::clipped : BoxFit::inside;
}

// Adds the object, with its box cut off at the edges, unless it has no area. `where` names it.
// Errors: those of fit_box().
inline void add_object(BoxObject object, const std::string& where, BoxPicture& picture,
                       BadEntries& bad) {
  const BoxFit fit = fit_box(object.box, picture.height, picture.width);
  if (fit == BoxFit::empty) return bad.add_empty(where);
  if (fit == BoxFit::clipped) bad.add_clipped(where);
  picture.objects.push_back(object);
}

// Takes the size from the file where the list has none. Errors: a file that is no picture.
inline void complete_size(BoxPicture& picture, Exif exif) {
  if (picture.height > 0 && picture.width > 0) return;
  const std::vector<uint8_t> bytes = read_file("boxes", picture.path);
  const PictureInfo info = PictureReader(bytes, picture.path, exif).info();
  picture.height = info.height;
  picture.width = info.width;
}

}  // namespace frugal::data

// EXIF orientations: how a picture is turned before it is shown, and what lies in it.
//   1: not at all. 2: mirrored left and right. 3: turned by 180 degrees. 4: mirrored up and down.
//   5: rows and columns exchanged. 6: turned by 90 degrees clockwise. 7: exchanged along the other
//   diagonal. 8: turned by 270 degrees clockwise.
#pragma once
#include <array>
#include <optional>
#include <span>
#include <string>

#include "data/image/picture.h"

namespace frugal::data {

// What the file says in its EXIF data: of a JPEG, in the chunk eXIf of a PNG, or in the chunk EXIF
// of a WebP. 1 where it says nothing, or nothing sensible. Reads headers only.
int orientation_of_jpeg(std::span<const uint8_t> bytes);
int orientation_of_png(std::span<const uint8_t> bytes);
int orientation_of_webp(std::span<const uint8_t> bytes);

// The size of a picture of this size when it is turned.
PictureInfo turned_size(const PictureInfo& size, int orientation);
Picture turned_picture(Picture picture, int orientation);
// x1, y1, x2, y2 in a picture of this size, and where it lies in the turned picture.
std::array<float, 4> turned_box(const std::array<float, 4>& box, const PictureInfo& size,
                                int orientation);
// What turns a turned picture back.
int inverse_orientation(int orientation);

// How annotations are turned so that they lie on the picture as it is used: the stored one (ignore)
// or the turned one (turn). `stated` is the size of the picture that they are about. Where both
// pictures have this size, they are about the one that is used. Nothing: neither has this size.
std::optional<int> turn_of_annotations(const PictureInfo& stated, const PictureInfo& stored,
                                       int orientation, Exif exif);

// "48 x 40", width first, and the size of the turned picture where it differs. For messages.
std::string sizes_text(const PictureInfo& stored, int orientation);

}  // namespace frugal::data

// Views of a picture for evaluation: its centre, its corners and mirror images.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/image/picture.h"

namespace frugal::data {

enum class Crop : uint8_t { centre, top_left, top_right, bottom_left, bottom_right };

std::vector<Crop> crops_of(Views views);
bool mirrors(Views views);

// The part of the picture that a crop shows. The sides of the resized picture and the corner of the
// part are whole pixels of the resized picture. REQUIRES: resize of at least the sample's sides.
PictureBox crop_box(const PictureInfo& info, const ViewOptions& options, Crop crop);

// Decodes the picture, at the smallest size in which every part still has the sample's
// pixels, and writes each part as [height, width, channels] f32 in [0, 1], one behind the other.
// The boxes are parts of the picture at its full size, all of one size.
// Errors: those of decode_picture().
void decode_parts(PictureReader& reader, std::span<const PictureBox> boxes,
                  const ViewOptions& options, float* out);

// The file's crops, one behind the other. Errors: a file that cannot be read; those of
// decode_picture(); resize below the sample's sides.
void read_views(const std::string& path, const ViewOptions& options, std::span<const Crop> crops,
                float* out);
// Cuts the crops out of a decoded picture. Errors: another number of channels.
void cut_views(const Picture& picture, const ViewOptions& options, std::span<const Crop> crops,
               float* out);

// Mirrors `count` samples [height, width, channels] left and right, in place.
void mirror(float* samples, int64_t count, int64_t height, int64_t width, int64_t channels);

}  // namespace frugal::data

// Pictures from files: JPEG, PNG, WebP and BMP become rows of 8-bit values.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace frugal::data {

// [height, width, channels] u8, rows from top to bottom. One channel is luminance, three are red,
// green and blue.
struct Picture {
  int64_t height = 0, width = 0, channels = 3;
  std::vector<uint8_t> pixels;
};

// In pixels.
struct PictureInfo {
  int64_t height = 0, width = 0;
  bool operator==(const PictureInfo&) const = default;
};

// Whether pictures are turned as their EXIF orientation says, or stay as the file stores them.
enum class Exif : uint8_t { ignore, turn };

// How a picture becomes samples [height, width, channels]: its shorter side is resized to `resize`
// pixels, then a part is cut out. resize 0: the longer side of the sample.
struct ViewOptions {
  int64_t height = 0, width = 0, channels = 3, resize = 0;
  Exif exif = Exif::turn;  // how files are turned
};

// What a prediction is averaged over. The names are torchvision's: `flip` is the centre and its
// mirror image; `ten_crop` is the centre, the four corners and their mirror images.
enum class Views : uint8_t { centre, flip, ten_crop };

// Whether this build can decode pictures: it was built with TurboJPEG, libpng, libwebp and libexif.
bool can_decode_pictures();

// Whether the name ends as a picture's does: .jpg, .jpeg, .png, .webp or .bmp, in any case.
bool has_picture_name(const std::string& path);

// A picture's size, and the picture itself. The format follows from the content, not from the name.
// Palettes, grey, CMYK and 16-bit values are converted; transparency is dropped. `exif` says
// whether a JPEG, PNG or WebP is turned as its EXIF orientation says.
// `channels` is 1 or 3. Luminance is (299 R + 587 G + 114 B) / 1000.
// A JPEG may be decoded at a half, a quarter or any eighth of its size, as long as its height is
// at least least_height and its width at least least_width; 0 in either: at its own size.
// `name` stands in messages. Errors: a file that is no picture, is truncated or damaged, has no
// pixels or more than kMostPixels; a JPEG that would take far more work than its bytes are worth
// (data/image/jpeg_scans.h); a build that cannot decode pictures.
inline constexpr int64_t kMostPixels = int64_t{1} << 28;
PictureInfo picture_info(std::span<const uint8_t> bytes, const std::string& name,
                         Exif exif = Exif::turn);
Picture decode_picture(std::span<const uint8_t> bytes, const std::string& name,
                       int64_t channels = 3, int64_t least_height = 0, int64_t least_width = 0,
                       Exif exif = Exif::turn);

// The values of a PNG of one channel as they are: indices of its palette, or levels of grey.
// [height, width, 1]. Errors: as above; another format; colours or transparency without a palette;
// more than 8 bits.
Picture decode_mask(std::span<const uint8_t> bytes, const std::string& name);

// A PNG of one channel of grey, whose values are kept. REQUIRES: one channel, and height * width
// values. Errors: a build that cannot decode pictures.
std::vector<uint8_t> encode_mask(const Picture& mask);

// The size and the picture of one file, whose header is read once. REQUIRES: bytes and name outlive
// the reader.
class PictureReader {
 public:
  PictureReader(std::span<const uint8_t> bytes, const std::string& name, Exif exif = Exif::turn);
  ~PictureReader();
  PictureReader(const PictureReader&) = delete;
  PictureReader& operator=(const PictureReader&) = delete;
  PictureInfo info() const;    // what decode() gives at full size
  PictureInfo stored() const;  // size without the EXIF orientation
  int orientation() const;     // what EXIF says, see data/image/orientation.h
  // REQUIRES: not called before.
  Picture decode(int64_t channels, int64_t least_height = 0, int64_t least_width = 0);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A part of a picture, in pixels; edges may lie between pixels.
struct PictureBox {
  double top = 0, left = 0, height = 0, width = 0;
};

// Resizes the part of `picture` in `box` to [height, width, channels] f32 in [0, 1] at `out`.
// Bilinear; where the picture gets smaller, each value is the weighted mean of all pixels that it
// stands for, as in Pillow. Errors: a box that is empty or not within the picture.
void resize_into(const Picture& picture, const PictureBox& box, int64_t height, int64_t width,
                 float* out);
// Resizes values [size.height, size.width, channels] that are floats already, of any range.
void resize_into(const float* values, const PictureInfo& size, int64_t channels,
                 const PictureBox& box, int64_t height, int64_t width, float* out);

}  // namespace frugal::data

#include "data/image/orientation.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "core/error.h"

#ifdef FRUGAL_PICTURES
#include <libexif/exif-data.h>
#endif

namespace frugal::data {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr std::string_view kExifMark("Exif\0\0", 6);

bool begins_with(Bytes bytes, std::string_view mark) {
  return bytes.size() >= mark.size() && std::memcmp(bytes.data(), mark.data(), mark.size()) == 0;
}

#ifdef FRUGAL_PICTURES
// The orientation in a JPEG, or in data that begin with the mark.
int orientation_in(Bytes bytes) {
  const auto free_data = [](ExifData* data) { exif_data_unref(data); };
  const std::unique_ptr<ExifData, decltype(free_data)> data(
      exif_data_new_from_data(bytes.data(), static_cast<unsigned>(bytes.size())), free_data);
  if (data == nullptr) return 1;
  const ExifEntry* const entry =
      exif_content_get_entry(data->ifd[EXIF_IFD_0], EXIF_TAG_ORIENTATION);
  if (entry == nullptr || entry->format != EXIF_FORMAT_SHORT || entry->size < 2) return 1;
  const int value = exif_get_short(entry->data, exif_data_get_byte_order(data.get()));
  return value >= 1 && value <= 8 ? value : 1;
}
#else
int orientation_in(Bytes) { return 1; }
#endif

// The orientation in a chunk of a PNG or WebP, in which some programs write the mark, too.
int orientation_in_chunk(Bytes chunk) {
  constexpr size_t kMost = 65536;  // libexif reads no more
  if (begins_with(chunk, kExifMark)) chunk = chunk.subspan(kExifMark.size());
  std::vector<uint8_t> marked(kExifMark.begin(), kExifMark.end());
  marked.insert(marked.end(), chunk.begin(),
                chunk.begin() + static_cast<std::ptrdiff_t>(std::min(chunk.size(), kMost)));
  return orientation_in(marked);
}

size_t number_at(Bytes bytes, size_t at, bool big_endian) {
  size_t value = 0;
  for (size_t i = 0; i < 4; ++i)
    value |= static_cast<size_t>(bytes[at + i]) << 8 * (big_endian ? 3 - i : i);
  return value;
}

// Whether the file's axes are exchanged, and which of them then run backwards.
bool swaps(int orientation) { return orientation >= 5; }
bool rows_back(int orientation) {
  return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}
bool columns_back(int orientation) {
  return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

}  // namespace

int orientation_of_jpeg(Bytes bytes) {
  const auto head = bytes.first(std::min<size_t>(bytes.size(), 65536));
  const bool marked =
      std::search(head.begin(), head.end(), kExifMark.begin(), kExifMark.end(),
                  [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); }) != head.end();
  return marked ? orientation_in(bytes) : 1;
}

int orientation_of_png(Bytes bytes) {
  constexpr size_t kSignature = 8, kAround = 12;  // length, name and checksum of a chunk
  for (size_t at = kSignature; at + kAround <= bytes.size();) {
    const size_t length = number_at(bytes, at, true);
    if (length > bytes.size() - at - kAround) return 1;
    const Bytes name = bytes.subspan(at + 4, 4);
    if (begins_with(name, "eXIf")) return orientation_in_chunk(bytes.subspan(at + 8, length));
    if (begins_with(name, "IEND")) return 1;
    at += kAround + length;
  }
  return 1;
}

int orientation_of_webp(Bytes bytes) {
  constexpr size_t kHeader = 12, kAround = 8;  // name and length of a chunk
  for (size_t at = kHeader; at + kAround <= bytes.size();) {
    const size_t length = number_at(bytes, at + 4, false);
    if (length > bytes.size() - at - kAround) return 1;
    if (begins_with(bytes.subspan(at, 4), "EXIF"))
      return orientation_in_chunk(bytes.subspan(at + kAround, length));
    at += kAround + length + length % 2;
  }
  return 1;
}

PictureInfo turned_size(const PictureInfo& size, int orientation) {
  return swaps(orientation) ? PictureInfo{size.width, size.height} : size;
}

Picture turned_picture(Picture picture, int orientation) {
  if (orientation == 1) return picture;
  const PictureInfo size = turned_size({picture.height, picture.width}, orientation);
  Picture turned{size.height, size.width, picture.channels, {}};
  turned.pixels.resize(picture.pixels.size());
  for (int64_t y = 0; y < turned.height; ++y)
    for (int64_t x = 0; x < turned.width; ++x) {
      int64_t row = swaps(orientation) ? x : y, column = swaps(orientation) ? y : x;
      if (rows_back(orientation)) row = picture.height - 1 - row;
      if (columns_back(orientation)) column = picture.width - 1 - column;
      std::copy_n(picture.pixels.data() + (row * picture.width + column) * picture.channels,
                  picture.channels,
                  turned.pixels.data() + (y * turned.width + x) * turned.channels);
    }
  return turned;
}

std::array<float, 4> turned_box(const std::array<float, 4>& box, const PictureInfo& size,
                                int orientation) {
  auto [left, top, right, bottom] = box;
  if (columns_back(orientation)) {
    const auto width = static_cast<float>(size.width);
    std::tie(left, right) = std::pair(width - right, width - left);
  }
  if (rows_back(orientation)) {
    const auto height = static_cast<float>(size.height);
    std::tie(top, bottom) = std::pair(height - bottom, height - top);
  }
  if (swaps(orientation)) return {top, left, bottom, right};
  return {left, top, right, bottom};
}

int inverse_orientation(int orientation) {
  return orientation == 6 ? 8 : orientation == 8 ? 6 : orientation;
}

std::optional<int> turn_of_annotations(const PictureInfo& stated, const PictureInfo& stored,
                                       int orientation, Exif exif) {
  const bool of_stored = stated == stored, of_turned = stated == turned_size(stored, orientation);
  if (!of_stored && !of_turned) return std::nullopt;
  const bool used = exif == Exif::turn ? of_turned : of_stored;
  if (used) return 1;
  return exif == Exif::turn ? orientation : inverse_orientation(orientation);
}

std::string sizes_text(const PictureInfo& stored, int orientation) {
  const PictureInfo turned = turned_size(stored, orientation);
  std::string text = fmt::format("{} x {}", stored.width, stored.height);
  if (turned != stored)
    text +=
        fmt::format(" (turned as its EXIF orientation says: {} x {})", turned.width, turned.height);
  return text;
}

}  // namespace frugal::data

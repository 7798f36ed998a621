// Picture files of every format, made by the libraries that Frugal reads them with.
#pragma once
#include <cstdint>
#include <vector>

#include "data/image/picture.h"

#if __has_include(<turbojpeg.h>) && __has_include(<webp/encode.h>) && __has_include(<png.h>)
#define FRUGAL_TEST_PICTURES 1
#include <png.h>
#include <turbojpeg.h>
#include <webp/encode.h>
#include <zlib.h>

namespace frugal::data {

using FileBytes = std::vector<uint8_t>;

// Smooth colours, so that a JPEG of it is close to it.
inline Picture sample_picture(int64_t height, int64_t width) {
  Picture picture{height, width, 3, {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c)
        picture.pixels.push_back(static_cast<uint8_t>(c == 0   ? 255 * y / height
                                                      : c == 1 ? 255 * x / width
                                                               : 128));
  return picture;
}

inline FileBytes jpeg_file(const Picture& picture, int quality = 98, int sampling = TJSAMP_444) {
  tjhandle encoder = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  tjCompress2(encoder, picture.pixels.data(), int(picture.width), 0, int(picture.height), TJPF_RGB,
              &bytes, &size, sampling, quality, 0);
  FileBytes file(bytes, bytes + size);
  tjFree(bytes);
  tjDestroy(encoder);
  return file;
}

inline FileBytes jpeg_file_progressive(const Picture& picture) {
  tjhandle encoder = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  tjCompress2(encoder, picture.pixels.data(), int(picture.width), 0, int(picture.height), TJPF_RGB,
              &bytes, &size, TJSAMP_444, 98, TJFLAG_PROGRESSIVE);
  FileBytes file(bytes, bytes + size);
  tjFree(bytes);
  tjDestroy(encoder);
  return file;
}

// jpeg_file() with an EXIF segment that holds an orientation.
inline FileBytes jpeg_file_turned(const Picture& picture, uint8_t orientation) {
  FileBytes file = jpeg_file(picture);
  const FileBytes segment = {0xFF, 0xE1, 0, 34, 'E', 'x',         'i', 'f', 0, 0,    'M', 'M',
                             0,    42,   0, 0,  0,   8,           0,   1,   1, 0x12, 0,   3,
                             0,    0,    0, 1,  0,   orientation, 0,   0,   0, 0,    0,   0};
  file.insert(file.begin() + 2, segment.begin(), segment.end());
  return file;
}

inline FileBytes png_file(const Picture& picture, uint32_t format, const void* pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = png_uint_32(picture.width);
  image.height = png_uint_32(picture.height);
  image.format = format;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels, 0, nullptr);
  FileBytes file(size);
  png_image_write_to_memory(&image, file.data(), &size, 0, pixels, 0, nullptr);
  file.resize(size);
  return file;
}
inline FileBytes png_file(const Picture& picture) {
  return png_file(picture, picture.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY,
                  picture.pixels.data());
}

inline FileBytes webp_file(const Picture& picture) {
  uint8_t* bytes = nullptr;
  const size_t size = WebPEncodeLosslessRGB(picture.pixels.data(), int(picture.width),
                                            int(picture.height), int(3 * picture.width), &bytes);
  FileBytes file(bytes, bytes + size);
  WebPFree(bytes);
  return file;
}

// EXIF data with an orientation: a TIFF header and a directory of one entry, little-endian.
inline FileBytes exif_data(uint8_t orientation) {
  return {'I', 'I', 42, 0, 8, 0,           0, 0, 1, 0, 0x12, 1, 3,
          0,   1,   0,  0, 0, orientation, 0, 0, 0, 0, 0,    0, 0};
}

inline FileBytes png_file_turned(const Picture& picture, uint8_t orientation) {
  FileBytes file = png_file(picture), chunk = {'e', 'X', 'I', 'f'};
  const FileBytes data = exif_data(orientation);
  chunk.insert(chunk.end(), data.begin(), data.end());
  const auto big = [](uint32_t value) {
    return FileBytes{uint8_t(value >> 24), uint8_t(value >> 16), uint8_t(value >> 8),
                     uint8_t(value)};
  };
  const FileBytes length = big(uint32_t(data.size()));
  const FileBytes sum = big(uint32_t(crc32(0, chunk.data(), unsigned(chunk.size()))));
  chunk.insert(chunk.begin(), length.begin(), length.end());
  chunk.insert(chunk.end(), sum.begin(), sum.end());
  constexpr int64_t kBehindHeader = 8 + 25;  // the signature and IHDR
  file.insert(file.begin() + kBehindHeader, chunk.begin(), chunk.end());
  return file;
}

// In the extended format: VP8X, the picture, and EXIF.
inline FileBytes webp_file_turned(const Picture& picture, uint8_t orientation) {
  const FileBytes plain = webp_file(picture), data = exif_data(orientation);
  const auto number = [](int64_t value, int bytes) {
    FileBytes out;
    for (int i = 0; i < bytes; ++i) out.push_back(uint8_t(value >> (8 * i)));
    return out;
  };
  FileBytes file = {'R', 'I', 'F', 'F', 0, 0, 0, 0, 'W', 'E', 'B', 'P', 'V', 'P', '8', 'X'};
  const auto add = [&](const FileBytes& bytes) {
    file.insert(file.end(), bytes.begin(), bytes.end());
  };
  add(number(10, 4));
  add({8, 0, 0, 0});  // there is EXIF
  add(number(picture.width - 1, 3));
  add(number(picture.height - 1, 3));
  file.insert(file.end(), plain.begin() + 12, plain.end());
  add({'E', 'X', 'I', 'F'});
  add(number(int64_t(data.size()), 4));
  add(data);
  const FileBytes size = number(int64_t(file.size()) - 8, 4);
  std::copy(size.begin(), size.end(), file.begin() + 4);
  return file;
}

inline FileBytes bmp_file(const Picture& picture, int bits = 24, bool top_down = false) {
  const int64_t row_bytes = (picture.width * bits + 31) / 32 * 4;
  FileBytes file;
  const auto put = [&](int64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) file.push_back(uint8_t(uint64_t(value) >> (8 * i)));
  };
  file = {'B', 'M'};
  put(54 + row_bytes * picture.height, 4);
  put(0, 4);
  put(54, 4);
  put(40, 4);
  put(picture.width, 4);
  put(top_down ? -picture.height : picture.height, 4);
  put(1, 2);
  put(bits, 2);
  for (int i = 0; i < 6; ++i) put(0, 4);
  for (int64_t i = 0; i < picture.height; ++i) {
    const int64_t y = top_down ? i : picture.height - 1 - i;
    for (int64_t x = 0; x < picture.width; ++x) {
      const uint8_t* rgb = picture.pixels.data() + 3 * (y * picture.width + x);
      file.insert(file.end(), {rgb[2], rgb[1], rgb[0]});
      if (bits == 32) file.push_back(7);
    }
    while ((int64_t(file.size()) - 54) % row_bytes != 0) file.push_back(0);
  }
  return file;
}

}  // namespace frugal::data
#endif

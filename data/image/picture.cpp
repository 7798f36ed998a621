#include "data/image/picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/image/jpeg_scans.h"
#include "data/image/orientation.h"

#ifdef FRUGAL_PICTURES
#include <png.h>
#include <turbojpeg.h>
#include <webp/decode.h>

#include <csetjmp>
#endif

namespace frugal::data {
namespace {

std::string lower_ending(const std::string& path) {
  const size_t dot = path.rfind('.');
  std::string ending = dot == std::string::npos ? "" : path.substr(dot);
  for (char& c : ending)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return ending;
}

// The weights of an output pixel: it takes `weights` of the source pixels from `first` on.
struct Taps {
  int64_t first = 0;
  std::vector<float> weights;
};

// A triangle filter, wide enough that no source pixel is left out.
std::vector<Taps> taps_of(double begin, double extent, int64_t source, int64_t output) {
  const double scale = extent / static_cast<double>(output), support = std::max(scale, 1.0);
  std::vector<Taps> all(static_cast<size_t>(output));
  for (int64_t i = 0; i < output; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(centre - support + 0.5));
    const auto last = std::min(source, static_cast<int64_t>(centre + support + 0.5));
    Taps& taps = all[static_cast<size_t>(i)];
    taps.first = std::min(first, source - 1);
    double sum = 0;
    std::vector<double> weights;
    for (int64_t j = taps.first; j < std::max(last, taps.first + 1); ++j) {
      const double distance = std::abs((static_cast<double>(j) + 0.5 - centre) / support);
      weights.push_back(std::max(0.0, 1 - distance));
      sum += weights.back();
    }
    if (sum == 0) {
      weights.assign(1, 1.0);
      sum = 1;
    }
    for (double weight : weights) taps.weights.push_back(static_cast<float>(weight / sum));
  }
  return all;
}

// resize_into() of values that count `unit` each.
template <class T>
void resize(const T* values, int64_t source_height, int64_t source_width, int64_t channels,
            float unit, const PictureBox& box, int64_t height, int64_t width, float* out) {
  constexpr double kSlack = 1e-6;  // room for rounding in the caller's arithmetic
  const auto bottom = static_cast<double>(source_height), right = static_cast<double>(source_width);
  FRUGAL_CHECK(box.height > 0 && box.width > 0 && box.top >= -kSlack && box.left >= -kSlack &&
                   box.top + box.height <= bottom + kSlack &&
                   box.left + box.width <= right + kSlack,
               "[resize] expected a box within the picture of {} x {}, got {} x {} at ({}, {})",
               source_height, source_width, box.height, box.width, box.top, box.left);
  const std::vector<Taps> rows = taps_of(box.top, box.height, source_height, height);
  const std::vector<Taps> columns = taps_of(box.left, box.width, source_width, width);
  const int64_t first = columns.front().first;
  const int64_t last = columns.back().first + static_cast<int64_t>(columns.back().weights.size());
  const auto count = static_cast<size_t>((last - first) * channels);
  std::vector<float> line(count);
  for (int64_t y = 0; y < height; ++y) {
    std::fill(line.begin(), line.end(), 0.0f);
    const Taps& row = rows[static_cast<size_t>(y)];
    for (size_t k = 0; k < row.weights.size(); ++k) {
      const float weight = row.weights[k] * unit;
      const T* source =
          values + ((row.first + static_cast<int64_t>(k)) * source_width + first) * channels;
      for (size_t i = 0; i < count; ++i) line[i] += weight * static_cast<float>(source[i]);
    }
    float* const to = out + y * width * channels;
    for (int64_t x = 0; x < width; ++x) {
      const Taps& column = columns[static_cast<size_t>(x)];
      const float* const from = line.data() + (column.first - first) * channels;
      for (int64_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (size_t k = 0; k < column.weights.size(); ++k)
          sum += column.weights[k] * from[static_cast<int64_t>(k) * channels + c];
        to[x * channels + c] = sum;
      }
    }
  }
}

}  // namespace

bool has_picture_name(const std::string& path) {
  static constexpr std::array<const char*, 5> kEndings = {".jpg", ".jpeg", ".png", ".webp", ".bmp"};
  const std::string ending = lower_ending(path);
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](const char* known) { return ending == known; });
}

void resize_into(const Picture& picture, const PictureBox& box, int64_t height, int64_t width,
                 float* out) {
  resize(picture.pixels.data(), picture.height, picture.width, picture.channels, 1.0f / 255, box,
         height, width, out);
  // Weights that were rounded may add up to a little more than 1.
  for (int64_t i = 0; i < height * width * picture.channels; ++i)
    out[i] = std::clamp(out[i], 0.0f, 1.0f);
}

void resize_into(const float* values, const PictureInfo& size, int64_t channels,
                 const PictureBox& box, int64_t height, int64_t width, float* out) {
  resize(values, size.height, size.width, channels, 1.0f, box, height, width, out);
}

#ifndef FRUGAL_PICTURES

bool can_decode_pictures() { return false; }
struct PictureReader::Impl {};
PictureReader::PictureReader(std::span<const uint8_t>, const std::string& name, Exif) {
  throw Error(fmt::format(
      "[picture] expected a build with TurboJPEG, libpng, libwebp and libexif to read {}",
      in_quotes(name)));
}
PictureReader::~PictureReader() = default;
PictureInfo PictureReader::info() const { return {}; }
PictureInfo PictureReader::stored() const { return {}; }
int PictureReader::orientation() const { return 1; }
Picture PictureReader::decode(int64_t, int64_t, int64_t) { return {}; }
Picture decode_mask(std::span<const uint8_t> bytes, const std::string& name) {
  return PictureReader(bytes, name).decode(1);
}

#else

bool can_decode_pictures() { return true; }

namespace {

using Bytes = std::span<const uint8_t>;

void check_size(int64_t height, int64_t width, const std::string& name) {
  FRUGAL_CHECK(height > 0 && width > 0 && height <= kMostPixels / width,
               "[picture] {}: expected 1 to {} pixels, got {} x {}", in_quotes(name), kMostPixels,
               height, width);
}

[[noreturn]] void damaged(const std::string& name, const char* format, const std::string& why) {
  throw Error(fmt::format("[picture] {}: expected a whole {} file: {}", in_quotes(name), format,
                          printable(why)));
}

uint8_t luminance_of_rgb(const uint8_t* rgb) {
  return static_cast<uint8_t>((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000);
}

// From RGB to the channels that are asked for.
Picture with_channels(Picture picture, int64_t channels) {
  if (picture.channels == channels) return picture;
  const size_t count = static_cast<size_t>(picture.height * picture.width);
  std::vector<uint8_t> pixels(count * static_cast<size_t>(channels));
  for (size_t i = 0; i < count; ++i) {
    if (channels == 1)
      pixels[i] = luminance_of_rgb(picture.pixels.data() + 3 * i);
    else
      std::fill_n(pixels.data() + 3 * i, 3, picture.pixels[i]);
  }
  picture.pixels = std::move(pixels);
  picture.channels = channels;
  return picture;
}

struct CloseJpeg {
  void operator()(void* handle) const { tjDestroy(handle); }
};

// One decoder a thread.
thread_local std::unique_ptr<void, CloseJpeg> decoder_of_thread;

tjhandle jpeg_decoder() {
  if (decoder_of_thread == nullptr) decoder_of_thread.reset(tjInitDecompress());
  FRUGAL_CHECK(decoder_of_thread != nullptr, "[picture] TurboJPEG cannot start: {}",
               tjGetErrorStr());
  return decoder_of_thread.get();
}

// A decoder that failed stays in the middle of its file and would read the next file wrongly.
[[noreturn]] void damaged_jpeg(const std::string& name, const std::string& why) {
  decoder_of_thread.reset();
  damaged(name, "JPEG", why);
}

struct JpegHeader {
  int width = 0, height = 0, colors = 0;
};

JpegHeader jpeg_header(Bytes bytes, const std::string& name) {
  JpegHeader header;
  int sampling = 0;
  tjhandle decoder = jpeg_decoder();
  const int status = tjDecompressHeader3(decoder, bytes.data(), bytes.size(), &header.width,
                                         &header.height, &sampling, &header.colors);
  // TurboJPEG calls it an error where it has no name for the sampling of the colours (-1). It has
  // read all else then, and decodes the picture.
  const bool has_rest = header.width > 0 && header.height > 0 && header.colors >= 0;
  if (status != 0 && !(sampling == -1 && has_rest)) damaged_jpeg(name, tjGetErrorStr2(decoder));
  check_size(header.height, header.width, name);
  return header;
}

Picture decode_jpeg(const JpegHeader& header, Bytes bytes, const std::string& name,
                    int64_t channels, int64_t least_height, int64_t least_width) {
  if (const std::string fault = fault_of_jpeg(bytes, header.height, header.width); !fault.empty())
    damaged(name, "JPEG", fault);
  int width = header.width, height = header.height;
  if (least_height > 0 && least_width > 0) {
    int count = 0;
    const tjscalingfactor* const factors = tjGetScalingFactors(&count);
    for (int i = 0; i < count; ++i) {
      const int w = TJSCALED(header.width, factors[i]), h = TJSCALED(header.height, factors[i]);
      if (h >= least_height && w >= least_width && w < width) width = w, height = h;
    }
  }
  const bool cmyk = header.colors == TJCS_CMYK || header.colors == TJCS_YCCK;
  const bool grey = channels == 1 && (header.colors == TJCS_GRAY || header.colors == TJCS_YCbCr);
  const int format = cmyk ? TJPF_CMYK : grey ? TJPF_GRAY : TJPF_RGB;
  const int stored = tjPixelSize[format];
  std::vector<uint8_t> pixels(static_cast<size_t>(width) * static_cast<size_t>(height) *
                              static_cast<size_t>(stored));
  tjhandle decoder = jpeg_decoder();
  if (tjDecompress2(decoder, bytes.data(), bytes.size(), pixels.data(), width, 0, height, format,
                    TJFLAG_ACCURATEDCT) != 0) {
    const std::string why = tjGetErrorStr2(decoder);
    // Superfluous bytes between segments are a warning, too, and do no harm.
    const bool harmless = tjGetErrorCode(decoder) == TJERR_WARNING &&
                          why.find("extraneous bytes") != std::string::npos;
    if (!harmless) damaged_jpeg(name, why);
  }
  Picture picture{height, width, grey ? 1 : 3, std::move(pixels)};
  if (cmyk) {  // values are stored inverted, as Adobe does and all others follow
    std::vector<uint8_t> rgb;
    rgb.reserve(static_cast<size_t>(width) * static_cast<size_t>(height) * 3);
    for (size_t i = 0; i + 3 < picture.pixels.size(); i += 4)
      for (size_t c = 0; c < 3; ++c)
        rgb.push_back(
            static_cast<uint8_t>((picture.pixels[i + c] * picture.pixels[i + 3] + 127) / 255));
    picture.pixels = std::move(rgb);
  }
  return with_channels(std::move(picture), channels);
}

// libpng reports errors through longjmp, so what lives across its calls is plain data here.
struct PngReader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  Bytes rest;
  char message[200] = {};
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void png_failed(png_structp png, png_const_charp text) {
  auto* const reader = static_cast<PngReader*>(png_get_error_ptr(png));
  std::strncpy(reader->message, text, sizeof(reader->message) - 1);
  png_longjmp(png, 1);
}
void png_ignores(png_structp, png_const_charp) {}
void png_take(png_structp png, png_bytep out, size_t count) {
  auto* const reader = static_cast<PngReader*>(png_get_io_ptr(png));
  if (count > reader->rest.size()) png_error(png, "the file ends too early");
  std::memcpy(out, reader->rest.data(), count);
  reader->rest = reader->rest.subspan(count);
}

// Whether each chunk of a PNG, up to the last one, is as long as it says.
bool has_whole_chunks(Bytes bytes) {
  constexpr size_t kAround = 12;  // length, name and checksum
  for (size_t at = 8; bytes.size() - at >= kAround;) {
    const uint8_t* const chunk = bytes.data() + at;
    const size_t length = png_get_uint_32(chunk);
    if (length > bytes.size() - at - kAround) return false;
    if (std::memcmp(chunk + 4, "IEND", 4) == 0) return true;
    at += kAround + length;
  }
  return false;
}

// Starts reading a file with the signature of a PNG; false: reader.message says why not.
bool open_png(PngReader& reader, Bytes bytes) {
  // libpng takes the memory that a chunk claims before it reads the chunk, and only warns where
  // that is more than the limit below.
  if (!has_whole_chunks(bytes)) {
    std::strcpy(reader.message, "the file ends too early");
    return false;
  }
  reader.rest = bytes;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, png_failed, png_ignores);
  if (reader.png == nullptr) return false;
  reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr || setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_set_read_fn(reader.png, &reader, png_take);
  png_set_user_limits(reader.png, 1u << 20, 1u << 20);
  // What is unpacked of a chunk.
  png_set_chunk_malloc_max(reader.png, std::max<size_t>(bytes.size(), 1u << 20));
  png_read_info(reader.png, reader.info);
  return true;
}

// Reads the rows into rows that are there already: as 8-bit RGB, or (mask) the values of one
// channel as they are, a byte each.
bool read_png_rows(PngReader& reader, png_bytepp rows, size_t row_bytes, bool mask) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  if (mask) {
    png_set_packing(reader.png);
  } else {
    png_set_expand(reader.png);    // palettes, few bits of grey, transparent colours
    png_set_scale_16(reader.png);  // 16 bits to 8
    png_set_gray_to_rgb(reader.png);
    png_set_strip_alpha(reader.png);
  }
  png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  if (png_get_rowbytes(reader.png, reader.info) != row_bytes) return false;
  png_read_image(reader.png, rows);
  png_read_end(reader.png, nullptr);
  return true;
}

PictureInfo png_size(PngReader& reader, Bytes bytes, const std::string& name) {
  if (!open_png(reader, bytes)) damaged(name, "PNG", reader.message);
  const PictureInfo info{png_get_image_height(reader.png, reader.info),
                         png_get_image_width(reader.png, reader.info)};
  check_size(info.height, info.width, name);
  return info;
}

// `reader` is open, and `info` is its picture's size.
Picture decode_png(PngReader& reader, const PictureInfo& info, const std::string& name,
                   bool mask = false) {
  Picture picture{info.height, info.width, mask ? 1 : 3, {}};
  const auto row_bytes = static_cast<size_t>(picture.channels * info.width);
  picture.pixels.resize(static_cast<size_t>(info.height) * row_bytes);
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < info.height; ++y)
    rows.push_back(picture.pixels.data() + static_cast<size_t>(y) * row_bytes);
  if (!read_png_rows(reader, rows.data(), row_bytes, mask)) damaged(name, "PNG", reader.message);
  return picture;
}

}  // namespace

Picture decode_mask(std::span<const uint8_t> bytes, const std::string& name) {
  FRUGAL_CHECK(bytes.size() >= 8 && png_sig_cmp(bytes.data(), 0, 8) == 0,
               "[mask] {}: expected a PNG, got another format", in_quotes(name));
  PngReader reader;
  const PictureInfo info = png_size(reader, bytes, name);
  const int kind = png_get_color_type(reader.png, reader.info);
  FRUGAL_CHECK(
      (kind == PNG_COLOR_TYPE_GRAY || kind == PNG_COLOR_TYPE_PALETTE) &&
          png_get_bit_depth(reader.png, reader.info) <= 8,
      "[mask] {}: expected a PNG with a palette, or grey of at most 8 bits, whose values are "
      "classes; got another kind",
      in_quotes(name));
  return decode_png(reader, info, name, true);
}

std::vector<uint8_t> encode_mask(const Picture& mask) {
  FRUGAL_ASSERT(mask.channels == 1 &&
                mask.pixels.size() == static_cast<size_t>(mask.height * mask.width));
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(mask.height);
  image.width = static_cast<png_uint_32>(mask.width);
  image.format = PNG_FORMAT_GRAY;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<uint8_t> file(bytes);
  const int done =
      png_image_write_to_memory(&image, file.data(), &bytes, 0, mask.pixels.data(), 0, nullptr);
  FRUGAL_CHECK(done != 0, "[mask] libpng cannot write a picture of {} x {}: {}", mask.height,
               mask.width, image.message);
  file.resize(bytes);
  return file;
}

namespace {

PictureInfo webp_size(Bytes bytes, const std::string& name) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(bytes.data(), bytes.size(), &features) != VP8_STATUS_OK)
    damaged(name, "WebP", "its header cannot be read");
  FRUGAL_CHECK(features.has_animation == 0,
               "[picture] {}: expected a still picture, got an animated WebP", in_quotes(name));
  check_size(features.height, features.width, name);
  return {features.height, features.width};
}

Picture decode_webp(const PictureInfo& info, Bytes bytes, const std::string& name) {
  Picture picture{info.height, info.width, 3, {}};
  picture.pixels.resize(static_cast<size_t>(3 * info.height * info.width));
  if (WebPDecodeRGBInto(bytes.data(), bytes.size(), picture.pixels.data(), picture.pixels.size(),
                        static_cast<int>(3 * info.width)) == nullptr)
    damaged(name, "WebP", "its data end too early or are damaged");
  return picture;
}

// A BMP without compression: 8 bits with a palette, 24 or 32 bits.
struct BmpHeader {
  int64_t height = 0, width = 0, data = 0, palette = 0, colors = 0, row_bytes = 0;
  int bits = 0;
  bool top_down = false;
};

int64_t little_endian(Bytes bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(bytes[at + i]) << (8 * i);
  return static_cast<int64_t>(value);
}

BmpHeader bmp_header(Bytes bytes, const std::string& name) {
  constexpr size_t kSmallest = 54;
  if (bytes.size() < kSmallest) damaged(name, "BMP", "it ends within its header");
  BmpHeader header;
  header.data = little_endian(bytes, 10, 4);
  const int64_t info = little_endian(bytes, 14, 4);
  header.width = static_cast<int32_t>(little_endian(bytes, 18, 4));
  header.height = static_cast<int32_t>(little_endian(bytes, 22, 4));
  header.top_down = header.height < 0;
  header.height = std::abs(header.height);
  header.bits = static_cast<int>(little_endian(bytes, 28, 2));
  const int64_t compression = little_endian(bytes, 30, 4);
  check_size(header.height, header.width, name);
  FRUGAL_CHECK(info >= 40 && compression == 0 &&
                   (header.bits == 8 || header.bits == 24 || header.bits == 32),
               "[picture] {}: expected a BMP of 8, 24 or 32 bits without compression, got {} bits "
               "and compression {}",
               in_quotes(name), header.bits, compression);
  header.palette = 14 + info;
  if (header.bits == 8) {
    header.colors = little_endian(bytes, 46, 4);
    if (header.colors == 0) header.colors = 256;
  }
  header.row_bytes = (header.width * header.bits + 31) / 32 * 4;
  const auto size = static_cast<int64_t>(bytes.size());
  if (header.colors > 256 || header.palette + 4 * header.colors > size || header.data > size ||
      header.height > (size - header.data) / header.row_bytes)
    damaged(name, "BMP", "it is shorter than its header says");
  return header;
}

Picture decode_bmp(const BmpHeader& header, Bytes bytes, const std::string& name) {
  Picture picture{header.height, header.width, 3, {}};
  picture.pixels.reserve(static_cast<size_t>(3 * header.height * header.width));
  for (int64_t y = 0; y < header.height; ++y) {
    const int64_t row = header.top_down ? y : header.height - 1 - y;
    const uint8_t* from = bytes.data() + header.data + row * header.row_bytes;
    for (int64_t x = 0; x < header.width; ++x, from += header.bits / 8) {
      const uint8_t* bgr = from;
      if (header.bits == 8) {
        if (*from >= header.colors) damaged(name, "BMP", "a pixel's colour is not in the palette");
        bgr = bytes.data() + header.palette + 4 * *from;
      }
      picture.pixels.insert(picture.pixels.end(), {bgr[2], bgr[1], bgr[0]});
    }
  }
  return picture;
}

enum class Format : uint8_t { jpeg, png, webp, bmp };

Format format_of(Bytes bytes, const std::string& name) {
  const auto begins = [&](size_t at, std::string_view mark) {
    return bytes.size() >= at + mark.size() &&
           std::memcmp(bytes.data() + at, mark.data(), mark.size()) == 0;
  };
  if (begins(0, "\xFF\xD8\xFF")) return Format::jpeg;
  if (begins(0, "\x89PNG\r\n\x1A\n")) return Format::png;
  if (begins(0, "RIFF") && begins(8, "WEBP")) return Format::webp;
  if (begins(0, "BM")) return Format::bmp;
  throw Error(
      fmt::format("[picture] {}: expected a JPEG, PNG, WebP or BMP file, got {} bytes of something "
                  "else",
                  in_quotes(name), bytes.size()));
}

}  // namespace

struct PictureReader::Impl {
  Bytes bytes;
  const std::string& name;
  Format format;
  Exif exif;
  PictureInfo stored = {};
  int orientation = 1;
  JpegHeader jpeg = {};
  PngReader png = {};
  BmpHeader bmp = {};
  Picture decode(int64_t channels, int64_t least_height, int64_t least_width);
};

PictureReader::PictureReader(std::span<const uint8_t> bytes, const std::string& name, Exif exif)
    : impl_(new Impl{bytes, name, format_of(bytes, name), exif}) {
  PictureInfo& stored = impl_->stored;
  switch (impl_->format) {
    case Format::jpeg:
      impl_->jpeg = jpeg_header(bytes, name);
      stored = {impl_->jpeg.height, impl_->jpeg.width};
      impl_->orientation = orientation_of_jpeg(bytes);
      break;
    case Format::png:
      stored = png_size(impl_->png, bytes, name);
      impl_->orientation = orientation_of_png(bytes);
      break;
    case Format::webp:
      stored = webp_size(bytes, name);
      impl_->orientation = orientation_of_webp(bytes);
      break;
    case Format::bmp:
      impl_->bmp = bmp_header(bytes, name);
      stored = {impl_->bmp.height, impl_->bmp.width};
      break;
  }
}
PictureReader::~PictureReader() = default;

PictureInfo PictureReader::info() const {
  return impl_->exif == Exif::turn ? turned_size(impl_->stored, impl_->orientation) : impl_->stored;
}
PictureInfo PictureReader::stored() const { return impl_->stored; }
int PictureReader::orientation() const { return impl_->orientation; }

Picture PictureReader::Impl::decode(int64_t channels, int64_t least_height, int64_t least_width) {
  switch (format) {
    case Format::jpeg:
      return decode_jpeg(jpeg, bytes, name, channels, least_height, least_width);
    case Format::png:
      return with_channels(decode_png(png, stored, name), channels);
    case Format::webp:
      return with_channels(decode_webp(stored, bytes, name), channels);
    case Format::bmp:
      break;
  }
  return with_channels(decode_bmp(bmp, bytes, name), channels);
}

Picture PictureReader::decode(int64_t channels, int64_t least_height, int64_t least_width) {
  FRUGAL_CHECK(channels == 1 || channels == 3, "[picture] expected 1 or 3 channels, got {}",
               channels);
  const int turn = impl_->exif == Exif::turn ? impl_->orientation : 1;
  const PictureInfo least = turned_size({least_height, least_width}, inverse_orientation(turn));
  return turned_picture(impl_->decode(channels, least.height, least.width), turn);
}

#endif

PictureInfo picture_info(std::span<const uint8_t> bytes, const std::string& name, Exif exif) {
  return PictureReader(bytes, name, exif).info();
}

Picture decode_picture(std::span<const uint8_t> bytes, const std::string& name, int64_t channels,
                       int64_t least_height, int64_t least_width, Exif exif) {
  return PictureReader(bytes, name, exif).decode(channels, least_height, least_width);
}

}  // namespace frugal::data

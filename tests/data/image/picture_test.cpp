#include "data/image/picture.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "core/error.h"
#include "core/rng.h"
#include "data/image/jpeg_scans.h"
#include "data/image/orientation.h"
#include "tests/data/image/picture_files.h"

#ifdef FRUGAL_TEST_PICTURES
namespace frugal::data {
namespace {

int difference(const Picture& a, const Picture& b) {
  REQUIRE(a.height == b.height);
  REQUIRE(a.width == b.width);
  REQUIRE(a.channels == b.channels);
  REQUIRE(a.pixels.size() == b.pixels.size());
  int most = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i)
    most = std::max(most, std::abs(int(a.pixels[i]) - int(b.pixels[i])));
  return most;
}

std::vector<std::pair<const char*, FileBytes>> every_format(const Picture& picture) {
  return {{"jpeg", jpeg_file(picture)},
          {"png", png_file(picture)},
          {"webp", webp_file(picture)},
          {"bmp", bmp_file(picture)},
          {"bmp, 32 bits", bmp_file(picture, 32)},
          {"bmp, top down", bmp_file(picture, 24, true)}};
}

TEST_CASE("every format gives its pixels") {
  const Picture picture = sample_picture(37, 61);
  for (const auto& each : every_format(picture)) {
    CAPTURE(each.first);
    const FileBytes& file = each.second;
    CHECK(picture_info(file, "a").height == 37);
    CHECK(picture_info(file, "a").width == 61);
    CHECK(difference(decode_picture(file, "a"), picture) <= (file[0] == 0xFF ? 4 : 0));
    const Picture grey = decode_picture(file, "a", 1);
    CHECK(grey.channels == 1);
    const uint8_t* rgb = picture.pixels.data() + 3 * 500;
    CHECK(std::abs(grey.pixels[500] - (299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2]) / 1000) <= 4);
  }
}

// Programs that convert by a printing press's profile give other colours (findings/sharp_cmyk.sh).
TEST_CASE("a JPEG of four inks has the colours that Pillow and OpenCV give it") {
  // A file holds what each ink leaves: 255 - 200, 255 - 50, 255 - 20, and 255 - 30 beside black.
  std::vector<uint8_t> inks;
  for (int i = 0; i < 16 * 16; ++i) inks.insert(inks.end(), {55, 205, 235, 225});
  const std::shared_ptr<void> writer(tjInitCompress(), tjDestroy);
  uint8_t* bytes = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): TurboJPEG's type
  REQUIRE(tjCompress2(writer.get(), inks.data(), 16, 0, 16, TJPF_CMYK, &bytes, &size, TJSAMP_444,
                      100, 0) == 0);
  const Picture found = decode_picture(FileBytes(bytes, bytes + size), "a");
  tjFree(bytes);
  REQUIRE(found.channels == 3);
  const std::array<int, 3> right = {49, 181, 207};  // Pillow's; OpenCV's are one more
  for (size_t c = 0; c < 3; ++c) CHECK(std::abs(found.pixels[c] - right[c]) <= 2);
}

TEST_CASE("grey, transparent and 16-bit PNG files become 8-bit colours") {
  const Picture rgb = sample_picture(9, 5);
  Picture grey{9, 5, 1, {}};
  std::vector<uint8_t> rgba;
  std::vector<uint16_t> wide;  // linear light in libpng's simplified interface: one value only
  for (size_t i = 0; i < 45; ++i) {
    grey.pixels.push_back(uint8_t(5 * i));
    rgba.insert(rgba.end(), {rgb.pixels[3 * i], rgb.pixels[3 * i + 1], rgb.pixels[3 * i + 2], 255});
    wide.insert(wide.end(), {65535, 0, 65535});
  }
  const Picture from_grey = decode_picture(png_file(grey), "a");
  CHECK(from_grey.channels == 3);
  CHECK(from_grey.pixels[3 * 7 + 2] == 35);
  CHECK(difference(decode_picture(png_file(rgb, PNG_FORMAT_RGBA, rgba.data()), "a"), rgb) == 0);
  const Picture from_wide =
      decode_picture(png_file(rgb, PNG_FORMAT_LINEAR_Y | PNG_FORMAT_FLAG_COLOR, wide.data()), "a");
  CHECK(from_wide.pixels[0] == 255);
  CHECK(from_wide.pixels[1] == 0);
  // Grey is scaled as colours are. Elsewhere it is cut off at 255, so that scans become white.
  const std::vector<uint16_t> scan = {0, 255, 256, 1000, 32768, 65535};
  const Picture from_scan =
      decode_picture(png_file({1, 6, 1, {}}, PNG_FORMAT_LINEAR_Y, scan.data()), "a", 1);
  CHECK(from_scan.pixels == std::vector<uint8_t>{0, 1, 1, 4, 128, 255});
}

TEST_CASE("a JPEG whose colours are sampled in a way without a name is read") {
  Picture picture{32, 48, 3, {}};
  for (int64_t i = 0; i < 32 * 48; ++i) picture.pixels.insert(picture.pixels.end(), {200, 90, 30});
  FileBytes file = jpeg_file(picture, 98, TJSAMP_420);
  // Four blocks of luminance for one of each colour: two by two, and then one by four.
  const FileBytes luminance = {1, 0x22, 0}, column = {1, 0x14, 0};
  const auto found = std::search(file.begin(), file.end(), luminance.begin(), luminance.end());
  REQUIRE(found != file.end());
  std::copy(column.begin(), column.end(), found);
  CHECK(picture_info(file, "a") == PictureInfo{32, 48});
  CHECK(difference(decode_picture(file, "a"), picture) <= 4);
  CHECK(decode_picture(file, "a", 1).pixels.size() == 32 * 48);
  CHECK(decode_picture(file, "a", 3, 16, 24).height == 16);
}

TEST_CASE("a JPEG is turned as its EXIF orientation says") {
  // Where the file's first pixel, its last of the first row, and the first of its last row go.
  struct Row {
    uint8_t orientation;
    bool swaps;
    int y, x, y_right, x_right;  // 0: the first row or column, 1: the last
  };
  const Row rows[] = {{1, false, 0, 0, 0, 1}, {2, false, 0, 1, 0, 0}, {3, false, 1, 1, 1, 0},
                      {4, false, 1, 0, 1, 1}, {5, true, 0, 0, 1, 0},  {6, true, 0, 1, 1, 1},
                      {7, true, 1, 1, 0, 1},  {8, true, 1, 0, 0, 0}};
  const Picture stored = sample_picture(16, 24);
  for (const Row& row : rows) {
    CAPTURE(int(row.orientation));
    const FileBytes file = jpeg_file_turned(stored, row.orientation);
    const Picture picture = decode_picture(file, "a");
    CHECK(picture.height == (row.swaps ? 24 : 16));
    CHECK(picture.width == (row.swaps ? 16 : 24));
    CHECK(picture_info(file, "a").height == picture.height);
    const auto at = [&](int y, int x, int c) {
      return int(picture.pixels[size_t(
          ((y * (picture.height - 1)) * picture.width + x * (picture.width - 1)) * 3 + c)]);
    };
    CHECK(std::abs(at(row.y, row.x, 0) - 0) < 8);  // red grows downwards in the file
    CHECK(std::abs(at(row.y, row.x, 1) - 0) < 8);  // green to the right
    CHECK(std::abs(at(row.y_right, row.x_right, 0) - 0) < 8);
    CHECK(at(row.y_right, row.x_right, 1) > 230);
  }
}

TEST_CASE("PNG and WebP are turned as JPEG is, and nothing is where EXIF is ignored") {
  const Picture stored = sample_picture(16, 24);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    CAPTURE(orientation);
    const Picture wanted = turned_picture(stored, orientation);
    for (const FileBytes& file : {png_file_turned(stored, static_cast<uint8_t>(orientation)),
                                  webp_file_turned(stored, static_cast<uint8_t>(orientation))}) {
      const Picture turned = decode_picture(file, "a");
      CHECK(turned.height == wanted.height);
      CHECK(turned.pixels == wanted.pixels);
      CHECK(decode_picture(file, "a", 3, 0, 0, Exif::ignore).pixels == stored.pixels);
      CHECK(picture_info(file, "a", Exif::ignore) == PictureInfo{16, 24});
      CHECK(PictureReader(file, "a", Exif::ignore).orientation() == orientation);
    }
    const FileBytes jpeg = jpeg_file_turned(stored, static_cast<uint8_t>(orientation));
    CHECK(difference(decode_picture(jpeg, "a"), wanted) <= 4);
    CHECK(difference(decode_picture(jpeg, "a", 3, 0, 0, Exif::ignore), stored) <= 4);
    CHECK(turned_picture(wanted, inverse_orientation(orientation)).pixels == stored.pixels);
    const std::array<float, 4> box = {1, 2, 5, 11};
    CHECK(turned_box(turned_box(box, {16, 24}, orientation), turned_size({16, 24}, orientation),
                     inverse_orientation(orientation)) == box);
  }
}

TEST_CASE("annotations are turned where their size says that they are about the other picture") {
  using Turn = std::optional<int>;
  const PictureInfo stored{16, 24}, turned{24, 16};
  CHECK(turn_of_annotations(stored, stored, 6, Exif::ignore) == Turn(1));
  CHECK(turn_of_annotations(turned, stored, 6, Exif::ignore) == Turn(8));
  CHECK(turn_of_annotations(stored, stored, 6, Exif::turn) == Turn(6));
  CHECK(turn_of_annotations(turned, stored, 6, Exif::turn) == Turn(1));
  CHECK(turn_of_annotations(turned, stored, 3, Exif::turn) == Turn());
  CHECK(turn_of_annotations({16, 16}, stored, 6, Exif::ignore) == Turn());
  // Both pictures have the size: annotations are about the one that is used.
  for (const Exif exif : {Exif::ignore, Exif::turn}) {
    CHECK(turn_of_annotations(stored, stored, 3, exif) == Turn(1));
    CHECK(turn_of_annotations({9, 9}, {9, 9}, 6, exif) == Turn(1));
  }
}

TEST_CASE("the scans of a JPEG are counted, and a file with too many for its size is refused") {
  const Picture picture = sample_picture(24, 32);
  const FileBytes plain = jpeg_file(picture), progressive = jpeg_file_progressive(picture);
  CHECK(jpeg_scans(plain, 100) == 1);
  const int64_t scans = jpeg_scans(progressive, 100);
  CHECK(scans > 5);
  CHECK(jpeg_scans(progressive, 3) == 4);  // counts no further than it must
  CHECK(difference(decode_picture(progressive, "a"), picture) <= 4);
  // Visits of pixels are bounded by a constant for each byte, beyond what small pictures may take.
  CHECK(most_jpeg_scans(int64_t{1} << 20, 1000) == 256);
  CHECK(most_jpeg_scans(int64_t{1} << 28, 1000) == 16);
  CHECK(most_jpeg_scans(int64_t{1} << 28, int64_t{1} << 24) == 256);
  CHECK(most_jpeg_scans(64, 1000) == 500);
  // The last scan again and again: it refines what is refined already, and changes nothing.
  const FileBytes mark = {0xFF, 0xDA};
  const auto last = std::find_end(progressive.begin(), progressive.end(), mark.begin(), mark.end());
  const FileBytes scan(last, progressive.end() - 2);
  FileBytes repeated = progressive;
  for (int64_t i = scans; i <= 500; ++i)
    repeated.insert(repeated.end() - 2, scan.begin(), scan.end());
  CHECK(jpeg_scans(repeated, 1000) == 501);
  CHECK_THROWS_WITH_AS(decode_picture(repeated, "a"),
                       doctest::Contains("expected at most 500 scans for 32 x 24 pixels"), Error);
  CHECK(decode_picture(progressive, "a").height == 24);  // the decoder reads the next file
  // A header that says more pixels than its bytes can hold.
  FileBytes wide = plain;
  const FileBytes frame = {0xFF, 0xC0};
  const auto at = std::search(wide.begin(), wide.end(), frame.begin(), frame.end()) - wide.begin();
  for (const int64_t side : {5, 7}) wide[static_cast<size_t>(at + side)] = 0x3F;  // 16,152 rows
  CHECK(most_jpeg_pixels(1) == 2048);
  CHECK_THROWS_WITH_AS(decode_picture(wide, "a"), doctest::Contains("fewer than"), Error);
}

TEST_CASE("a JPEG is decoded at a part of its size, and no smaller than asked for") {
  const Picture picture = sample_picture(200, 320);
  const FileBytes file = jpeg_file(picture);
  const Picture half = decode_picture(file, "a", 3, 90, 150);
  CHECK(half.height >= 90);
  CHECK(half.width >= 150);
  CHECK(half.height <= 100);
  CHECK(decode_picture(file, "a", 3, 201, 10).height == 200);
  CHECK(decode_picture(file, "a", 3, 0, 0).height == 200);
  // The limits are those of the upright picture.
  CHECK(decode_picture(jpeg_file_turned(picture, 6), "a", 3, 310, 10).height == 320);
}

TEST_CASE("a truncated file of any format is an error that names it, and the next file is read") {
  const Picture picture = sample_picture(40, 40);
  for (const auto& each : every_format(picture)) {
    const FileBytes& file = each.second;
    for (size_t keep :
         {size_t(1), size_t(13), size_t(30), size_t(300), file.size() / 2, file.size() * 9 / 10}) {
      if (keep >= file.size()) continue;
      CAPTURE(each.first);
      CAPTURE(keep);
      const FileBytes part(file.begin(), file.begin() + int64_t(keep));
      bool named = false;
      try {
        decode_picture(part, "some/file");
      } catch (const Error& error) {
        named = std::string(error.what()).find("some/file") != std::string::npos;
      }
      CHECK(named);
      CHECK(decode_picture(file, "a").height == 40);
    }
  }
}

TEST_CASE("damaged files give an error or a picture, never more") {
  const Picture picture = sample_picture(24, 17);
  int64_t errors = 0;
  for (const auto& [format, file] : every_format(picture))
    for (uint64_t trial = 0; trial < 300; ++trial) {
      FileBytes damaged = file;
      for (uint64_t i = 0; i < 4; ++i)
        damaged[uniform_int({7, trial}, 2 * i, damaged.size())] =
            uint8_t(uniform_int({7, trial}, 2 * i + 1, 256));
      try {
        const Picture got = decode_picture(damaged, "a");
        CHECK(int64_t(got.pixels.size()) == got.height * got.width * got.channels);
      } catch (const Error&) {
        ++errors;
      }
    }
  CHECK(errors > 100);
}

TEST_CASE("what is no picture, and a picture of too many pixels, are errors") {
  CHECK_THROWS_AS(decode_picture(FileBytes{}, "a"), Error);
  CHECK_THROWS_AS(decode_picture(FileBytes{'G', 'I', 'F', '8', '9', 'a', 0, 0}, "a"), Error);
  FileBytes huge = bmp_file(sample_picture(4, 4));
  huge[20] = huge[24] = 0x7F;  // 8 million by 8 million
  CHECK_THROWS_AS(decode_picture(huge, "a"), Error);
  CHECK_THROWS_AS(decode_picture(png_file(sample_picture(4, 4)), "a", 2), Error);
}

TEST_CASE("resizing keeps a constant, copies at equal size and averages at half") {
  Picture picture{4, 6, 1, {}};
  for (int i = 0; i < 24; ++i) picture.pixels.push_back(uint8_t(10 * i));
  std::vector<float> same(24), half(6), grown(96);
  resize_into(picture, {0, 0, 4, 6}, 4, 6, same.data());
  for (size_t i = 0; i < 24; ++i) CHECK(same[i] == doctest::Approx(picture.pixels[i] / 255.0));
  // A triangle of two pixels to each side: weights 1, 3, 3, 1 of 8 within the picture.
  resize_into(picture, {0, 0, 4, 6}, 2, 3, half.data());
  const double row[] = {(3 * 0 + 3 * 60 + 120) / 7.0, (60 + 3 * 120 + 3 * 180) / 7.0};
  const double column = (10 + 3 * 20 + 3 * 30 + 40) / 8.0;
  CHECK(half[1] * 255 == doctest::Approx(row[0] + column));
  CHECK(half[4] * 255 == doctest::Approx(row[1] + column));
  std::fill(picture.pixels.begin(), picture.pixels.end(), uint8_t(51));
  resize_into(picture, {0.3, 1.2, 3.1, 4.4}, 8, 12, grown.data());
  for (float value : grown) CHECK(value == doctest::Approx(0.2));
  CHECK_THROWS_AS(resize_into(picture, {0, 0, 5, 6}, 2, 2, grown.data()), Error);
  CHECK_THROWS_AS(resize_into(picture, {0, 0, 0, 6}, 2, 2, grown.data()), Error);
}

}  // namespace
}  // namespace frugal::data
#endif

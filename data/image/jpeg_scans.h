// How much work a JPEG asks for. A scan may say nothing of a picture and still make the decoder
// visit each of its pixels, so a small file with many scans could keep it busy for minutes.
// Ref: libjpeg-turbo's advice to applications is to limit the number of scans.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace frugal::data {

// How many scans the file has, counted up to one more than `most`. Reads markers only: the time is
// linear in the bytes.
int64_t jpeg_scans(std::span<const uint8_t> bytes, int64_t most);

// The most scans that are decoded of a file of so many bytes: 16, which is more than encoders
// write, and more where the file is large or the picture small, up to 500. So the work for a byte
// is bounded.
int64_t most_jpeg_scans(int64_t pixels, int64_t bytes);

// The most pixels that so many bytes can hold: with the shortest codes, a byte holds 8 blocks of
// 64 pixels, and colours may have fewer blocks.
int64_t most_jpeg_pixels(int64_t bytes);

// Why the file is not decoded: too many scans, or fewer bytes than its pixels need. Empty: it is.
std::string fault_of_jpeg(std::span<const uint8_t> bytes, int64_t height, int64_t width);

}  // namespace frugal::data

#include "data/image/jpeg_scans.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace frugal::data {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr uint8_t kMark = 0xFF, kStartOfImage = 0xD8, kEndOfImage = 0xD9, kStartOfScan = 0xDA;
constexpr uint8_t kFirstArithmetic = 0xC9, kLastArithmetic = 0xCF, kArithmeticTables = 0xCC;

// Markers that stand alone, without a segment behind them: restarts, and TEM.
bool stands_alone(uint8_t code) { return (code >= 0xD0 && code <= kStartOfImage) || code == 0x01; }

// Calls found(code) for each marker until it returns false.
template <class Found>
void walk(Bytes bytes, const Found& found) {
  size_t at = 0;
  while (at + 1 < bytes.size()) {
    const void* next = std::memchr(bytes.data() + at, kMark, bytes.size() - 1 - at);
    if (next == nullptr) return;
    at = static_cast<size_t>(static_cast<const uint8_t*>(next) - bytes.data());
    const uint8_t code = bytes[at + 1];
    if (code == kMark) {  // padding
      ++at;
      continue;
    }
    at += 2;
    if (code == 0 || stands_alone(code)) continue;  // 0: a byte of data that looks like a marker
    if (!found(code) || code == kEndOfImage || at + 1 >= bytes.size()) return;
    at += static_cast<size_t>(bytes[at]) << 8 | bytes[at + 1];
  }
}

}  // namespace

int64_t jpeg_scans(Bytes bytes, int64_t most) {
  int64_t scans = 0;
  walk(bytes, [&](uint8_t code) {
    scans += code == kStartOfScan ? 1 : 0;
    return scans <= most;
  });
  return scans;
}

int64_t most_jpeg_scans(int64_t pixels, int64_t bytes) {
  constexpr int64_t kAlways = 16, kNever = 500;
  constexpr int64_t kFree = int64_t{1} << 28, kForByte = int64_t{1} << 12;  // visits of pixels
  const int64_t visits = std::max(kFree, std::min(bytes, int64_t{1} << 40) * kForByte);
  return std::clamp(visits / std::max<int64_t>(pixels, 1), kAlways, kNever);
}

int64_t most_jpeg_pixels(int64_t bytes) {
  // Two colours of which each has a quarter of the rows or columns.
  constexpr int64_t kForByte = int64_t{8} * 64 * 4;
  return std::min(bytes, int64_t{1} << 40) * kForByte;
}

std::string fault_of_jpeg(Bytes bytes, int64_t height, int64_t width) {
  const int64_t pixels = height * width, size = static_cast<int64_t>(bytes.size());
  const int64_t most = most_jpeg_scans(pixels, size);
  if (jpeg_scans(bytes, most) > most)
    return fmt::format("expected at most {} scans for {} x {} pixels in {} bytes, got more", most,
                       width, height, size);
  bool arithmetic = false;  // its codes may be shorter than a bit
  walk(bytes, [&](uint8_t code) {
    arithmetic = arithmetic ||
                 (code >= kFirstArithmetic && code <= kLastArithmetic && code != kArithmeticTables);
    return code != kStartOfScan;
  });
  if (!arithmetic && pixels > most_jpeg_pixels(size))
    return fmt::format("its {} bytes are fewer than {} x {} pixels need", size, width, height);
  return {};
}

}  // namespace frugal::data

// The kernels of forms.h, as jobs. Elements are read and written as the unsigned integers of 1, 2,
// 4 or 8 bytes that they are in memory. Internal.
#pragma once
#include "compress/foreign/forms.h"
#include "core/device.h"
#include "core/host_device.h"

namespace frugal::compress::foreign {

// Bits of `elements`. Whole blocks of 8 rows of `cols` elements come first: bit k of byte [b, c] is
// that of the element in row 8 b + k and column c. In the bytes after them, element i of the rest
// is bit i % 8 of byte i / 8.
struct BitLayout {
  int64_t elements = 0, cols = 1;
  FRUGAL_HD int64_t blocks() const { return elements / (8 * cols); }
  FRUGAL_HD int64_t whole_bytes() const { return blocks() * cols; }
  FRUGAL_HD int64_t bytes() const { return whole_bytes() + (elements - whole_bytes() * 8 + 7) / 8; }
};

// A bit is set where an element is above 0 and at most `most`: with the infinity of a floating
// dtype where it is positive.
struct BitWriting {
  const void* x = nullptr;
  int size = 4;
  uint64_t most = 0;
  BitLayout layout;
  uint8_t* to = nullptr;
};
void write_bits_kernel(Cpu, const BitWriting& job);
void write_bits_kernel(Cuda, const BitWriting& job);

// Writes `ones` where a bit is set and `zeros` elsewhere.
struct BitReading {
  const uint8_t* from = nullptr;
  BitLayout layout;
  int size = 4;
  uint64_t zeros = 0, ones = 0;
  void* to = nullptr;
};
void read_bits_kernel(Cpu, const BitReading& job);
void read_bits_kernel(Cuda, const BitReading& job);

// Levels. On CUDA the codes are followed by a byte for each block of kOddBlock values: does it hold
// one that is not finite?
inline constexpr int64_t kOddBlock = 2048;
struct LevelWriting {
  const float* x = nullptr;
  int64_t elements = 0;
  int width = 4;
  RngKey key;
  float levels[256] = {};
  uint8_t* codes = nullptr;
  uint8_t* odd = nullptr;  // on CUDA

  FRUGAL_HD int last() const { return (1 << width) - 1; }
  // The level at or below x, which lies between the first one and the last one.
  FRUGAL_HD int below(float value, const float* of, float scale) const {
    // Levels that lie evenly need no search after this guess.
    int i = static_cast<int>((value - of[0]) * scale);
    i = i < 0 ? 0 : i > last() - 1 ? last() - 1 : i;
    while (i > 0 && value < of[i]) --i;
    while (i < last() - 1 && value >= of[i + 1]) ++i;
    return i;
  }
  // The code of value k of a block of 8, which draws 16 bits of these words.
  FRUGAL_HD uint32_t code(float value, int k, const uint32_t* words, const float* of,
                          float scale) const {
    value = value < of[0] ? of[0] : value > of[last()] ? of[last()] : value;
    const int i = below(value, of, scale);
    const uint32_t draw = words[k / 2] >> (k % 2 * 16) & 0xffff;
    const float u = (static_cast<float>(draw) + 0.5f) * 0x1p-16f;
    return static_cast<uint32_t>(i + ((value - of[i]) > u * (of[i + 1] - of[i]) ? 1 : 0));
  }
};
// Returns false if a value is not finite; on CUDA nobody sees that.
bool write_levels_kernel(Cpu, const LevelWriting& job);
bool write_levels_kernel(Cuda, const LevelWriting& job);

struct LevelReading {
  const uint8_t* codes = nullptr;
  const uint8_t* odd = nullptr;  // on CUDA
  int64_t elements = 0;
  int width = 4, size = 4;
  uint64_t table[256] = {}, nan = 0;
  void* to = nullptr;
};
void read_levels_kernel(Cpu, const LevelReading& job);
void read_levels_kernel(Cuda, const LevelReading& job);

// Windows.
struct Places {
  Windows w;
  // The index at which the window of an output begins in its plane.
  FRUGAL_HD int64_t origin(int64_t output) const {
    const int64_t in_plane = output % (w.out_height * w.out_width);
    const int64_t row = in_plane / w.out_width, column = in_plane % w.out_width;
    return (row * w.stride[0] - w.padding[0]) * w.width + column * w.stride[1] - w.padding[1];
  }
  // How far a place lies behind the beginning of its window.
  FRUGAL_HD int64_t distance(int64_t place) const {
    return place / w.kernel[1] * w.dilation[0] * w.width + place % w.kernel[1] * w.dilation[1];
  }
  // The place at such a distance; 0 where there is none. REQUIRES: windows are narrower than the
  // plane.
  FRUGAL_HD int64_t place(int64_t far) const {
    if (far < 0 || far > distance(w.kernel[0] * w.kernel[1] - 1)) return 0;
    const int64_t row = far / w.width / w.dilation[0], column = far % w.width / w.dilation[1];
    const int64_t found = row * w.kernel[1] + column;
    return column < w.kernel[1] && distance(found) == far ? found : 0;
  }
  // The index into the plane of a window's place, or the nearest index that the plane has.
  FRUGAL_HD int64_t index(int64_t output, int64_t place) const {
    const int64_t at = origin(output) + distance(place), last = w.height * w.width - 1;
    return at < 0 ? 0 : at > last ? last : at;
  }
};
struct PlaceWriting {
  const int64_t* x = nullptr;
  int64_t elements = 0;
  int width = 4;
  Places places;
  uint8_t* codes = nullptr;
};
// Returns false if an index is at no place of its window; on CUDA its code is 0.
bool write_places_kernel(Cpu, const PlaceWriting& job);
bool write_places_kernel(Cuda, const PlaceWriting& job);

struct PlaceReading {
  const uint8_t* codes = nullptr;
  int64_t elements = 0;
  int width = 4;
  Places places;
  int64_t* to = nullptr;
};
void read_places_kernel(Cpu, const PlaceReading& job);
void read_places_kernel(Cuda, const PlaceReading& job);

}  // namespace frugal::compress::foreign

// rANS: codes bytes in about as many bits as their entropy, with 8 interleaved states.
//
// A stream is 8 states and then 16-bit words. Encoding runs backwards: the last byte first, from
// the end of a buffer to its beginning. Byte i of a segment belongs to state i % 8; every segment
// may have a table of its own.
// Ref: Duda 2013, "Asymmetric numeral systems"; Giesen 2014, "Interleaved entropy coders".
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace frugal::compress::rans {

inline constexpr int kStates = 8;
inline constexpr int kScaleBits = 12;
inline constexpr uint32_t kScale = 1u << kScaleBits;
inline constexpr uint32_t kLow = 1u << 15;  // states lie in [kLow, 2^16 kLow)

using Histogram = std::array<int64_t, 256>;
void count_bytes(const uint8_t* bytes, size_t size, Histogram& histogram);  // adds to the counts
double entropy(const Histogram& histogram);  // bits per byte; 0 if there are none

// Frequencies as shares of kScale; at least 1 for each byte that occurs.
using Frequencies = std::array<uint16_t, 256>;
Frequencies frequencies(const Histogram& histogram);  // REQUIRES: at least 2 different bytes
double coded_bits(const Histogram& histogram, const Frequencies& frequencies);

struct EncodeTable {
  explicit EncodeTable(const Frequencies& frequencies);
  struct Entry {
    uint32_t limit, reciprocal, start, rest;  // rest = kScale - frequency
    uint32_t shift;
  };
  std::array<Entry, 256> of;
};

struct DecodeTable {
  explicit DecodeTable(const Frequencies& frequencies);
  std::array<uint32_t, kScale> of;  // byte | frequency << 8 | place within it << 20
};

// For `bytes` bytes: the size that a buffer needs, and how far reading goes beyond the end of a
// stream.
constexpr size_t stream_bound(size_t bytes) { return bytes * 2 + kStates * 4 + 16; }
inline constexpr size_t kReadBeyond = 2;

class Encoder {
 public:
  explicit Encoder(uint8_t* end);  // end of the buffer
  // Segments are put in reverse order. REQUIRES: no byte of frequency 0.
  void put(const uint8_t* bytes, size_t size, const EncodeTable& table);
  uint8_t* finish();  // where the stream begins

 private:
  uint8_t* at_;
  std::array<uint32_t, kStates> states_;
};

class Decoder {
 public:
  explicit Decoder(const uint8_t* stream);
  void get(uint8_t* bytes, size_t size, const DecodeTable& table);

 private:
  const uint8_t* at_;
  std::array<uint32_t, kStates> states_;
};

}  // namespace frugal::compress::rans

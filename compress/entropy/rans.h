// rANS: codes bytes in about as many bits as their entropy, with 32 interleaved states.
//
// A stream is 32 states and then 16-bit words. Encoding runs backwards: the last byte first, from
// the end of a buffer to its beginning. Byte i of a segment belongs to state i % 32; every segment
// may have a table of its own. So 32 bytes of a segment are coded in one step: by vectors on a CPU
// (rans_coder.cpp), by a warp on CUDA (cuda_rans.h).
//
// One byte of frequency f, whose share of [0, kScale) begins at `start`, with the state x:
//   encoding: if x >= 2^19 f, the lower 16 bits of x become a word and x becomes x / 2^16;
//             then x becomes x / f * kScale + start + x % f.
//   decoding: the byte is the one whose share holds x % kScale; x becomes
//             f * (x / kScale) + x % kScale - start; if that is below kLow, x becomes
//             x * 2^16 + the next word.
// Ref: Duda 2013, "Asymmetric numeral systems"; Giesen 2014, "Interleaved entropy coders".
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/entropy/count_bytes.h"

namespace frugal::compress::rans {

inline constexpr int kStates = 32;
inline constexpr int kScaleBits = 12;
inline constexpr uint32_t kScale = 1u << kScaleBits;
inline constexpr uint32_t kLow = 1u << 15;  // states lie in [kLow, 2^16 kLow)
// A state is too large for a byte of frequency f from f << kLargeBits on.
inline constexpr int kLargeBits = 15 - kScaleBits + 16;

using Histogram = std::array<int64_t, 256>;
double entropy(const Histogram& histogram);  // bits per byte; 0 if there are none

// Counts the bytes of many runs.
class Counter {
 public:
  void add(const uint8_t* bytes, size_t size);
  void add_to(Histogram& histogram) const;

 private:
  void add_few(const uint8_t* bytes, size_t size);
  void count(const uint8_t* bytes, size_t size);

  std::array<std::array<uint32_t, 256>, 8> counts_{};
  size_t counted_ = 0;   // bytes in counts_ and waiting_
  Histogram earlier_{};  // what counts_ could not hold
  // The last bytes, until they are a block that vectors count.
  std::array<uint8_t, kCountBlock> waiting_;
  size_t waits_ = 0;
};

// Frequencies as shares of kScale; at least 1 for each byte that occurs.
using Frequencies = std::array<uint16_t, 256>;
Frequencies frequencies(const Histogram& histogram);  // REQUIRES: at least 2 different bytes
double coded_bits(const Histogram& histogram, const Frequencies& frequencies);

// Frequencies of bytes whose upper bits are a context: the decoder knows them before it decodes the
// byte. The lowest `symbol_bits` bits are coded. The frequencies of each context that occurs have
// the sum kScale.
Frequencies context_frequencies(const Histogram& histogram, int symbol_bits);

struct EncodeTable {
  explicit EncodeTable(const Frequencies& frequencies);  // without or with contexts
  alignas(64) std::array<uint32_t, 256> of;              // frequency | start << 16
  // frequency and start hold the numbers of `of`, for vectors that look bytes up in registers.
  alignas(64) std::array<uint16_t, 256> frequency, start;
  alignas(64) std::array<std::array<uint8_t, 256>, 3> parts;  // bytes of frequency | start << 12
};

struct DecodeTable {
  explicit DecodeTable(const Frequencies& frequencies);  // Errors: their sum is not kScale
  std::array<uint32_t, kScale> of;  // byte | frequency << 8 | place within it << 20
};

// The tables of all contexts, one after the other. Entries are those of a DecodeTable.
struct ContextTable {
  // Errors: the frequencies of a context have neither the sum kScale nor the sum 0.
  ContextTable(const Frequencies& frequencies, int symbol_bits);
  std::vector<uint32_t> of;
};

// The size that a buffer needs for the stream of `bytes` bytes.
constexpr size_t stream_bound(size_t bytes) { return bytes * 2 + kStates * 4 + 64; }

using States = std::array<uint32_t, kStates>;

struct EncodeSegment {
  const uint8_t* bytes;
  size_t size;
  const EncodeTable* table;
};
struct DecodeSegment {
  uint8_t* bytes;
  size_t size;
  const DecodeTable* table;
};
struct ContextSegment {
  uint8_t* bytes;
  const uint8_t* contexts;  // the context of each byte, as a number from 0
};

class Encoder {
 public:
  explicit Encoder(uint8_t* end);  // end of the buffer
  // Segments are put in reverse order. REQUIRES: no byte of frequency 0.
  void put(const uint8_t* bytes, size_t size, const EncodeTable& table);
  uint8_t* finish();  // returns where the stream begins
  // Puts segments into two streams, those of a span from its first to its last. This is faster than
  // one stream after the other: while a step waits for its states, a step of the other stream runs.
  static void put_two(Encoder& a, std::span<const EncodeSegment> segments_a, Encoder& b,
                      std::span<const EncodeSegment> segments_b);

 private:
  // Puts the bytes after the last whole step.
  void put_rest(EncodeSegment& segment);

  alignas(64) States states_;
  uint8_t* at_;
};

// The words of a stream. Behind its end there are zeros.
class WordReader {
 public:
  static constexpr std::ptrdiff_t kAhead = 2 * kStates;  // bytes: a word for each state

  WordReader(const uint8_t* begin, const uint8_t* end) : at_(begin), end_(end) {}
  WordReader(const WordReader&) = delete;
  WordReader& operator=(const WordReader&) = delete;
  // From here kAhead bytes can be read.
  const uint8_t* at() {
    if (end_ - at_ < kAhead) last_words();
    return at_;
  }
  // `at`: at most kAhead bytes after at().
  void go_on(const uint8_t* at) { at_ = at; }

 private:
  void last_words();

  const uint8_t *at_, *end_;
  bool copied_ = false;
  std::array<uint8_t, 2 * kAhead> rest_;  // the last bytes of the stream, and zeros
};

class Decoder {
 public:
  // Nothing at `end` or after it is read.
  Decoder(const uint8_t* stream, const uint8_t* end);
  void get(uint8_t* bytes, size_t size, const DecodeTable& table);
  // Gets segments of two streams, those of a span from its first to its last; see put_two().
  static void get_two(Decoder& a, std::span<const DecodeSegment> segments_a, Decoder& b,
                      std::span<const DecodeSegment> segments_b);
  // Gets bytes, contexts included, that were put with frequencies by context.
  void get(const ContextSegment& segment, size_t size, const ContextTable& table);
  // Gets `size` bytes of each of two streams; see put_two().
  static void get_two(Decoder& a, const ContextSegment& segment_a, Decoder& b,
                      const ContextSegment& segment_b, size_t size, const ContextTable& table);

 private:
  void get_rest(const ContextSegment& segment, size_t size, const ContextTable& table);

  alignas(64) States states_;
  WordReader words_;
};

}  // namespace frugal::compress::rans

// Coding by rANS (rans.h), 32 bytes in a step. Vectors of 8 or 16 states where the machine has
// them, else one state after the other. The bytes are the same.
#include <algorithm>
#include <cstring>

#include "compress/entropy/rans.h"

// Scalable vectors cannot be array elements; aarch64 runs NEON.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/entropy/rans_coder.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef FRUGAL_COMPRESS_RANS_STEPS
#define FRUGAL_COMPRESS_RANS_STEPS
namespace frugal::compress::rans {

// A little below 1 / f. The quotient of a state is less than 2^19. Rounding and this factor make
// its f32 too small by less than 7 * 2^-24 of itself, so truncation gives the quotient or one less.
inline constexpr float kBelowOne = 1 - 0x1p-22f;

inline uint32_t encode(uint32_t x, uint32_t entry, uint8_t*& at) {
  const uint32_t f = entry & 0xffff, start = entry >> 16;
  if (x >= f << kLargeBits) {
    const auto word = static_cast<uint16_t>(x);
    at -= 2;
    std::memcpy(at, &word, 2);
    x >>= 16;
  }
  const float inverse = kBelowOne / static_cast<float>(static_cast<int32_t>(f));
  auto quotient = static_cast<uint32_t>(
      static_cast<int32_t>(static_cast<float>(static_cast<int32_t>(x)) * inverse));
  uint32_t rest = x - quotient * f;
  if (rest >= f) ++quotient, rest -= f;
  return (quotient << kScaleBits) + start + rest;
}

inline uint32_t decode(uint32_t x, uint8_t& byte, const DecodeTable& table, const uint8_t*& at) {
  const uint32_t entry = table.of[x % kScale];
  byte = static_cast<uint8_t>(entry);
  x = (entry >> 8) % kScale * (x >> kScaleBits) + (entry >> 20);
  if (x >= kLow) return x;
  uint16_t word;
  std::memcpy(&word, at, 2);
  at += 2;
  return x << 16 | word;
}

// For each set of 8 lanes that take or give a word. take[set][lane]: which of the next words a lane
// takes. give[set][i]: the lane of word i, where the last word is word 7.
struct WordOrder {
  alignas(8) uint8_t take[256][8] = {}, give[256][8] = {};
  constexpr WordOrder() {
    for (int set = 0; set < 256; ++set) {
      uint8_t words = 0;
      for (uint8_t lane = 0; lane < 8; ++lane) {
        take[set][lane] = words;
        words = static_cast<uint8_t>(words + (set >> lane & 1));
      }
      int last = 8;
      for (int lane = 8; lane-- > 0;)
        if ((set >> lane & 1) != 0) give[set][--last] = static_cast<uint8_t>(lane);
    }
  }
};

}  // namespace frugal::compress::rans
#endif

// Below 8 lanes, and without shuffles by index, vectors are not faster.
#undef FRUGAL_RANS_VECTORS
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define FRUGAL_RANS_VECTORS 1
#else
#define FRUGAL_RANS_VECTORS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace frugal::compress::rans {
namespace HWY_NAMESPACE {

#if FRUGAL_RANS_VECTORS

namespace hn = hwy::HWY_NAMESPACE;

using DU = hn::CappedTag<uint32_t, 16>;
using DI = hn::RebindToSigned<DU>;
using DF = hn::RebindToFloat<DU>;
using VU = hn::Vec<DU>;
using VF = hn::Vec<DF>;

constexpr size_t kLanes = HWY_TARGET <= HWY_AVX3 ? 16 : 8, kVectors = kStates / kLanes;

// Entry of each lane of an array. The machine's own gathers are slower on many processors.
HWY_INLINE __m128i FourEntries(const uint32_t* table, uint64_t first, uint64_t second) {
  __m128i entries = _mm_cvtsi32_si128(static_cast<int>(table[first & 0xffffffffu]));
  entries = _mm_insert_epi32(entries, static_cast<int>(table[first >> 32]), 1);
  entries = _mm_insert_epi32(entries, static_cast<int>(table[second & 0xffffffffu]), 2);
  return _mm_insert_epi32(entries, static_cast<int>(table[second >> 32]), 3);
}
HWY_INLINE VU Entries(const uint32_t* table, VU index) {
  alignas(64) uint64_t pairs[kLanes / 2];
  hn::Store(index, DU(), reinterpret_cast<uint32_t*>(pairs));
  const auto eight = [&](const uint64_t* from) HWY_ATTR {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(FourEntries(table, from[0], from[1])),
                                   FourEntries(table, from[2], from[3]), 1);
  };
#if HWY_TARGET <= HWY_AVX3
  return VU{_mm512_inserti64x4(_mm512_castsi256_si512(eight(pairs)), eight(pairs + 4), 1)};
#else
  return VU{eight(pairs)};
#endif
}

#if HWY_TARGET <= HWY_AVX3

// Frequencies and starts of all bytes in registers.
class SymbolTable {
 public:
  HWY_INLINE explicit SymbolTable(const EncodeTable& table) {
    alignas(64) uint16_t even[32];
    for (size_t i = 0; i < 32; ++i) even[i] = static_cast<uint16_t>(2 * i);
    const __m512i low = _mm512_load_si512(even), high = _mm512_add_epi16(low, _mm512_set1_epi16(1));
    for (size_t i = 0; i < 8; ++i) {
      const __m512i a = _mm512_load_si512(table.of.data() + 32 * i),
                    b = _mm512_load_si512(table.of.data() + 32 * i + 16);
      frequency_[i] = _mm512_permutex2var_epi16(a, low, b);
      start_[i] = _mm512_permutex2var_epi16(a, high, b);
    }
  }
  // Of 32 bytes.
  HWY_INLINE void find(const uint8_t* bytes, VU* frequency, VU* start) const {
    const __m512i index =
        _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)));
    split(look(frequency_, index), frequency);
    split(look(start_, index), start);
  }

 private:
  static HWY_INLINE __m512i look(const __m512i* table, __m512i index) {
    const __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64)),
                    bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
    const __m512i a = _mm512_permutex2var_epi16(table[0], index, table[1]),
                  b = _mm512_permutex2var_epi16(table[2], index, table[3]),
                  c = _mm512_permutex2var_epi16(table[4], index, table[5]),
                  d = _mm512_permutex2var_epi16(table[6], index, table[7]);
    return _mm512_mask_blend_epi16(bit7, _mm512_mask_blend_epi16(bit6, a, b),
                                   _mm512_mask_blend_epi16(bit6, c, d));
  }
  static HWY_INLINE void split(__m512i all, VU* halves) {
    halves[0] = VU{_mm512_cvtepu16_epi32(_mm512_castsi512_si256(all))};
    halves[1] = VU{_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(all, 1))};
  }

  __m512i frequency_[8], start_[8];
};

HWY_INLINE VF ToFloat(VU x) { return VF{_mm512_cvtepi32_ps(x.raw)}; }
HWY_INLINE VU Truncate(VF x) { return VU{_mm512_cvttps_epi32(x.raw)}; }

HWY_INLINE uint8_t* StoreWords(hn::Mask<DU> large, VU x, uint8_t* at) {
  const int count = __builtin_popcount(large.raw);
  at -= 2 * count;
  _mm256_mask_storeu_epi16(at, static_cast<__mmask16>((1u << count) - 1),
                           _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(large.raw, x.raw)));
  return at;
}
// A word for each lane of `small`, as the lower half of 0 otherwise.
HWY_INLINE VU LoadWords(hn::Mask<DU> small, const uint8_t*& at) {
  const __m512i words =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  at += 2 * __builtin_popcount(small.raw);
  return VU{_mm512_maskz_expand_epi32(small.raw, words)};
}

#else

constexpr WordOrder kOrder;

class SymbolTable {
 public:
  HWY_INLINE explicit SymbolTable(const EncodeTable& table) : of_(table.of.data()) {}
  HWY_INLINE void find(const uint8_t* bytes, VU* frequency, VU* start) const {
    const hn::Rebind<uint8_t, DU> d8;
    for (size_t v = 0; v < kVectors; ++v) {
      const VU entries = Entries(of_, hn::PromoteTo(DU(), hn::LoadU(d8, bytes + v * kLanes)));
      frequency[v] = hn::And(entries, hn::Set(DU(), 0xffffu));
      start[v] = hn::ShiftRight<16>(entries);
    }
  }

 private:
  const uint32_t* of_;
};

HWY_INLINE VF ToFloat(VU x) { return VF{_mm256_cvtepi32_ps(x.raw)}; }
HWY_INLINE VU Truncate(VF x) { return VU{_mm256_cvttps_epi32(x.raw)}; }

HWY_INLINE uint32_t SetOf(hn::Mask<DU> mask) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(mask.raw)));
}
HWY_INLINE __m256i OrderOf(const uint8_t* lanes) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(lanes)));
}
// What lies below the words is written over, and they themselves are written once.
HWY_INLINE uint8_t* StoreWords(hn::Mask<DU> large, VU x, uint8_t* at) {
  const uint32_t set = SetOf(large);
  const hn::Rebind<uint16_t, DU> d16;
  const VU words{_mm256_permutevar8x32_epi32(x.raw, OrderOf(kOrder.give[set]))};
  hn::StoreU(hn::TruncateTo(d16, words), d16, reinterpret_cast<uint16_t*>(at - 16));
  return at - 2 * __builtin_popcount(set);
}
HWY_INLINE VU LoadWords(hn::Mask<DU> small, const uint8_t*& at) {
  const uint32_t set = SetOf(small);
  const __m256i words =
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  at += 2 * __builtin_popcount(set);
  return hn::IfThenElseZero(small,
                            VU{_mm256_permutevar8x32_epi32(words, OrderOf(kOrder.take[set]))});
}

#endif

// REQUIRES: values below 2^31.
HWY_INLINE hn::Mask<DU> Above(VU a, VU b) {
  return hn::RebindMask(DU(), hn::Gt(hn::BitCast(DI(), a), hn::BitCast(DI(), b)));
}
HWY_INLINE void LoadStates(const States& states, VU* x) {
  for (size_t v = 0; v < kVectors; ++v) x[v] = hn::Load(DU(), states.data() + v * kLanes);
}
HWY_INLINE void StoreStates(const VU* x, States& states) {
  for (size_t v = 0; v < kVectors; ++v) hn::Store(x[v], DU(), states.data() + v * kLanes);
}

// REQUIRES: a multiple of kStates bytes.
uint8_t* Encode(const uint8_t* bytes, size_t size, const EncodeTable& table, States& states,
                uint8_t* at) {
  const DU du;
  const DF df;
  const SymbolTable symbols(table);
  VU x[kVectors];
  LoadStates(states, x);
  for (; size > 0; size -= kStates) {
    VU frequency[kVectors], start[kVectors];
    symbols.find(bytes + size - kStates, frequency, start);
    for (size_t v = kVectors; v-- > 0;) {
      const VU f = frequency[v], one = hn::Set(du, 1);
      const VF inverse = hn::Div(hn::Set(df, kBelowOne), ToFloat(f));
      const auto large = Above(x[v], hn::Sub(hn::ShiftLeft<kLargeBits>(f), one));
      at = StoreWords(large, x[v], at);
      x[v] = hn::IfThenElse(large, hn::ShiftRight<16>(x[v]), x[v]);
      const VU quotient = Truncate(hn::Mul(ToFloat(x[v]), inverse));
      const VU rest = hn::Sub(x[v], hn::Mul(quotient, f));
      const auto more = Above(rest, hn::Sub(f, one));
      x[v] = hn::Add(hn::Add(hn::ShiftLeft<kScaleBits>(quotient), start[v]), rest);
      x[v] = hn::Add(x[v], hn::IfThenElseZero(more, hn::Sub(hn::Set(du, kScale), f)));
    }
  }
  StoreStates(x, states);
  return at;
}

void Decode(uint8_t* bytes, size_t size, const DecodeTable& table, States& states,
            WordReader& words) {
  const DU du;
  const hn::Rebind<uint8_t, DU> d8;
  const VU slots = hn::Set(du, kScale - 1);
  VU x[kVectors];
  LoadStates(states, x);
  for (size_t i = 0; i < size; i += kStates) {
    const uint8_t* at = words.at();
    for (size_t v = 0; v < kVectors; ++v) {
      const VU entry = Entries(table.of.data(), hn::And(x[v], slots));
      hn::StoreU(hn::TruncateTo(d8, entry), d8, bytes + i + v * kLanes);
      const VU f = hn::And(hn::ShiftRight<8>(entry), slots);
      x[v] = hn::Add(hn::Mul(f, hn::ShiftRight<kScaleBits>(x[v])), hn::ShiftRight<20>(entry));
      const auto small = hn::Eq(hn::ShiftRight<15>(x[v]), hn::Zero(du));  // below kLow
      const VU next = LoadWords(small, at);
      x[v] = hn::Or(hn::IfThenElse(small, hn::ShiftLeft<16>(x[v]), x[v]), next);
    }
    words.go_on(at);
  }
  StoreStates(x, states);
}

#else

uint8_t* Encode(const uint8_t* bytes, size_t size, const EncodeTable& table, States& states,
                uint8_t* at) {
  States x = states;
  for (; size > 0; size -= kStates)
    for (size_t k = kStates; k-- > 0;) x[k] = encode(x[k], table.of[bytes[size - kStates + k]], at);
  states = x;
  return at;
}

void Decode(uint8_t* bytes, size_t size, const DecodeTable& table, States& states,
            WordReader& words) {
  for (size_t i = 0; i < size; i += kStates) {
    const uint8_t* at = words.at();
    for (size_t k = 0; k < kStates; ++k) states[k] = decode(states[k], bytes[i + k], table, at);
    words.go_on(at);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress::rans
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::compress::rans {

HWY_EXPORT(Encode);
HWY_EXPORT(Decode);

Encoder::Encoder(uint8_t* end) : at_(end) { states_.fill(kLow); }

void Encoder::put(const uint8_t* bytes, size_t size, const EncodeTable& table) {
  for (; size % kStates != 0; --size) {
    uint32_t& state = states_[(size - 1) % kStates];
    state = encode(state, table.of[bytes[size - 1]], at_);
  }
  if (size > 0) at_ = HWY_DYNAMIC_DISPATCH(Encode)(bytes, size, table, states_, at_);
}

uint8_t* Encoder::finish() {
  at_ -= sizeof states_;
  std::memcpy(at_, states_.data(), sizeof states_);
  return at_;
}

void WordReader::last_words() {
  if (!copied_) {
    const auto left = static_cast<size_t>(std::max<std::ptrdiff_t>(end_ - at_, 0));
    rest_.fill(0);
    std::memcpy(rest_.data(), at_, left);
    copied_ = true;
    at_ = rest_.data(), end_ = at_ + rest_.size();
  } else {
    at_ = rest_.data() + kAhead;  // only zeros are left
  }
}

Decoder::Decoder(const uint8_t* stream, const uint8_t* end)
    : states_{}, words_(stream + std::min<std::ptrdiff_t>(sizeof states_, end - stream), end) {
  std::memcpy(states_.data(), stream, std::min(sizeof states_, static_cast<size_t>(end - stream)));
}

void Decoder::get(uint8_t* bytes, size_t size, const DecodeTable& table) {
  const size_t whole = size - size % kStates;
  if (whole > 0) HWY_DYNAMIC_DISPATCH(Decode)(bytes, whole, table, states_, words_);
  const uint8_t* at = words_.at();
  for (size_t k = 0; whole + k < size; ++k)
    states_[k] = decode(states_[k], bytes[whole + k], table, at);
  words_.go_on(at);
}

}  // namespace frugal::compress::rans
#endif

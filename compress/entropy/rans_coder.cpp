// Coding by rANS (rans.h), 32 bytes in a step. Vectors of 8 or 16 states where the machine has
// them, else one state after the other. The bytes are the same.
//
// A step waits for the states of the step before it, most of the time. So kernels code one stream
// or two streams in turns.
#define HWY_WANT_AVX3_DL 1  // AVX-512 that permutes and compresses bytes and half-words
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "compress/entropy/rans.h"
#include "core/vector_targets.h"

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

// Whether gathers are faster here than loads of single entries. Tried once; bytes do not depend on
// it.
bool gathers_are_fast();

inline uint32_t decode(uint32_t x, uint8_t& byte, const uint32_t* table, const uint8_t*& at) {
  const uint32_t entry = table[x % kScale];
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

// A run of whole steps of a stream.
struct EncodeRun {
  const uint8_t* bytes;
  const EncodeTable* table;
  States* states;
  uint8_t* at;  // where the words begin
};
struct DecodeRun {
  uint8_t* bytes;
  const uint8_t* contexts;  // null: none
  const uint32_t* table;
  States* states;
  WordReader* words;
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

// Entry of each lane of an array. The machine's own gathers are faster than loads of single entries
// on some processors and slower on others, so gathers_are_fast() tries it.
HWY_INLINE __m128i FourEntries(const uint32_t* table, uint64_t first, uint64_t second) {
  __m128i entries = _mm_cvtsi32_si128(static_cast<int>(table[first & 0xffffffffu]));
  entries = _mm_insert_epi32(entries, static_cast<int>(table[first >> 32]), 1);
  entries = _mm_insert_epi32(entries, static_cast<int>(table[second & 0xffffffffu]), 2);
  return _mm_insert_epi32(entries, static_cast<int>(table[second >> 32]), 3);
}
template <bool kGather>
HWY_INLINE VU Entries(const uint32_t* table, VU index) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (kGather) return VU{_mm512_i32gather_epi32(index.raw, table, 4)};
#endif
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

// Frequencies and starts of the bytes of kTogether steps, for each vector of states.
struct Symbols {
  VU frequency, start;
};

#if HWY_TARGET <= HWY_AVX3

#if HWY_TARGET <= HWY_AVX3_DL

constexpr size_t kTogether = 2;

// Places of bytes for Find().
struct ByteOrder {
  // [v][4 i + k]: for lane i of vector v, part k of the entry. Its parts 0 and 1 come from two
  // vectors of 64 bytes, its part 2 from another one.
  alignas(64) uint8_t first[4][64] = {}, last[4][64] = {};
  constexpr ByteOrder() {
    for (int v = 0; v < 4; ++v)
      for (int i = 0; i < 16; ++i) {
        first[v][4 * i] = last[v][4 * i + 2] = static_cast<uint8_t>(16 * v + i);
        first[v][4 * i + 1] = static_cast<uint8_t>(64 + 16 * v + i);
      }
  }
};
constexpr ByteOrder kBytes;

HWY_INLINE __m512i PartOf(const std::array<uint8_t, 256>& part, __m512i bytes, __mmask64 upper) {
  const uint8_t* at = part.data();
  const __m512i a = _mm512_permutex2var_epi8(_mm512_load_si512(at), bytes,
                                             _mm512_load_si512(at + 64)),
                b = _mm512_permutex2var_epi8(_mm512_load_si512(at + 128), bytes,
                                             _mm512_load_si512(at + 192));
  return _mm512_mask_blend_epi8(upper, a, b);
}
template <size_t kSteps>
HWY_INLINE void Find(const EncodeTable& table, const uint8_t* from, Symbols* symbols) {
  const __m512i bytes =
      kSteps == 2
          ? _mm512_loadu_si512(from)
          : _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  const __mmask64 upper = _mm512_movepi8_mask(bytes);
  const __m512i part0 = PartOf(table.parts[0], bytes, upper),
                part1 = PartOf(table.parts[1], bytes, upper),
                part2 = PartOf(table.parts[2], bytes, upper);
  for (size_t v = 0; v < kSteps * kVectors; ++v) {
    const __m512i low = _mm512_maskz_permutex2var_epi8(0x3333333333333333u, part0,
                                                       _mm512_load_si512(kBytes.first[v]), part1);
    const VU entry{_mm512_mask_permutexvar_epi8(low, 0x4444444444444444u,
                                                _mm512_load_si512(kBytes.last[v]), part2)};
    symbols[v] = {hn::And(entry, hn::Set(DU(), kScale - 1)), hn::ShiftRight<kScaleBits>(entry)};
  }
}

struct WordTurns {
  alignas(64) uint16_t even[32] = {}, turn[64] = {};
  constexpr WordTurns() {
    for (int i = 0; i < 64; ++i) turn[i] = static_cast<uint16_t>(i % 32);
    for (int i = 0; i < 32; ++i) even[i] = static_cast<uint16_t>(2 * i);
  }
};
constexpr WordTurns kTurns;

// What lies below the words is written over. A masked store takes longer.
HWY_INLINE uint8_t* StoreWords(const hn::Mask<DU>* large, const VU* x, uint8_t* at) {
  const __mmask32 set = _mm512_kunpackw(large[1].raw, large[0].raw);
  const int count = __builtin_popcount(set);
  const __m512i words = _mm512_maskz_compress_epi16(
      set, _mm512_permutex2var_epi16(x[0].raw, _mm512_load_si512(kTurns.even), x[1].raw));
  _mm512_storeu_si512(at - 64,
                      _mm512_permutexvar_epi16(_mm512_loadu_si512(kTurns.turn + count), words));
  return at - 2 * count;
}

#else

constexpr size_t kTogether = 1;

HWY_INLINE void Split(__m512i all, VU& low, VU& high) {
  low = VU{_mm512_cvtepu16_epi32(_mm512_castsi512_si256(all))};
  high = VU{_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(all, 1))};
}
HWY_INLINE __m512i Look(const std::array<uint16_t, 256>& table, __m512i index, __mmask32 bit6,
                        __mmask32 bit7) {
  const uint16_t* at = table.data();
  const auto of64 = [&](const uint16_t* part) HWY_ATTR {
    return _mm512_permutex2var_epi16(_mm512_load_si512(part), index, _mm512_load_si512(part + 32));
  };
  return _mm512_mask_blend_epi16(bit7, _mm512_mask_blend_epi16(bit6, of64(at), of64(at + 64)),
                                 _mm512_mask_blend_epi16(bit6, of64(at + 128), of64(at + 192)));
}
template <size_t kSteps>
HWY_INLINE void Find(const EncodeTable& table, const uint8_t* from, Symbols* symbols) {
  const __m512i index =
      _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  const __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64)),
                  bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
  Split(Look(table.frequency, index, bit6, bit7), symbols[0].frequency, symbols[1].frequency);
  Split(Look(table.start, index, bit6, bit7), symbols[0].start, symbols[1].start);
}

HWY_INLINE uint8_t* StoreWords(const hn::Mask<DU>* large, const VU* x, uint8_t* at) {
  for (size_t v = kVectors; v-- > 0;) {
    const int count = __builtin_popcount(large[v].raw);
    at -= 2 * count;
    _mm256_mask_storeu_epi16(
        at, static_cast<__mmask16>((1u << count) - 1),
        _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(large[v].raw, x[v].raw)));
  }
  return at;
}

#endif

HWY_INLINE VF ToFloat(VU x) { return VF{_mm512_cvtepi32_ps(x.raw)}; }
HWY_INLINE VU Truncate(VF x) { return VU{_mm512_cvttps_epi32(x.raw)}; }

HWY_INLINE hn::Mask<DU> AtLeast(VU a, VU b) {
  return hn::Mask<DU>{_mm512_cmpge_epu32_mask(a.raw, b.raw)};
}

// The lowest byte of each lane.
HWY_INLINE void StoreBytes(VU x, uint8_t* to) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(x.raw));
}
// A word for each lane of `small`, as the lower half of 0 otherwise.
HWY_INLINE VU LoadWords(hn::Mask<DU> small, const uint8_t*& at) {
  const __m512i words =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  at += 2 * __builtin_popcount(small.raw);
  return VU{_mm512_maskz_expand_epi32(small.raw, words)};
}

#else

constexpr size_t kTogether = 1;
constexpr WordOrder kOrder;

template <size_t kSteps>
HWY_INLINE void Find(const EncodeTable& table, const uint8_t* from, Symbols* symbols) {
  const hn::Rebind<uint8_t, DU> d8;
  for (size_t v = 0; v < kVectors; ++v) {
    const VU entries =
        Entries<false>(table.of.data(), hn::PromoteTo(DU(), hn::LoadU(d8, from + v * kLanes)));
    symbols[v] = {hn::And(entries, hn::Set(DU(), 0xffffu)), hn::ShiftRight<16>(entries)};
  }
}

HWY_INLINE VF ToFloat(VU x) { return VF{_mm256_cvtepi32_ps(x.raw)}; }
HWY_INLINE VU Truncate(VF x) { return VU{_mm256_cvttps_epi32(x.raw)}; }

HWY_INLINE hn::Mask<DU> AtLeast(VU a, VU b) { return hn::Eq(hn::Max(a, b), a); }

HWY_INLINE uint32_t SetOf(hn::Mask<DU> mask) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(mask.raw)));
}
HWY_INLINE __m256i OrderOf(const uint8_t* lanes) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(lanes)));
}
// What lies below the words is written over, and they themselves are written once.
HWY_INLINE uint8_t* StoreWords(const hn::Mask<DU>* large, const VU* x, uint8_t* at) {
  const hn::Rebind<uint16_t, DU> d16;
  for (size_t v = kVectors; v-- > 0;) {
    const uint32_t set = SetOf(large[v]);
    const VU words{_mm256_permutevar8x32_epi32(x[v].raw, OrderOf(kOrder.give[set]))};
    hn::StoreU(hn::TruncateTo(d16, words), d16, reinterpret_cast<uint16_t*>(at - 16));
    at -= 2 * __builtin_popcount(set);
  }
  return at;
}
HWY_INLINE void StoreBytes(VU x, uint8_t* to) {
  const hn::Rebind<uint8_t, DU> d8;
  hn::StoreU(hn::TruncateTo(d8, x), d8, to);
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

HWY_INLINE void LoadStates(const States& states, VU* x) {
  for (size_t v = 0; v < kVectors; ++v) x[v] = hn::Load(DU(), states.data() + v * kLanes);
}
HWY_INLINE void StoreStates(const VU* x, States& states) {
  for (size_t v = 0; v < kVectors; ++v) hn::Store(x[v], DU(), states.data() + v * kLanes);
}

HWY_INLINE void EncodeStep(const Symbols* symbols, VU* x, uint8_t*& at) {
  const DU du;
  hn::Mask<DU> large[kVectors];
  for (size_t v = 0; v < kVectors; ++v)
    large[v] = AtLeast(x[v], hn::ShiftLeft<kLargeBits>(symbols[v].frequency));
  at = StoreWords(large, x, at);
  for (size_t v = 0; v < kVectors; ++v) {
    const VU f = symbols[v].frequency;
    const VF inverse = hn::Div(hn::Set(DF(), kBelowOne), ToFloat(f));
    x[v] = hn::IfThenElse(large[v], hn::ShiftRight<16>(x[v]), x[v]);
    const VU quotient = Truncate(hn::Mul(ToFloat(x[v]), inverse));
    const VU rest = hn::Sub(x[v], hn::Mul(quotient, f));
    const auto more = AtLeast(rest, f);
    x[v] = hn::Add(hn::Add(hn::ShiftLeft<kScaleBits>(quotient), symbols[v].start), rest);
    x[v] = hn::IfThenElse(more, hn::Add(x[v], hn::Sub(hn::Set(du, kScale), f)), x[v]);
  }
}

template <size_t kStreams>
HWY_INLINE void EncodeSteps(EncodeRun* runs, size_t size) {
  VU x[kStreams][kVectors];
  // Copies, because the compiler must assume that words are stored to `runs`.
  const EncodeTable* table[kStreams];
  const uint8_t* bytes[kStreams];
  uint8_t* at[kStreams];
  for (size_t s = 0; s < kStreams; ++s) {
    LoadStates(*runs[s].states, x[s]);
    table[s] = runs[s].table, bytes[s] = runs[s].bytes, at[s] = runs[s].at;
  }
  for (; size >= kTogether * kStates; size -= kTogether * kStates) {
    Symbols symbols[kStreams][kTogether * kVectors];
    for (size_t s = 0; s < kStreams; ++s)
      Find<kTogether>(*table[s], bytes[s] + size - kTogether * kStates, symbols[s]);
    for (size_t step = kTogether; step-- > 0;)
      for (size_t s = 0; s < kStreams; ++s) EncodeStep(symbols[s] + step * kVectors, x[s], at[s]);
  }
  if (size > 0) {
    Symbols symbols[kStreams][kVectors];
    for (size_t s = 0; s < kStreams; ++s) Find<1>(*table[s], bytes[s], symbols[s]);
    for (size_t s = 0; s < kStreams; ++s) EncodeStep(symbols[s], x[s], at[s]);
  }
  for (size_t s = 0; s < kStreams; ++s) StoreStates(x[s], *runs[s].states), runs[s].at = at[s];
}

template <bool kContexts, bool kGather>
HWY_INLINE void DecodeStep(const uint32_t* table, const uint8_t* contexts, VU* x, uint8_t* bytes,
                           WordReader& words) {
  const DU du;
  const hn::Rebind<uint8_t, DU> d8;
  const VU slots = hn::Set(du, kScale - 1);
  const uint8_t* at = words.at();
  VU entries[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    VU slot = hn::And(x[v], slots);
    if constexpr (kContexts) {
      const VU context = hn::PromoteTo(du, hn::LoadU(d8, contexts + v * kLanes));
      slot = hn::Or(slot, hn::ShiftLeft<kScaleBits>(context));
    }
    entries[v] = Entries<kGather>(table, slot);
  }
  for (size_t v = 0; v < kVectors; ++v) {
    const VU entry = entries[v];
    StoreBytes(entry, bytes + v * kLanes);
    const VU f = hn::And(hn::ShiftRight<8>(entry), slots);
    x[v] = hn::Add(hn::Mul(f, hn::ShiftRight<kScaleBits>(x[v])), hn::ShiftRight<20>(entry));
    const auto small = hn::Eq(hn::ShiftRight<15>(x[v]), hn::Zero(du));  // below kLow
    const VU next = LoadWords(small, at);
    x[v] = hn::Or(hn::IfThenElse(small, hn::ShiftLeft<16>(x[v]), x[v]), next);
  }
  words.go_on(at);
}

template <size_t kStreams, bool kContexts, bool kGather>
HWY_INLINE void DecodeStepsBy(const DecodeRun* runs, size_t size) {
  VU x[kStreams][kVectors];
  const uint32_t* table[kStreams];
  const uint8_t* contexts[kStreams];
  uint8_t* bytes[kStreams];
  WordReader* words[kStreams];
  for (size_t s = 0; s < kStreams; ++s) {
    LoadStates(*runs[s].states, x[s]);
    table[s] = runs[s].table, contexts[s] = runs[s].contexts;
    bytes[s] = runs[s].bytes, words[s] = runs[s].words;
  }
  for (size_t i = 0; i < size; i += kStates)
#pragma GCC unroll 2  // keeps the states in registers
    for (size_t s = 0; s < kStreams; ++s)
      DecodeStep<kContexts, kGather>(table[s], kContexts ? contexts[s] + i : nullptr, x[s],
                                     bytes[s] + i, *words[s]);
  for (size_t s = 0; s < kStreams; ++s) StoreStates(x[s], *runs[s].states);
}
template <size_t kStreams, bool kContexts>
void DecodeSteps(const DecodeRun* runs, size_t size) {
#if HWY_TARGET <= HWY_AVX3
  if (gathers_are_fast()) return DecodeStepsBy<kStreams, kContexts, true>(runs, size);
#endif
  DecodeStepsBy<kStreams, kContexts, false>(runs, size);
}

// The least time of a few runs of look-ups that wait for one another.
template <bool kGather>
double LookUpSeconds() {
  std::vector<uint32_t> table(kScale);
  for (uint32_t i = 0; i < kScale; ++i) table[i] = i * 2654435761u % kScale;
  double least = 1;
  for (int run = 0; run < 5; ++run) {
    VU index = hn::Iota(DU(), 1);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 500; ++i) index = Entries<kGather>(table.data(), index);
    alignas(64) uint32_t lanes[kLanes];
    hn::Store(index, DU(), lanes);
    table[lanes[0]] = lanes[1];  // so the look-ups are not left out
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    least = std::min(least, took.count());
  }
  return least;
}
bool TryGathers() { return LookUpSeconds<true>() < LookUpSeconds<false>(); }

#else

bool TryGathers() { return false; }

template <size_t kStreams>
void EncodeSteps(EncodeRun* run, size_t size) {
  States x = *run->states;
  for (size_t i = size; i-- > 0;)
    x[i % kStates] = encode(x[i % kStates], run->table->of[run->bytes[i]], run->at);
  *run->states = x;
}

template <size_t kStreams, bool kContexts>
void DecodeSteps(const DecodeRun* runs, size_t size) {
  for (const DecodeRun* run = runs; run < runs + kStreams; ++run)
    for (size_t i = 0; i < size; i += kStates) {
      const uint8_t* at = run->words->at();
      for (size_t k = 0; k < kStates; ++k) {
        const uint32_t* const table = run->table + (kContexts ? run->contexts[i + k] * kScale : 0);
        (*run->states)[k] = decode((*run->states)[k], run->bytes[i + k], table, at);
      }
      run->words->go_on(at);
    }
}

#endif

// REQUIRES: a multiple of kStates bytes, also below.
void Encode(EncodeRun* run, size_t size) { EncodeSteps<1>(run, size); }
void EncodeTwo(EncodeRun* runs, size_t size) {
#if HWY_TARGET <= HWY_AVX3
  EncodeSteps<2>(runs, size);
#else  // too few registers
  EncodeSteps<1>(runs, size), EncodeSteps<1>(runs + 1, size);
#endif
}
void Decode(const DecodeRun* run, size_t size) { DecodeSteps<1, false>(run, size); }
void DecodeTwo(const DecodeRun* runs, size_t size) { DecodeSteps<2, false>(runs, size); }
void DecodeByContext(const DecodeRun* run, size_t size) { DecodeSteps<1, true>(run, size); }
void DecodeTwoByContext(const DecodeRun* runs, size_t size) { DecodeSteps<2, true>(runs, size); }

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress::rans
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::compress::rans {

HWY_EXPORT(Encode);
HWY_EXPORT(EncodeTwo);
HWY_EXPORT(Decode);
HWY_EXPORT(DecodeTwo);
HWY_EXPORT(DecodeByContext);
HWY_EXPORT(DecodeTwoByContext);
HWY_EXPORT(TryGathers);

bool gathers_are_fast() {
  static const bool fast = HWY_DYNAMIC_DISPATCH(TryGathers)();
  return fast;
}

namespace {

constexpr size_t whole_steps(size_t size) { return size - size % kStates; }

// What is left of the segments of a stream.
template <class Segment>
struct Segments {
  std::span<const Segment> others;
  Segment now{};
  bool any() {
    for (; now.size == 0 && !others.empty(); others = others.subspan(1)) now = others.front();
    return now.size > 0;
  }
};

}  // namespace

Encoder::Encoder(uint8_t* end) : at_(end) { states_.fill(kLow); }

void Encoder::put(const uint8_t* bytes, size_t size, const EncodeTable& table) {
  EncodeSegment segment{bytes, size, &table};
  put_rest(segment);
  if (segment.size == 0) return;
  EncodeRun run{bytes, &table, &states_, at_};
  HWY_DYNAMIC_DISPATCH(Encode)(&run, segment.size);
  at_ = run.at;
}

void Encoder::put_rest(EncodeSegment& segment) {
  for (; segment.size % kStates != 0; --segment.size) {
    uint32_t& state = states_[(segment.size - 1) % kStates];
    state = encode(state, segment.table->of[segment.bytes[segment.size - 1]], at_);
  }
}

void Encoder::put_two(Encoder& a, std::span<const EncodeSegment> segments_a, Encoder& b,
                      std::span<const EncodeSegment> segments_b) {
  Segments<EncodeSegment> left_a{segments_a}, left_b{segments_b};
  EncodeSegment &x = left_a.now, &y = left_b.now;
  while (left_a.any() && left_b.any()) {
    a.put_rest(x), b.put_rest(y);
    const size_t size = std::min(x.size, y.size);
    if (size == 0) continue;
    x.size -= size, y.size -= size;
    EncodeRun runs[] = {{x.bytes + x.size, x.table, &a.states_, a.at_},
                        {y.bytes + y.size, y.table, &b.states_, b.at_}};
    HWY_DYNAMIC_DISPATCH(EncodeTwo)(runs, size);
    a.at_ = runs[0].at, b.at_ = runs[1].at;
  }
  for (; left_a.any(); x.size = 0) a.put(x.bytes, x.size, *x.table);
  for (; left_b.any(); y.size = 0) b.put(y.bytes, y.size, *y.table);
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
  const size_t whole = whole_steps(size);
  if (whole > 0) {
    const DecodeRun run{bytes, nullptr, table.of.data(), &states_, &words_};
    HWY_DYNAMIC_DISPATCH(Decode)(&run, whole);
  }
  const uint8_t* at = words_.at();
  for (size_t k = 0; whole + k < size; ++k)
    states_[k] = decode(states_[k], bytes[whole + k], table.of.data(), at);
  words_.go_on(at);
}

void Decoder::get(const ContextSegment& segment, size_t size, const ContextTable& table) {
  const DecodeRun run{segment.bytes, segment.contexts, table.of.data(), &states_, &words_};
  if (size >= kStates) HWY_DYNAMIC_DISPATCH(DecodeByContext)(&run, whole_steps(size));
  get_rest(segment, size, table);
}

void Decoder::get_rest(const ContextSegment& segment, size_t size, const ContextTable& table) {
  const size_t whole = whole_steps(size);
  if (whole == size) return;
  const uint8_t* at = words_.at();
  for (size_t k = 0; whole + k < size; ++k)
    states_[k] = decode(states_[k], segment.bytes[whole + k],
                        table.of.data() + segment.contexts[whole + k] * kScale, at);
  words_.go_on(at);
}

void Decoder::get_two(Decoder& a, const ContextSegment& segment_a, Decoder& b,
                      const ContextSegment& segment_b, size_t size, const ContextTable& table) {
  const DecodeRun runs[] = {
      {segment_a.bytes, segment_a.contexts, table.of.data(), &a.states_, &a.words_},
      {segment_b.bytes, segment_b.contexts, table.of.data(), &b.states_, &b.words_}};
  if (size >= kStates) HWY_DYNAMIC_DISPATCH(DecodeTwoByContext)(runs, whole_steps(size));
  a.get_rest(segment_a, size, table);
  b.get_rest(segment_b, size, table);
}

void Decoder::get_two(Decoder& a, std::span<const DecodeSegment> segments_a, Decoder& b,
                      std::span<const DecodeSegment> segments_b) {
  Segments<DecodeSegment> left_a{segments_a}, left_b{segments_b};
  DecodeSegment &x = left_a.now, &y = left_b.now;
  while (left_a.any() && left_b.any()) {
    const size_t size = std::min(whole_steps(x.size), whole_steps(y.size));
    if (size > 0) {
      const DecodeRun runs[] = {{x.bytes, nullptr, x.table->of.data(), &a.states_, &a.words_},
                                {y.bytes, nullptr, y.table->of.data(), &b.states_, &b.words_}};
      HWY_DYNAMIC_DISPATCH(DecodeTwo)(runs, size);
      x.bytes += size, x.size -= size;
      y.bytes += size, y.size -= size;
    }
    if (x.size > 0 && x.size < kStates) a.get(x.bytes, std::exchange(x.size, 0), *x.table);
    if (y.size > 0 && y.size < kStates) b.get(y.bytes, std::exchange(y.size, 0), *y.table);
  }
  for (; left_a.any(); x.size = 0) a.get(x.bytes, x.size, *x.table);
  for (; left_b.any(); y.size = 0) b.get(y.bytes, y.size, *y.table);
}

}  // namespace frugal::compress::rans
#endif

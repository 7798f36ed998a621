// Counts bytes without an increment for each. A processor stores one counter in a cycle, so
// increments take a cycle for each byte.
//
// 512 bytes become 8 planes of 512 bits, one for each bit of a byte. A plane may hold the bytes in
// any order, if all planes have the same one. From the planes come masks of the bytes with each
// value of the upper 4 bits, and masks for the lower 4 bits. A byte value occurs as often as bits
// are set in both of its masks.
#define HWY_WANT_AVX3_DL 1  // AVX-512 that counts bits
#include "compress/entropy/count_bytes.h"

#include "core/error.h"
#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/entropy/count_bytes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace frugal::compress::rans {
namespace HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL

constexpr size_t kPlaneBytes = 64, kPlanes = 8, kValues = 16, kTogether = 8;
constexpr size_t kParts = kCountBlock / (kPlanes * kPlaneBytes);

// Exchanges the bits of `a` outside `low` with the bits of `b` in `low`, which are kShift places
// lower.
template <int kShift>
HWY_INLINE void Exchange(__m512i& a, __m512i& b, __m512i low) {
  constexpr int kSelect = 0xca;  // first ? second : third
  const __m512i lower = _mm512_ternarylogic_epi64(low, a, _mm512_slli_epi16(b, kShift), kSelect);
  b = _mm512_ternarylogic_epi64(low, _mm512_srli_epi16(a, kShift), b, kSelect);
  a = lower;
}
// From 8 vectors of bytes to 8 planes, that of the lowest bit first.
HWY_INLINE void ToPlanes(__m512i* v) {
  const __m512i low4 = _mm512_set1_epi8(0x0f), low2 = _mm512_set1_epi8(0x33),
                low1 = _mm512_set1_epi8(0x55);
  for (int i = 0; i < 4; ++i) Exchange<4>(v[i], v[i + 4], low4);
  for (int i : {0, 1, 4, 5}) Exchange<2>(v[i], v[i + 2], low2);
  for (int i : {0, 2, 4, 6}) Exchange<1>(v[i], v[i + 1], low1);
}
// masks[value * kParts]: which bytes have this value in the 4 bits of `planes`.
HWY_INLINE void MasksOf(const __m512i* planes, __m512i* masks) {
  const auto pairs = [](__m512i first, __m512i second, __m512i* of) HWY_ATTR {
    of[3] = _mm512_and_si512(first, second);
    of[2] = _mm512_andnot_si512(first, second);
    of[1] = _mm512_andnot_si512(second, first);
    of[0] = _mm512_andnot_si512(_mm512_or_si512(first, second), _mm512_set1_epi8(-1));
  };
  __m512i low[4], high[4];
  pairs(planes[0], planes[1], low);
  pairs(planes[2], planes[3], high);
  for (size_t value = 0; value < kValues; ++value)
    masks[value * kParts] = _mm512_and_si512(low[value % 4], high[value / 4]);
}
// The sum of each of 8 vectors.
HWY_INLINE __m512i Sums(const __m512i* v) {
  const auto add_pairs = [](__m512i a, __m512i b) HWY_ATTR {  // adds pairs of 128-bit parts
    return _mm512_add_epi64(_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xdd));
  };
  __m512i sums[4];
  for (int i = 0; i < 4; ++i)
    sums[i] = _mm512_add_epi64(_mm512_unpacklo_epi64(v[2 * i], v[2 * i + 1]),
                               _mm512_unpackhi_epi64(v[2 * i], v[2 * i + 1]));
  return add_pairs(add_pairs(sums[0], sums[1]), add_pairs(sums[2], sums[3]));
}

bool CountsBlocks() { return true; }

void CountBlock(const uint8_t* bytes, uint32_t* counts) {
  __m512i lower[kValues * kParts], upper[kValues * kParts];  // [value][part]
  for (size_t part = 0; part < kParts; ++part) {
    __m512i planes[kPlanes];
    for (size_t i = 0; i < kPlanes; ++i)
      planes[i] = _mm512_loadu_si512(bytes + (part * kPlanes + i) * kPlaneBytes);
    ToPlanes(planes);
    MasksOf(planes, lower + part);
    MasksOf(planes + 4, upper + part);
  }
  for (size_t u = 0; u < kValues; ++u)
    for (size_t l = 0; l < kValues; l += kTogether) {
      __m512i set[kTogether];
      for (__m512i& bits : set) bits = _mm512_setzero_si512();
      for (size_t part = 0; part < kParts; ++part)
        for (size_t k = 0; k < kTogether; ++k)
          set[k] = _mm512_add_epi64(
              set[k], _mm512_popcnt_epi64(_mm512_and_si512(upper[u * kParts + part],
                                                           lower[(l + k) * kParts + part])));
      auto* const to = reinterpret_cast<__m256i*>(counts + u * kValues + l);
      _mm256_storeu_si256(
          to, _mm256_add_epi32(_mm256_loadu_si256(to), _mm512_cvtepi64_epi32(Sums(set))));
    }
}

#else

bool CountsBlocks() { return false; }
void CountBlock(const uint8_t*, uint32_t*) { FRUGAL_ASSERT(CountsBlocks()); }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress::rans
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::compress::rans {

HWY_EXPORT(CountsBlocks);
HWY_EXPORT(CountBlock);

bool counts_blocks() { return HWY_DYNAMIC_DISPATCH(CountsBlocks)(); }
void count_block(const uint8_t* bytes, uint32_t* counts) {
  HWY_DYNAMIC_DISPATCH(CountBlock)(bytes, counts);
}

}  // namespace frugal::compress::rans
#endif

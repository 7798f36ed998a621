// The quantizer's definition: plain scalar code, the oracle that every kernel equals byte for byte.
// f32 arithmetic, each operation rounded to nearest even, subnormals kept, no contraction but the
// two fma below.
//
//   Words: w = Philox 4x32-7 with counter {row / 8, column / 2, stream.counter[0],
//   stream.counter[1]} and key stream.key, row and column those of the layout's view (column = lane
//   on the row axis). One call serves 8 rows of two columns. Even columns take w[1] for rows 0 to 3
//   of the 8 and w[3] for rows 4 to 7, odd columns w[0] and w[2]: 64-bit products hold the words in
//   this order. Row r takes byte h of number r % 4 of its word, the lowest first. u = (h + 0.5) /
//   256, or 0.5 with nearest rounding. Seven rounds pass BigCrush. Ref: Salmon et al. 2011,
//   section 5.
//
//   Group, with minimum mn and maximum mx, a zero of either sign taken as +0:
//     lo      mn rounded to bf16 towards -infinity
//     half    1/2 where max(|mn|, |mx|) >= 2^126, so that no range overflows; else 1
//     range   fma(mx, half, -(lo * half))
//     step    range / (2^bits - 1), rounded to bf16 towards +infinity, at least 2^-126; the next
//     bf16
//             if (2^bits - 1) * step < range
//     scale   step / half, what the metadata holds
//   Element:  q + 1 = trunc(min(fma(x * half - lo * half, 1 / step, 1 + u), 2^bits))
//   Rebuilt:  x^ = fma(q, scale, lo); dithered: x^ = fma(q + (1/2 - u), scale, lo) where
//             takes_dither_away(lo, scale)
//   A group with a NaN, or a magnitude beyond max_magnitude(bits): lo and scale are the NaN 0x7fc0,
//   all codes 0.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "autograd/saved_tensor.h"
#include "compress/quantize/quantize.h"

namespace frugal::compress {

// The four words of a counter {block, index} of the stream; see above.
std::array<uint32_t, 4> code_words(const CodeStream& stream, uint32_t block, uint32_t index);
// The number of the word that holds the byte of an element.
constexpr int64_t dither_word(int64_t row, int64_t column) {
  return row % 8 / 4 * 2 + 1 - column % 2;
}

inline constexpr uint16_t kNonfiniteBits = 0x7fc0;

struct GroupParameters {
  float lo = 0, scale = 0, half = 1, step = 1;
  bool nonfinite = false;
};
// REQUIRES: `has_nan` says whether the group holds a NaN; mn and mx ignore NaN.
GroupParameters group_parameters(float mn, float mx, bool has_nan, int bits);

// `x` holds layout.numel values; `payload` layout.bytes() bytes. Returns the number of groups that
// are not finite.
int64_t reference_pack(const float* x, const GroupLayout& layout, const CodeStream& stream,
                       bool stochastic, uint8_t* payload);
// dither: the stream of dithered rounding, or null.
void reference_unpack(const uint8_t* payload, const GroupLayout& layout, float* x,
                      const CodeStream* dither = nullptr);

// Whether dithered rounding takes u away from the codes of a plain group. Where it does not, codes
// are used as in stochastic rounding, which is unbiased, too. It does not in three cases. Steps of
// 2^-126: groups of one value have these, and they are exact. Steps from 2^124 on: half of one
// could reach infinity beyond the range. Groups without negative values that would get some: such
// groups often have many zeros, and zeros must stay zeros.
inline bool takes_dither_away(float lo, float scale) {
  return scale > 0x1p-126f && scale < 0x1p124f && (lo < 0 || lo >= scale / 2);
}

// Parts that both formats share.
// u of an element of the view.
float element_dither(const CodeStream& stream, bool stochastic, int64_t row, int64_t column);
// The code of row `r` of a row group of `n` rows. `codes`: where the codes of the group begin;
// `planes`: planes_of(layout.bits). Before a code is written, its place must be 0.
uint32_t read_code(const uint8_t* codes, const GroupLayout& layout, const Planes& planes, int64_t n,
                   int64_t r, int64_t column);
void write_code(uint8_t* codes, const GroupLayout& layout, const Planes& planes, int64_t n,
                int64_t r, int64_t column, uint32_t code);

}  // namespace frugal::compress

// Split groups: codes that carry one bit per element exactly, beside its value. Plain scalar code,
// the oracle that every kernel equals byte for byte; f32 arithmetic as in quantize_reference.h.
//
// The mask (ops/dense/bitmask.h) divides a group into class 0 (bit clear) and class 1 (bit set),
// each with its own range and its own codes, so that rounding never moves an element into the other
// class: the sign of an activation function costs no byte, and codes go where errors count.
// Elements of class 0 count `slope` times as much as those of class 1: at slope 0 they get few of
// the 2^bits codes, 2 of 16, but enough to be unbiased.
//
//   Class, with minimum mn and maximum mx, a zero of either sign taken as +0:
//     lo      mn rounded to bf16 towards -infinity
//     range   mx - lo, rounded to bf16 towards +infinity; if above 0, at least 2^-110
//     Without elements: lo = +0, range = -0.
//   Codes: n0 of the N = 2^bits for class 0, then n1 for class 1 (split_codes). Without elements 0;
//   with one value, range +0, 1; the other class gets the rest. Otherwise n1 = N - n0 and
//     n0      rint(N * (a / fma(c1, range1, a))) clamped to 2..N - 2, a = c0 * range0, where
//             c0 = min(s, 1) / 4, c1 = min(1 / s, 1) / 4, s = |slope| within 1/9 to 9
//     step    range / (n - 1), 0 where n < 2
//     inverse (n - 1) / range, 0 where n < 2
//   Element of class k:
//     code    offset + trunc(min(fma(x - lo, inverse, 1 + u), n)) - 1, offset 0 or n0, u as in the
//             plain format
//   Rebuilt: k = code >= n0, x^ = fma(code - offset, step, lo); dithered: fma(code - offset +
//     (1/2 - u), step, lo). It may lie beyond the class; k is what tells the class.
//   Groups that draw rows (draws_rows): one row of kDrawEvery is drawn, in each column another one
//   (drawn_row). All codes but one are class 0's in a drawn row, and class 1's in other rows:
//     n0 = N - 1, n1 = 1 in a drawn row; n0 = 1, n1 = N - 1 in others
//   Where a class has one code, the code stands for a place m within its range. Where it has more,
//   the element stands for all rows, so it is rebuilt farther from m, by the factor w. Then the
//   expected value is x in both classes.
//     q, w    Class k lies above class j where lo_k - lo_j >= range_j / 2. Then q = 1/4 for k and
//             3/4 for j, because their values crowd where they meet; q = 1/2 where no class lies
//             above the other one. w = kDrawEvery for class 0, else 1 / (1 - 1 / kDrawEvery).
//     one     lo fma(range, q, lo), step 0
//     several lo fma(range, q * (1 - w), lo), step w * range / (N - 2), where q * (1 - w) and w are
//             rounded to f32, and so is each product
//   A group with NaN, an infinity or a magnitude above 2^126: the four words are 0x7fc0, n0 = n1 =
//   1, code = k, step = 0: NaN everywhere, the bits are still exact.
#pragma once
#include "compress/quantize/quantize_reference.h"
#include "core/host_device.h"

namespace frugal::compress {

inline constexpr float kSplitMaxMagnitude = 0x1p126f;
inline constexpr float kSplitMinRange = 0x1p-110f;
inline constexpr uint16_t kEmptyRangeBits = 0x8000;

// How much errors of each class matter, scaled so that nothing overflows.
struct SplitWeights {
  float class0 = 0, class1 = 0.25f;
  float drawn_range = 0;  // the widest range of a class in groups that draw rows
};
// What a payload was packed with. REQUIRES: a finite slope; its sign does not matter. Values below
// 1/9 act as 1/9, and values above 9 as 9: elements whose derivative is 0 still matter a little,
// because the statistics of their batch include them. The bound was measured on ResNet-20. There
// the errors of such elements would bound the variance of the gradient from below at 5 bits and
// more. Rows are drawn where the slope is 0, unless rounding is to nearest, which is biased anyway.
SplitWeights split_weights(double slope, DType dtype = DType::f32,
                           Rounding rounding = Rounding::stochastic);

// With 2 codes of 4 for each class, the errors of class 1 would have four times the variance of
// those with 3 codes. Elements of class 0 only reach the gradient by the statistics of a norm, as a
// sum of many, so it is enough to know some of them. docs/design/gradients.md has what this does to
// gradients.
inline constexpr int kDrawEvery = 16;
inline constexpr int kMostDrawnBits = 2;  // the widest codes in groups that draw rows
FRUGAL_HD bool may_draw_rows(const SplitWeights& weights, int bits) {
  return weights.drawn_range > 0 && bits <= kMostDrawnBits;
}
FRUGAL_HD bool draws_rows(const SplitWeights& weights, int bits, float range0, float range1) {
  return bits <= kMostDrawnBits && range0 > 0 && range0 <= weights.drawn_range && range1 > 0 &&
         range1 <= weights.drawn_range;
}
// Which class lies above the other one: 1, 0, or -1 for none.
FRUGAL_HD int class_above(float lo0, float range0, float lo1, float range1) {
  if (lo1 - lo0 >= range0 * 0.5f) return 1;
  return lo0 - lo1 >= range1 * 0.5f ? 0 : -1;
}
// q, w and q * (1 - w) of class k.
FRUGAL_HD constexpr float drawn_place(int k, int above) {
  return above < 0 ? 0.5f : k == above ? 0.25f : 0.75f;
}
FRUGAL_HD constexpr float drawn_factor(int k) {
  return k == 0 ? kDrawEvery : kDrawEvery / (kDrawEvery - 1.0f);
}
FRUGAL_HD constexpr float drawn_base(int k, int above) {
  return drawn_place(k, above) * (k == 0 ? 1.0f - kDrawEvery : -1.0f / (kDrawEvery - 1.0f));
}
// drawn_row() of the block of 8 rows number `block` of the view is made of these two parts. It is
// the row's number within the block, or 8 and more where no row is drawn. Every row is drawn with
// the same probability, whatever the other rows are. `key`: CodeStream::key.
FRUGAL_HD uint32_t drawn_row_of_block(uint32_t key0, uint32_t block) {
  uint32_t x = block ^ key0;
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return x ^ x >> 16;
}
FRUGAL_HD uint32_t drawn_row_of_column(uint32_t key1, uint32_t column) {
  return column * 0x9e3779b9u + key1;
}
inline constexpr int kDrawShift = 28;  // 32 - log2 of kDrawEvery
static_assert(kDrawEvery == 1 << (32 - kDrawShift) && kDrawEvery >= 8);
FRUGAL_HD uint32_t drawn_row(uint32_t of_block, uint32_t of_column) {
  uint32_t x = of_block ^ of_column;
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x >> kDrawShift;
}

// How the codes of a group are divided between the two classes.
struct SplitCodes {
  int count[2] = {};
};
SplitCodes split_codes(float range0, float range1, const SplitWeights& weights, int bits);
// The variance that rounding adds to a gradient, up to a factor, if both classes have equal ranges.
// Dividing codes in the ratio of the weights w, as above, is best if errors matter by w^3.
double split_variance(double slope, int bits);

// lo and range of a class as the metadata hold them. mn > mx means that the class has no elements.
struct ClassRange {
  float lo = 0, range = 0;
};
// REQUIRES: magnitudes up to kSplitMaxMagnitude.
ClassRange class_range(float mn, float mx);

// `x` holds layout.numel values, `mask` numel / 8 bytes, `payload` layout.bytes() bytes. Returns
// the number of groups that are not finite. REQUIRES: layout.split; the three functions get the
// weights of the same slope.
int64_t reference_split_pack(const float* x, const uint8_t* mask, const GroupLayout& layout,
                             const SplitWeights& weights, const CodeStream& stream, bool stochastic,
                             uint8_t* payload);
// affine, unless null: [3, cols], applied to elements of class 1, the others become 0, by
//   lo' = fma(lo - affine[0], affine[1], affine[2]), step' = step affine[1] (0 for class 0).
// stream: the one that packed.
void reference_split_unpack(const uint8_t* payload, const GroupLayout& layout,
                            const SplitWeights& weights, const CodeStream& stream, bool dithered,
                            float* x, const float* affine = nullptr);
void reference_split_sign(const uint8_t* payload, const GroupLayout& layout,
                          const SplitWeights& weights, const CodeStream& stream, uint8_t* mask);

}  // namespace frugal::compress

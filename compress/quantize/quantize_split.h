// Split groups: codes that carry one bit per element exactly, beside its value. Plain scalar code,
// the oracle that every kernel equals byte for byte; f32 arithmetic as in quantize_reference.h.
//
// The mask (ops/dense/bitmask.h) divides a group into class 0 (bit clear) and class 1 (bit set),
// each with its own range and its own codes, so that rounding never moves an element into the other
// class: the sign of an activation function costs no byte, and codes go where errors count.
// Elements of class 0 count `slope` times as much as those of class 1: at slope 0 they get few of
// the 2^bits codes, 2 of 16, but enough to be unbiased. With 2 bits they get one, for their mean.
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
//     Where both classes have a range above 0, the width is 2 bits and the slope is 0, class 0 has
//     one code, which stands for its mean, and class 1 has three: lo is the mean, range +0. The
//     mean is split_mean() of lo and range as above, with the sum of the class's
//     trunc(fma(x - lo, 255 / range, 1 + u)) - 1. It is the one case where rounding is not
//     unbiased.
//   Element of class k:
//     code    offset + trunc(min(fma(x - lo, inverse, 1 + u), n)) - 1, offset 0 or n0, u as in the
//             plain format
//   Rebuilt: k = code >= n0, x^ = fma(code - offset, step, lo); dithered: fma(code - offset +
//     (1/2 - u), step, lo). It may lie beyond the class; k is what tells the class.
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
  bool zero = false;  // the slope is 0: no gradient passes the elements of class 0
};
// REQUIRES: a finite slope; its sign does not matter. Values below 1/9 act as 1/9, and values above
// 9 as 9: elements whose derivative is 0 still matter a little, because the statistics of their
// batch include them. The bound was measured on ResNet-20. There the errors of such elements would
// bound the variance of the gradient from below at 5 bits and more.
SplitWeights split_weights(double slope);

// Whether class 0 may have one code, for its mean. With two codes of four, each class would have
// the ends of its range only, so the errors of class 1 would have four times the variance. Elements
// of class 0 only reach the gradient by the statistics of a norm. docs/design/gradients.md has what
// this does to the variance of gradients, and what bias it brings. From 3 bits on the bias would
// cost more than the code brings.
FRUGAL_HD bool may_keep_mean(const SplitWeights& weights, int bits) {
  return weights.zero && bits == 2;
}
inline constexpr float kMeanLevels = 255;
// The mean of a class in bf16, to the nearest, halves away from 0. `sum` of `count` whole numbers
// from 0 to kMeanLevels, all up to 2^24.
float split_mean(float lo, float range, float sum, float count);

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
// dither: of dithered rounding, else null.
void reference_split_unpack(const uint8_t* payload, const GroupLayout& layout,
                            const SplitWeights& weights, float* x, const float* affine = nullptr,
                            const CodeStream* dither = nullptr);
void reference_split_sign(const uint8_t* payload, const GroupLayout& layout,
                          const SplitWeights& weights, uint8_t* mask);

}  // namespace frugal::compress

// Ways to round groups of values to few bits, side by side: plain scalar code that rounds a tensor
// and gives it back, to compare what they lose at equal bytes. The format that is packed is
// Quantizer's (compress/quantize/quantize.h).
#pragma once
#include <string>
#include <vector>

#include "autograd/saved_tensor.h"
#include "compress/quantize/group_layout.h"

namespace frugal::compress {

struct RoundingScheme {
  // uniform:     the quantizer's: stochastic rounding to 2^bits even levels
  // subtractive: the same codes, and what was added before truncation is taken away again:
  //              x^ = lo + (q - u + 1/2) scale. The error is uniform in [-1/2, 1/2) of the step
  //              whatever x is, so its variance is scale^2 / 12 and not scale^2 / 6 on average.
  //              Unpacking draws u again. Ref: Roberts 1962; Lipshitz et al. 1992
  // table:       stochastic rounding between neighbours of a table of levels, in units of the
  //              group's range, that has the least variance for this tensor
  // outliers:    uniform without the `parameter` values of a group that widen its range most, which
  //              are kept apart in bf16, with a byte that tells which
  // averages:    uniform, with bits * parameter bits, of the means of so many neighbours of a
  //              channel; biased. Ref: Woo et al. 2024 (ALAM)
  enum Kind : uint8_t { uniform, subtractive, table, outliers, averages } kind = uniform;
  int bits = 4;
  int64_t group = 256;
  GroupAxis axis = GroupAxis::column;
  int parameter = 0;
  // With the mask of SaveInfo::sign in the codes (compress/quantize/quantize_split.h): for uniform
  // and subtractive.
  bool split = false;

  std::string name() const;
  // Of codes and metadata. with_sign: is there a mask, which takes a bit where codes do not hold
  // it?
  double bits_per_element(bool with_sign = false) const;
  bool unbiased() const { return kind != averages; }
};

// What is compared at a width.
std::vector<RoundingScheme> rounding_schemes(int bits);

// x, contiguous f32 [..., C], as it returns; on CUDA through the host. Finite values alone.
Tensor round_trip(const RoundingScheme& scheme, const Tensor& x, uint64_t seed,
                  const SaveInfo& info);

// Levels, from 0 to 1, of least variance of the stochastic rounding between neighbours, for values
// in [0, 1] of these weights by bin. REQUIRES: count >= 2.
std::vector<float> fit_levels(const std::vector<double>& histogram, int count);

// Keeps what round_trip gives, in f32: to measure gradients, not to save memory.
class RoundTripCodec final : public Codec {
 public:
  RoundTripCodec(const RoundingScheme& scheme, uint64_t seed) : scheme_(scheme), seed_(seed) {}
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;

 private:
  RoundingScheme scheme_;
  uint64_t seed_;
};

}  // namespace frugal::compress

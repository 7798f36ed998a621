// ActNN's analytic sensitivities: how much the rounding of each sample adds to the variance of the
// gradient. They follow from ranges of groups and norms of gradients. Samples share bits by them.
//
// Rounding to 2^b - 1 steps of a group's range R has the variance R^2 / (6 (2^b - 1)^2), the mean
// of f (1 - f) step^2 over f. With `fan` elements that meet each element of dy_n (Use::product):
//   w_n = fan / 6 * mean R_n^2 * |dy_n|^2,  variance = sum_n w_n / (2^b_n - 1)^2.
// For a dense layer, fan * mean R_n^2 = G sum_g R_ng^2, so w_n = G / 6 |R_n|^2 |dy_n|^2. For a
// convolution, fan = R S C / groups. ActNN's code has 1 / 4 instead of 1 / 6 for convolutions, the
// largest value of f (1 - f). Here both kinds of layers have 1 / 6.
// Ref: Chen et al. 2021 (ActNN), section 4.2 and appendix C.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "compress/quantize/mixed.h"

namespace frugal::compress {

// Means of the squared range of groups, by element.
struct GroupRanges {
  std::vector<double> samples;   // over each sample
  std::vector<double> channels;  // over each column of [rows, C]
};
// A group of a sample is up to `group` rows of one column of its [rows, C]. 64 to 127 evenly spread
// rows of each column are looked at, or all if there are fewer. That makes all ranges smaller
// alike, which does not matter, because they only weigh samples. Groups whose range is not finite
// count 0. On meta all ranges are 1. On CUDA the host waits for the sums of each sample and column.
// REQUIRES: contiguous and floating, on CUDA f32 or bf16.
GroupRanges group_ranges(const Tensor& tensor, const Samples& samples, int64_t group);

// S(b): a width's variance over that of range^2 / 6. Convex in b.
using StepVariance = std::function<double(int)>;

// The bits of samples of equal size with the least sum_n weights[n] S(bits[n]), min_bits to
// max_bits each, total bits min_bits * n + extra. O(n log n). Ref: Chen et al. 2021, section 4.2.
// REQUIRES: 0 <= extra <= n (max_bits - min_bits).
std::vector<int> spread_bits(std::span<const double> weights, int64_t extra, int min_bits,
                             int max_bits, const StepVariance& variance);

// The least mean_n weights[n] S(bits[n]) for each of the ascending `extras`.
std::vector<double> spread_costs(std::span<const double> weights, std::span<const int64_t> extras,
                                 int min_bits, int max_bits, const StepVariance& variance);

}  // namespace frugal::compress

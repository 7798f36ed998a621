// Rotary position embedding: pairs of channels are turned by an angle that grows with the position.
// f32 and f64.
// Ref: Su et al. 2021, equation 34, with channel i paired with i + D/2.
#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "core/host_device.h"
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal {

// dynamic: the options with the base for sequences of that length, in heads of that width. Others:
// the options as they are. Ref: the NTK-aware base that grows (emozilla 2023).
RotaryOptions at_length(const RotaryOptions& options, int64_t length, int64_t width);

// yarn: the pair, not a whole number, that makes so many turns within first_length.
FRUGAL_HD double pair_of_turns(const RotaryOptions& o, double turns, int64_t half) {
  return static_cast<double>(half) * std::log(o.first_length / (turns * 2 * std::numbers::pi)) /
         std::log(o.base);
}

// REQUIRES: scaling is not dynamic.
FRUGAL_HD double frequency_of(const RotaryOptions& o, int64_t i, int64_t half) {
  const double own = std::pow(o.base, -static_cast<double>(i) / static_cast<double>(half));
  double kept = 1;  // the share of `own`; the rest is of own / factor
  if (o.scaling == RotaryOptions::Scaling::none) return own;
  if (o.scaling == RotaryOptions::Scaling::linear) kept = 0;
  if (o.scaling == RotaryOptions::Scaling::llama3) {
    const double turns = own * o.first_length / (2 * std::numbers::pi);
    kept = turns > o.high ? 1 : turns < o.low ? 0 : (turns - o.low) / (o.high - o.low);
  }
  if (o.scaling == RotaryOptions::Scaling::yarn) {
    double begin = pair_of_turns(o, o.most_turns, half),
           end = pair_of_turns(o, o.least_turns, half);
    if (o.whole_pairs) begin = std::floor(begin), end = std::ceil(end);
    const double last = static_cast<double>(2 * half - 1);
    begin = begin < 0 ? 0 : begin;
    end = end > last ? last : end;
    if (begin == end) end += 0.001;
    const double at = (static_cast<double>(i) - begin) / (end - begin);
    kept = at < 0 ? 1 : at > 1 ? 0 : 1 - at;
  }
  return kept * own + (1 - kept) * own / o.factor;
}

// The frequencies of all pairs.
std::vector<double> frequencies_of(const RotaryOptions& options, int64_t half);

namespace ops {

// x [N, T, heads, D] -> the same shape. The channels (i, i + D/2) = (x1, x2) become (x1 cos a - x2
// sin a, x2 cos a + x1 sin a) with a = position frequency_of(options, i, D/2), times options.gain.
// positions [T] i64; if undefined, they are 0..T-1. `inverse` turns the other way, which is the
// gradient. positions may also be [N, T], those of each row. Options that are dynamic take T, or
// one more than the last of the positions, as the length; rows with positions of their own must
// stay within first_length, since samples that share a row have lengths of their own. Errors: an
// odd D; positions of another shape or dtype; base not above 0; a factor below 1; a scaling by
// turns without first_length; dynamic options and positions [N, T] beyond first_length.
Tensor rotary(const Tensor& x, const Tensor& positions, const RotaryOptions& options,
              bool inverse = false);
// REQUIRES: all tensors are contiguous; scaling is not dynamic.
void rotary_kernel(Cpu, const Tensor& x, const Tensor& positions, const RotaryOptions& options,
                   bool inverse, const Tensor& y);
void rotary_kernel(Cuda, const Tensor& x, const Tensor& positions, const RotaryOptions& options,
                   bool inverse, const Tensor& y);

}  // namespace ops
}  // namespace frugal

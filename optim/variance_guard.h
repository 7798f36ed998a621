// VarianceGuard: chooses the bits of compression so that the variance it adds to the gradient and
// the square of its bias, together, stay below a share of the minibatch variance.
//
// Bits rise as soon as the added share is above the allowed one, by as much as should be needed.
// Bits fall when the added share is below a quarter of the allowed one, but only if the added share
// is then expected to stay below kAfterFall of the allowed one. Between the two limits widths do
// not change. A width that was too low is not tried again for kPatience measurements.
#pragma once
#include <cstdint>
#include <vector>

namespace frugal::optim {

struct VarianceGuardOptions {
  double share = 0.1;           // allowed: what is added over minibatch variance
  double least = 1, most = 16;  // bits
  double step = 1;              // bits change by multiples of this
};

class VarianceGuard {
 public:
  explicit VarianceGuard(const VarianceGuardOptions& options);  // Errors: an option out of range
  // The bits from now on. Arguments: the present bits, the share that they add, and the number of
  // measurements at these bits from which that share is known.
  double next(double bits, double added_share, int64_t measurements);

  std::vector<double> state() const { return {too_low_, quiet_}; }
  void restore(const std::vector<double>& numbers);  // Errors: another count of numbers

  // The factor by which what is added changes from `from` to `to` bits: S(to) / S(from), with
  // S(b) = 1 / (2^b - 1)^2.
  static double change(double from, double to);

  static constexpr int64_t kBeforeRise = 2, kBeforeFall = 4;  // measurements
  static constexpr double kAfterFall = 0.7;
  static constexpr double kPatience = 40;
  static constexpr double kLargestFall = 2;  // the most bits by which widths fall at once

 private:
  VarianceGuardOptions options_;
  double too_low_ = 0, quiet_ = 0;
};

}  // namespace frugal::optim

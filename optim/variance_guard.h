// VarianceGuard: chooses the bits of compression so that the variance that it adds to the gradient
// stays below a share of the minibatch's.
//
// Bits rise as soon as the added share is above the allowed one, by as much as should be needed.
// They fall when it is below a quarter of that, but only if what fewer bits would add is expected
// to stay below kAfterFall of the allowed share; so widths rest between the two. A width that was
// too low is not tried again for kPatience measurements.
#pragma once
#include <cstdint>
#include <vector>

namespace frugal::optim {

struct VarianceGuardOptions {
  double share = 0.1;           // allowed: added over minibatch variance
  double least = 1, most = 16;  // bits
  double step = 1;              // by which bits change
};

class VarianceGuard {
 public:
  explicit VarianceGuard(const VarianceGuardOptions& options);  // Errors: an option out of range
  // The bits from now on, given those of now, the share that they add, and from how many
  // measurements at these bits it is known.
  double next(double bits, double added_share, int64_t measurements);

  std::vector<double> state() const { return {too_low_, quiet_}; }
  void restore(const std::vector<double>& numbers);  // Errors: another count of numbers

  // What the variance is multiplied by from `from` to `to` bits: S(to) / S(from), S(b) = 1 / (2^b -
  // 1)^2.
  static double change(double from, double to);

  static constexpr int64_t kBeforeRise = 2, kBeforeFall = 4;  // measurements
  static constexpr double kAfterFall = 0.7;
  static constexpr double kPatience = 40;
  static constexpr double kLargestFall = 2;  // bits at once

 private:
  VarianceGuardOptions options_;
  double too_low_ = 0, quiet_ = 0;
};

}  // namespace frugal::optim

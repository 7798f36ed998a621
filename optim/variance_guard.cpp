#include "optim/variance_guard.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace frugal::optim {

VarianceGuard::VarianceGuard(const VarianceGuardOptions& options) : options_(options) {
  FRUGAL_CHECK(options.share > 0, "[guard] expected a share above 0, got {}", options.share);
  FRUGAL_CHECK(1 <= options.least && options.least <= options.most && options.most <= 16,
               "[guard] expected 1 <= least <= most <= 16 bits, got {} and {}", options.least,
               options.most);
  FRUGAL_CHECK(options.step > 0, "[guard] expected a step above 0, got {}", options.step);
}

double VarianceGuard::change(double from, double to) {
  const double ratio = (std::exp2(from) - 1) / (std::exp2(to) - 1);
  return ratio * ratio;
}

double VarianceGuard::next(double bits, double added_share, int64_t measurements) {
  quiet_ = std::max(quiet_ - 1, 0.0);
  if (added_share > options_.share) {
    // If the share is far above the allowed one, the first measurement is enough.
    if (measurements < kBeforeRise && added_share < 2 * options_.share) return bits;
    double to = bits;
    while (to < options_.most && (to == bits || added_share * change(bits, to) > options_.share))
      to = std::min(to + options_.step, options_.most);
    too_low_ = bits;
    quiet_ = kPatience;
    return std::max(to, bits);
  }
  if (added_share >= options_.share / 4 || measurements < kBeforeFall) return bits;
  double to = bits;
  while (true) {
    const double below = to - options_.step;
    if (below < options_.least || bits - below > kLargestFall) break;
    if (quiet_ > 0 && below <= too_low_) break;
    if (added_share * change(bits, below) > kAfterFall * options_.share) break;
    to = below;
  }
  return to;
}

void VarianceGuard::restore(const std::vector<double>& numbers) {
  FRUGAL_CHECK(numbers.size() == 2, "[guard] expected 2 numbers, got {}", numbers.size());
  too_low_ = numbers[0];
  quiet_ = numbers[1];
}

}  // namespace frugal::optim

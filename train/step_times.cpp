#include "train/step_times.h"

#include <algorithm>

#include "core/rng.h"
#include "train/statistics.h"

namespace frugal::train {
namespace {

constexpr double kRecent = 50;  // steps

double over(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

}  // namespace

void StepTimes::add(double seconds, int64_t samples, int64_t units) {
  // Ref: Vitter 1985, algorithm R: each step is kept with the same probability.
  if (steps_ < kKept) {
    kept_.push_back(seconds);
  } else {
    const uint64_t place =
        uniform_int({0, 0}, static_cast<uint64_t>(steps_), static_cast<uint64_t>(steps_) + 1);
    if (place < static_cast<uint64_t>(kKept)) kept_[place] = seconds;
  }
  ++steps_;
  samples_ += samples;
  units_ += units;
  seconds_ += seconds;
  const double weight = 1 / std::min(static_cast<double>(steps_), kRecent);
  recent_seconds_ += weight * (seconds - recent_seconds_);
  recent_units_ += weight * (static_cast<double>(units) - recent_units_);
}

double StepTimes::median() const { return train::median(kept_); }
double StepTimes::samples_per_second() const {
  return over(static_cast<double>(samples_), seconds_);
}
double StepTimes::units_per_second() const { return over(static_cast<double>(units_), seconds_); }
double StepTimes::recent_units_per_second() const { return over(recent_units_, recent_seconds_); }

}  // namespace frugal::train

// How long steps took: their sum, their median and what they take now, at a constant cost a step.
#pragma once
#include <cstdint>
#include <vector>

namespace frugal::train {

// The median is that of all steps up to kKept, and of an even random sample of kKept steps beyond:
// the rank of what it gives is within 1.1 % of the middle in 95 of 100 runs. The sample follows
// from the number of the step, not from any stream of the training. Not thread-safe.
class StepTimes {
 public:
  static constexpr int64_t kKept = 8192;

  void add(double seconds, int64_t samples, int64_t units);
  int64_t steps() const { return steps_; }
  int64_t kept() const { return static_cast<int64_t>(kept_.size()); }
  double seconds() const { return seconds_; }        // the sum over all steps
  double median() const;                             // seconds; 0 without steps; it sorts a copy
  double samples_per_second() const;                 // over all steps
  double units_per_second() const;                   // over all steps
  double recent() const { return recent_seconds_; }  // seconds of a step, over the last 50 or so
  double recent_units_per_second() const;

 private:
  std::vector<double> kept_;
  int64_t steps_ = 0, samples_ = 0, units_ = 0;
  double seconds_ = 0, recent_seconds_ = 0, recent_units_ = 0;
};

}  // namespace frugal::train

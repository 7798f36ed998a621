#include "train/step_times.h"

#include <doctest/doctest.h>

#include <cmath>

namespace frugal::train {

TEST_CASE("step times: sums and the median are exact while all steps are kept") {
  StepTimes times;
  CHECK(times.median() == 0);
  CHECK(times.recent_units_per_second() == 0);
  for (const double seconds : {0.5, 0.25, 1.0, 0.25}) times.add(seconds, 2, 10);
  CHECK(times.median() == 0.375);
  CHECK(times.seconds() == 2);
  CHECK(times.samples_per_second() == 4);
  CHECK(times.units_per_second() == 20);
  CHECK(times.recent() == doctest::Approx(0.5));
  CHECK(times.recent_units_per_second() == doctest::Approx(20));
}

TEST_CASE("step times: memory is bounded, and the median stays that of all steps") {
  StepTimes times;
  constexpr int64_t kSteps = 40 * StepTimes::kKept;
  // Rising times: a sample of the first or of the last steps alone would be far off.
  for (int64_t i = 0; i < kSteps; ++i) times.add(static_cast<double>(i), 1, 1);
  CHECK(times.kept() == StepTimes::kKept);
  CHECK(times.steps() == kSteps);
  CHECK(std::abs(times.median() / kSteps - 0.5) < 0.02);  // 3.6 standard errors
}

TEST_CASE("step times: what steps take now follows a change") {
  StepTimes times;
  for (int i = 0; i < 1000; ++i) times.add(1, 1, 8);
  for (int i = 0; i < 300; ++i) times.add(0.5, 1, 8);
  CHECK(times.recent() == doctest::Approx(0.5).epsilon(0.01));
  CHECK(times.recent_units_per_second() == doctest::Approx(16).epsilon(0.01));
}

}  // namespace frugal::train

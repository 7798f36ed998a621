#include "train/planning/largest.h"

#include <algorithm>
#include <cmath>

#include "train/option_error.h"
#include "train/planning/way_steps.h"
#include "train/planning/ways.h"

namespace frugal::train {
namespace {

constexpr int64_t kFewSamples = 8;  // for the step that makes the optimizer's state
constexpr size_t kKeptSteps = 32;

struct Point {
  int64_t value = 0, peak = 0;
};

// The largest value of first, first + step, ... up to `most`, if peaks grow with it.
Largest largest_of_even(const SearchRange& range, int64_t step, int64_t own, int64_t memory,
                        const std::function<int64_t(int64_t)>& peak_of) {
  const int64_t first = range.first, most = first + (range.most - first) / step * step;
  const auto on_grid = [&](double value) {
    const auto steps = std::floor((value - static_cast<double>(first)) / static_cast<double>(step));
    return first + step * static_cast<int64_t>(std::max(steps, 0.0));
  };
  const auto probe = [&](int64_t value) { return Point{value, peak_of(value)}; };
  const auto fits = [&](const Point& point) { return point.peak <= memory; };
  // Where a straight line through two points meets `memory`; peaks are nearly straight in the batch
  // and the depth.
  const auto meets = [&](const Point& a, const Point& b) {
    const auto rise = static_cast<double>(b.peak - a.peak);
    return rise > 0 ? static_cast<double>(a.value) + static_cast<double>(b.value - a.value) *
                                                         static_cast<double>(memory - a.peak) / rise
                    : 2.0 * static_cast<double>(b.value);
  };
  Point low = probe(std::min(on_grid(static_cast<double>(own)), most)), high;
  if (!fits(low)) {
    high = low;
    if (low.value > first) low = probe(first);
    while (!fits(low)) {
      if (low.value == range.least) return {0, low.peak, false};
      low = probe(low.value - 1);
    }
    if (low.value < first) return {low.value, low.peak, false};
  } else {
    // No value is tried that is much larger than the memory.
    constexpr int64_t kFactor = 4;
    double next = 2.0 * static_cast<double>(low.value);
    for (;;) {
      if (low.value == most) return {low.value, low.peak, true};
      const int64_t least = low.value + step;
      high = probe(
          std::clamp(on_grid(next), least, std::min(most, std::max(least, kFactor * low.value))));
      if (!fits(high)) break;
      // A little more than the line says, so that the answer comes to lie between two values.
      next = meets(low, high) + 2.0 * static_cast<double>(step);
      low = high;
    }
  }
  for (int round = 1; high.value - low.value > step; ++round) {
    const double middle = static_cast<double>(low.value + high.value) / 2;
    const Point between = probe(std::clamp(on_grid(round % 4 == 0 ? middle : meets(low, high)),
                                           low.value + step, high.value - step));
    (fits(between) ? low : high) = between;
  }
  return {low.value, low.peak, false};
}

}  // namespace

Largest find_largest(const SearchRange& range, int64_t own, int64_t memory,
                     const std::function<int64_t(int64_t)>& peak_of) {
  FRUGAL_ASSERT(range.coarse % range.step == 0);
  Largest found = largest_of_even(range, range.coarse, own, memory, peak_of);
  // From the greatest value down, so that the first one that fits is the answer.
  const auto try_down = [&](int64_t from, int64_t to, int64_t step) {
    for (int64_t value = from; value > to; value -= step) {
      const int64_t peak = peak_of(value);
      if (peak > memory) continue;
      found = {value, peak, false};
      return;
    }
  };
  if (range.coarse == range.step || found.value < range.first) return found;
  const auto at_most = [&](int64_t value, int64_t step) {
    return found.value + (std::min(value, range.most) - found.value) / step * step;
  };
  // The next coarse value is known not to fit.
  constexpr int64_t kAhead = 3;
  try_down(at_most(found.value + kAhead * range.coarse, range.coarse), found.value + range.coarse,
           range.coarse);
  try_down(at_most(found.value + range.coarse - range.step, range.step), found.value, range.step);
  found.limited = found.value == range.most;
  return found;
}

LargestSearch::LargestSearch(const PlannedRun& run, Growth growth)
    : run_(run), one_network_(growth == Growth::batch), growing_(run.growing(growth)) {}

int64_t LargestSearch::peak_of(const Way& way, int64_t value) {
  const Growing::Grown grown = growing_.grown(value);
  // Steps of small and of large batches keep the input in two ways.
  std::unique_ptr<MetaStep>& meta =
      steps_[one_network_ ? int64_t{grown.run.task->spec().releases_input} : value];
  if (meta == nullptr)
    meta = std::make_unique<MetaStep>(grown.run, std::min(grown.batch, kFewSamples));
  meta->set_task(grown.run.task);
  const auto policy = policy_on_meta(way, run_.options);
  const int64_t peak = meta->highest(policy.get(), grown.batch, way.checkpointed_blocks).peak;
  if (steps_.size() > kKeptSteps) steps_.clear();
  return peak;
}

Largest LargestSearch::find(const Way& way, int64_t memory) {
  if (const std::string budget = way.choice.memory_budget(); !budget.empty())
    throw OptionError(
        "budget.memory",
        fmt::format("expected none where the largest that fits is asked for, got {}", budget));
  return find_largest(growing_.range, growing_.own, memory,
                      [&](int64_t value) { return peak_of(way, value); });
}

}  // namespace frugal::train

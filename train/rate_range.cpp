#include "train/rate_range.h"

#include <algorithm>
#include <cmath>

#include "train/tasks/make_task.h"

namespace frugal::train {
namespace {

class ExponentialRise final : public optim::Schedule {
 public:
  explicit ExponentialRise(const RateRangeOptions& range) : range_(range) {}
  double lr(int64_t step) const override {
    const double at = static_cast<double>(step) / static_cast<double>(range_.steps - 1);
    return range_.first * std::pow(range_.last / range_.first, at);
  }

 private:
  RateRangeOptions range_;
};

// The weighted mean over a twentieth of the steps on each side; weights fall linearly.
void smooth(std::vector<RateRange::Point>& points, int64_t steps) {
  const int64_t reach = std::max<int64_t>(1, steps / 20);
  const auto count = static_cast<int64_t>(points.size());
  for (int64_t i = 0; i < count; ++i) {
    double sum = 0, weights = 0;
    for (int64_t k = std::max<int64_t>(0, i - reach); k <= std::min(count - 1, i + reach); ++k) {
      const auto weight = static_cast<double>(reach + 1 - std::abs(i - k));
      sum += weight * points[static_cast<size_t>(k)].loss;
      weights += weight;
    }
    points[static_cast<size_t>(i)].smoothed = sum / weights;
  }
}

// What is known while the test runs: a mean of the losses so far, the later the heavier.
class Watch {
 public:
  // from_0: no loss is below 0, so that the lowest one says what is much. Else the size of the
  // first ones says it, too.
  Watch(double divergence, bool from_0) : divergence_(divergence), from_0_(from_0) {}
  bool diverges(double loss) {
    constexpr double kKept = 0.8;
    constexpr int64_t kSettlingSteps = 5;
    if (from_0_ && loss == 0) return false;  // no target of the step counts
    mean_ = kKept * mean_ + (1 - kKept) * loss;
    weight_ *= kKept;
    const double value = mean_ / (1 - weight_);
    lowest_ = count_ == 0 ? value : std::min(lowest_, value);
    if (count_++ < kSettlingSteps) usual_ = std::max(usual_, std::abs(loss));
    const double much = from_0_ ? lowest_ : std::max(usual_, std::abs(lowest_));
    return value - lowest_ > (divergence_ - 1) * much;
  }

 private:
  double divergence_;
  bool from_0_;
  double mean_ = 0, weight_ = 1, lowest_ = 0, usual_ = 0;
  int64_t count_ = 0;
};

void judge(RateRange& found, const RateRangeOptions& range) {
  smooth(found.points, range.steps);
  if (found.points.empty()) return;
  const auto lowest =
      std::min_element(found.points.begin(), found.points.end(),
                       [](const auto& a, const auto& b) { return a.smoothed < b.smoothed; });
  if (lowest == found.points.begin()) return;
  found.lowest_at = lowest->rate;
  found.suggested = lowest->rate / 3;  // docs/guide/using.md has the measurements
}

}  // namespace

RateRange find_rate(Module& model, Optimizer& optimizer, data::BatchSource& batches,
                    TrainerOptions options, const RateRangeOptions& range) {
  FRUGAL_CHECK(std::isfinite(range.last) && range.first > 0 && range.last > range.first,
               "[lr-find] expected a last rate above a first one above 0, got {} and {}",
               range.last, range.first);
  FRUGAL_CHECK(range.steps >= 10, "[lr-find] expected at least 10 steps, got {}", range.steps);
  FRUGAL_CHECK(range.divergence > 1, "[lr-find] expected a divergence above 1, got {}",
               range.divergence);
  options.steps = range.steps;
  options.log_interval = 1;
  options.checkpoint_interval = options.grad_norms = 0;
  options.max_seconds = 0;
  options.early_stop = {};
  options.keep_best = 1;
  options.watches_loss = false;  // rates rise until it diverges
  options.test = options.validation = nullptr;
  options.folder = nullptr;
  options.on_epoch = {};
  options.on_checkpoint = {};
  if (options.task == nullptr) options.task = make_task(options.spec);
  RateRange found;
  Watch watch(range.divergence, options.task->has_loss_of_at_least_0(model));
  options.on_step = [&](const StepReport& report) {
    found.points.push_back({report.lr, report.loss, report.loss});
    found.diverged = watch.diverges(report.loss);
    return !found.diverged;
  };
  Trainer trainer(model, optimizer, std::make_shared<ExponentialRise>(range), batches,
                  std::move(options));
  try {
    found.interrupted = !trainer.run() && !found.diverged;
  } catch (const NotFinite&) {
    found.diverged = true;
  }
  judge(found, range);
  return found;
}

}  // namespace frugal::train

#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace frugal::optim {
namespace {

// From `start` to `end` along half a cosine, t in [0, 1].
double anneal(double start, double end, double t) {
  return end + (start - end) * (1 + std::cos(std::numbers::pi * t)) / 2;
}

void check_rate(double lr) {
  FRUGAL_CHECK(std::isfinite(lr) && lr >= 0, "[schedule] expected a rate of at least 0, got {}",
               lr);
}

void check_fall(double lr, double min_lr, int64_t total) {
  check_rate(lr);
  check_rate(min_lr);
  FRUGAL_CHECK(total >= 1, "[schedule] expected at least 1 step, got {}", total);
  FRUGAL_CHECK(min_lr <= lr, "[schedule] expected a lowest rate of at most {}, got {}", lr, min_lr);
}

class Constant final : public Schedule {
 public:
  explicit Constant(double lr) : lr_(lr) {}
  double lr(int64_t) const override { return lr_; }

 private:
  double lr_;
};

class Step final : public Schedule {
 public:
  Step(double lr, std::vector<int64_t> milestones, double gamma)
      : lr_(lr), milestones_(std::move(milestones)), gamma_(gamma) {}
  double lr(int64_t step) const override {
    const auto passed =
        std::upper_bound(milestones_.begin(), milestones_.end(), step) - milestones_.begin();
    return lr_ * std::pow(gamma_, static_cast<double>(passed));
  }

 private:
  double lr_;
  std::vector<int64_t> milestones_;
  double gamma_;
};

class Cosine final : public Schedule {
 public:
  Cosine(double lr, double min_lr, int64_t total) : lr_(lr), min_lr_(min_lr), total_(total) {}
  double lr(int64_t step) const override {
    const double t = static_cast<double>(std::min(step, total_)) / static_cast<double>(total_);
    return anneal(lr_, min_lr_, t);
  }

 private:
  double lr_, min_lr_;
  int64_t total_;
};

class Linear final : public Schedule {
 public:
  Linear(double lr, double min_lr, int64_t total) : lr_(lr), min_lr_(min_lr), total_(total) {}
  double lr(int64_t step) const override {
    const double t = static_cast<double>(std::min(step, total_)) / static_cast<double>(total_);
    return lr_ + (min_lr_ - lr_) * t;
  }

 private:
  double lr_, min_lr_;
  int64_t total_;
};

class InverseSqrt final : public Schedule {
 public:
  InverseSqrt(double lr, int64_t flat) : lr_(lr), flat_(static_cast<double>(flat)) {}
  double lr(int64_t step) const override {
    return lr_ * std::sqrt(flat_ / (flat_ + static_cast<double>(step)));
  }

 private:
  double lr_, flat_;
};

class Warmup final : public Schedule {
 public:
  Warmup(SchedulePtr rest, int64_t steps, std::optional<double> start)
      : rest_(std::move(rest)), steps_(steps), start_(start) {}
  double lr(int64_t step) const override {
    if (step >= steps_) return rest_->lr(step - steps_);
    const auto all = static_cast<double>(steps_), now = static_cast<double>(step);
    if (!start_) return rest_->lr(0) * (now + 1) / all;
    return rest_->lr(0) * (*start_ + (1 - *start_) * now / all);
  }
  std::optional<double> momentum(int64_t step) const override {
    return rest_->momentum(std::max<int64_t>(step - steps_, 0));
  }

 private:
  SchedulePtr rest_;
  int64_t steps_;
  std::optional<double> start_;
};

class OneCycle final : public Schedule {
 public:
  explicit OneCycle(const OneCycleOptions& options) {
    const double start = options.max_lr / options.initial_division;
    const double top = options.rising * static_cast<double>(options.total) - 1;
    const auto last = static_cast<double>(options.total - 1);
    momentum_ = options.momentum.has_value();
    const auto [lowest, highest] = options.momentum.value_or(OneCycleOptions::Momentum());
    phases_.push_back({top, start, options.max_lr, highest, lowest});
    if (options.three_phase) phases_.push_back({2 * top, options.max_lr, start, lowest, highest});
    const Phase& before = phases_.back();
    phases_.push_back(
        {last, before.lr_after, start / options.final_division, before.momentum_after, highest});
  }
  double lr(int64_t step) const override {
    const auto [phase, at] = place(step);
    return anneal(phase.lr_before, phase.lr_after, at);
  }
  std::optional<double> momentum(int64_t step) const override {
    if (!momentum_) return {};
    const auto [phase, at] = place(step);
    return anneal(phase.momentum_before, phase.momentum_after, at);
  }

 private:
  // Ends at a step, which may be a fraction, and negative where the rise takes less than a step.
  struct Phase {
    double end, lr_before, lr_after, momentum_before, momentum_after;
  };
  struct Place {
    const Phase& phase;
    double at;  // in [0, 1]
  };
  Place place(int64_t step) const {
    const double now = std::min(static_cast<double>(step), phases_.back().end);
    double begin = 0;
    for (const Phase& phase : phases_) {
      if (now <= phase.end)
        return {phase, phase.end <= begin ? 1 : (now - begin) / (phase.end - begin)};
      begin = phase.end;
    }
    return {phases_.back(), 1};
  }
  std::vector<Phase> phases_;
  bool momentum_;
};

}  // namespace

SchedulePtr constant_schedule(double lr) {
  check_rate(lr);
  return std::make_shared<Constant>(lr);
}

SchedulePtr step_schedule(double lr, std::vector<int64_t> milestones, double gamma) {
  check_rate(lr);
  FRUGAL_CHECK(gamma > 0 && gamma <= 1, "[schedule] expected a gamma in (0, 1], got {}", gamma);
  FRUGAL_CHECK(std::adjacent_find(milestones.begin(), milestones.end(),
                                  [](int64_t a, int64_t b) { return a >= b; }) == milestones.end(),
               "[schedule] expected increasing milestones");
  return std::make_shared<Step>(lr, std::move(milestones), gamma);
}

SchedulePtr cosine_schedule(double lr, double min_lr, int64_t total) {
  check_fall(lr, min_lr, total);
  return std::make_shared<Cosine>(lr, min_lr, total);
}

SchedulePtr linear_schedule(double lr, double min_lr, int64_t total) {
  check_fall(lr, min_lr, total);
  return std::make_shared<Linear>(lr, min_lr, total);
}

SchedulePtr inverse_sqrt_schedule(double lr, int64_t flat) {
  check_rate(lr);
  FRUGAL_CHECK(flat >= 1, "[schedule] expected at least 1 step, got {}", flat);
  return std::make_shared<InverseSqrt>(lr, flat);
}

SchedulePtr warmup(SchedulePtr rest, int64_t steps, std::optional<double> start) {
  FRUGAL_CHECK(steps >= 0, "[schedule] expected a warm-up of at least 0 steps, got {}", steps);
  FRUGAL_CHECK(!start || (*start >= 0 && *start <= 1),
               "[schedule] expected a warm-up that starts at a share in [0, 1] of its rate, got {}",
               *start);
  if (steps == 0) return rest;
  return std::make_shared<Warmup>(std::move(rest), steps, start);
}

SchedulePtr one_cycle_schedule(const OneCycleOptions& options) {
  check_rate(options.max_lr);
  FRUGAL_CHECK(options.total >= 1, "[schedule] expected at least 1 step, got {}", options.total);
  FRUGAL_CHECK(options.rising >= 0 && options.rising <= 1,
               "[schedule] expected a rising share in [0, 1], got {}", options.rising);
  FRUGAL_CHECK(options.initial_division > 0 && options.final_division > 0,
               "[schedule] expected divisions above 0");
  FRUGAL_CHECK(!options.three_phase || options.rising <= 0.5,
               "[schedule] expected a rising share of at most 0.5 in three phases, got {}",
               options.rising);
  if (options.momentum) {
    const auto [lowest, highest] = *options.momentum;
    FRUGAL_CHECK(0 < lowest && lowest <= highest && highest < 1,
                 "[schedule] expected momenta in (0, 1), the lowest first, got {} and {}", lowest,
                 highest);
  }
  return std::make_shared<OneCycle>(options);
}

}  // namespace frugal::optim

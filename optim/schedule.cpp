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
  Warmup(SchedulePtr rest, int64_t steps) : rest_(std::move(rest)), steps_(steps) {}
  double lr(int64_t step) const override {
    if (step >= steps_) return rest_->lr(step - steps_);
    return rest_->lr(0) * static_cast<double>(step + 1) / static_cast<double>(steps_);
  }

 private:
  SchedulePtr rest_;
  int64_t steps_;
};

class OneCycle final : public Schedule {
 public:
  explicit OneCycle(const OneCycleOptions& options) : o_(options) {}
  double lr(int64_t step) const override {
    const double start = o_.max_lr / o_.initial_division, end = start / o_.final_division;
    const double last = static_cast<double>(o_.total - 1);
    const double top = o_.rising * static_cast<double>(o_.total) - 1;
    const double now = std::min(static_cast<double>(step), last);
    if (now <= top) return top <= 0 ? o_.max_lr : anneal(start, o_.max_lr, now / top);
    return last <= top ? o_.max_lr : anneal(o_.max_lr, end, (now - top) / (last - top));
  }

 private:
  OneCycleOptions o_;
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

SchedulePtr warmup(SchedulePtr rest, int64_t steps) {
  FRUGAL_CHECK(steps >= 0, "[schedule] expected a warm-up of at least 0 steps, got {}", steps);
  if (steps == 0) return rest;
  return std::make_shared<Warmup>(std::move(rest), steps);
}

SchedulePtr one_cycle_schedule(const OneCycleOptions& options) {
  check_rate(options.max_lr);
  FRUGAL_CHECK(options.total >= 1, "[schedule] expected at least 1 step, got {}", options.total);
  FRUGAL_CHECK(options.rising >= 0 && options.rising <= 1,
               "[schedule] expected a rising share in [0, 1], got {}", options.rising);
  FRUGAL_CHECK(options.initial_division > 0 && options.final_division > 0,
               "[schedule] expected divisions above 0");
  return std::make_shared<OneCycle>(options);
}

}  // namespace frugal::optim

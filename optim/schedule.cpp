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

void check_warmup(int64_t steps, std::optional<double> start) {
  FRUGAL_CHECK(steps >= 0, "[schedule] expected a warm-up of at least 0 steps, got {}", steps);
  FRUGAL_CHECK(!start || (*start >= 0 && *start <= 1),
               "[schedule] expected a warm-up that starts at a share in [0, 1] of its rate, got {}",
               *start);
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
  Step(SchedulePtr rest, std::vector<int64_t> milestones, double gamma)
      : rest_(std::move(rest)), milestones_(std::move(milestones)), gamma_(gamma) {}
  double lr(int64_t step) const override {
    const auto passed =
        std::upper_bound(milestones_.begin(), milestones_.end(), step) - milestones_.begin();
    return rest_->lr(step) * std::pow(gamma_, static_cast<double>(passed));
  }

 private:
  SchedulePtr rest_;
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
  InverseSqrt(double lr, int64_t warm, std::optional<double> start)
      : lr_(lr), warm_(static_cast<double>(warm)), start_(start) {}
  double lr(int64_t step) const override {
    // Without `start`, the highest rate is that of the last step of the warm-up. With it, that of
    // the step after the warm-up.
    const auto done = static_cast<double>(step + (start_ ? 0 : 1));
    if (done < warm_) {
      const double first = start_.value_or(0);
      return lr_ * (first + (1 - first) * done / warm_);
    }
    return lr_ * std::sqrt(std::max(warm_, 1.0) / std::max(done, 1.0));
  }

 private:
  double lr_, warm_;
  std::optional<double> start_;
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
  return step_schedule(constant_schedule(lr), std::move(milestones), gamma);
}

SchedulePtr step_schedule(SchedulePtr rest, std::vector<int64_t> milestones, double gamma) {
  FRUGAL_CHECK(gamma > 0 && gamma <= 1, "[schedule] expected a gamma in (0, 1], got {}", gamma);
  FRUGAL_CHECK(std::is_sorted(milestones.begin(), milestones.end()),
               "[schedule] expected milestones in order");
  return std::make_shared<Step>(std::move(rest), std::move(milestones), gamma);
}

SchedulePtr cosine_schedule(double lr, double min_lr, int64_t total) {
  check_fall(lr, min_lr, total);
  return std::make_shared<Cosine>(lr, min_lr, total);
}

SchedulePtr linear_schedule(double lr, double min_lr, int64_t total) {
  check_fall(lr, min_lr, total);
  return std::make_shared<Linear>(lr, min_lr, total);
}

SchedulePtr inverse_sqrt_schedule(double lr, int64_t warm, std::optional<double> start) {
  check_rate(lr);
  check_warmup(warm, start);
  if (warm == 0) start.reset();  // there is nothing to rise
  return std::make_shared<InverseSqrt>(lr, warm, start);
}

SchedulePtr warmup(SchedulePtr rest, int64_t steps, std::optional<double> start) {
  check_warmup(steps, start);
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

std::vector<by_name::Option<ScheduleOptions>> ScheduleOptions::list() {
  namespace range = by_name::range;
  using S = ScheduleOptions;
  constexpr int64_t kMany = int64_t{1} << 40;
  const auto named = [](const std::vector<std::string>& names) -> by_name::ReadWhen<S> {
    return {fmt::format("@name {}", fmt::join(names, ", ")), {"name"}, [names](const S& s) {
              return std::find(names.begin(), names.end(), s.name) != names.end();
            }};
  };
  const auto warms = named({"constant", "step", "cosine", "linear", "inverse_sqrt"});
  const auto one_cycle = named({"one_cycle"}), step = named({"step"});
  const by_name::ReadWhen<S> cycled{
      "@cycle_momentum", {"name", "cycle_momentum"}, [](const S& s) { return s.cycles(); }};
  const by_name::Range share{
      .may_be_number = true, .most = 1, .opens_least = true, .opens_most = true};
  return {
      {{"name", range::choice("constant, step, cosine, one_cycle, linear, inverse_sqrt"),
        "Which schedule."},
       &S::name},
      {{"warmup_steps", range::integer(0, kMany),
        "Steps of linear warm-up before all but one_cycle."},
       &S::warmup_steps,
       warms},
      {{"warmup_epochs", range::number(0, 1e6),
        "Epochs of linear warm-up, which warmup_steps adds to."},
       &S::warmup_epochs,
       warms},
      {{"warmup_start", range::or_nothing(range::number(0, 1)),
        "The first rate of the warm-up, as a share of the rate after it; 0: from 0; null: what "
        "the rate rises by in a step."},
       &S::warmup_start,
       {"a warm-up: @warmup_steps or @warmup_epochs above 0",
        {"name", "warmup_steps", "warmup_epochs"},
        [](const S& s) {
          return s.name != "one_cycle" && (s.warmup_steps > 0 || s.warmup_epochs > 0);
        }}},
      {{"milestones", range::list(range::positive(1e6), 0, 64),
        "step: the epochs after which the rate is multiplied by gamma."},
       &S::milestones,
       step},
      {{"gamma", range::positive(1), "step: the factor at each milestone."}, &S::gamma, step},
      {{"min_lr", range::number(0, 1e4),
        "cosine, linear, one_cycle: the last rate; one_cycle with 0: lr / 250000."},
       &S::min_lr,
       named({"cosine", "linear", "one_cycle"})},
      {{"peak_at", range::below(0, 1),
        "one_cycle: fraction of the run at which the rate is highest."},
       &S::peak_at,
       one_cycle},
      {{"three_phase", range::flag(),
        "one_cycle: the rate falls to its first value in as many steps as it rose, and in the "
        "rest of the run to its last one."},
       &S::three_phase,
       one_cycle},
      {{"cycle_momentum", range::flag(),
        "one_cycle: the momentum, of adam and its kin beta1, falls from max_momentum to "
        "base_momentum while the rate rises, and rises again while the rate falls. It then "
        "takes the place of optim.momentum or optim.beta1."},
       &S::cycle_momentum,
       one_cycle},
      {{"base_momentum", share, "cycle_momentum: the lowest momentum."}, &S::base_momentum, cycled},
      {{"max_momentum", share, "cycle_momentum: the highest momentum."}, &S::max_momentum, cycled}};
}

void check(const ScheduleOptions& options, double lr) {
  check_options(options, ScheduleOptions::list());
  const std::vector<double>& milestones = options.milestones;
  if (options.name == "step" && milestones.empty())
    throw OptionError("milestones", "expected at least one for the schedule 'step'");
  if (!std::is_sorted(milestones.begin(), milestones.end(), std::less_equal<>()))
    throw OptionError("milestones", "expected increasing epochs");
  if (options.three_phase && options.peak_at > 0.5)
    throw OptionError("peak_at",
                      fmt::format("expected at most 0.5 with three_phase, since the rate falls in "
                                  "as many steps as it rises, got {}",
                                  options.peak_at));
  if (options.base_momentum > options.max_momentum)
    throw OptionError("base_momentum", fmt::format("expected at most max_momentum = {}, got {}",
                                                   options.max_momentum, options.base_momentum));
  if (options.min_lr > lr)
    throw OptionError("min_lr",
                      fmt::format("expected at most optim.lr = {}, got {}", lr, options.min_lr));
}

namespace {

int64_t steps_in(double epochs, int64_t steps_per_epoch) {
  return std::llround(epochs * static_cast<double>(steps_per_epoch));
}

int64_t warm_steps(const ScheduleOptions& options, int64_t steps_per_epoch) {
  return options.warmup_steps + steps_in(options.warmup_epochs, steps_per_epoch);
}

}  // namespace

std::vector<Unreached> unreached(const ScheduleOptions& options, int64_t steps_per_epoch,
                                 int64_t steps) {
  if (options.name == "one_cycle") return {};  // it has neither
  std::vector<Unreached> all;
  const int64_t warm = warm_steps(options, steps_per_epoch);
  // Only a warm-up with a first rate comes to optim.lr in the step behind it.
  if (warm > 0 && warm + (options.warmup_start ? 1 : 0) > steps)
    all.push_back({options.warmup_epochs > 0 ? "warmup_epochs" : "warmup_steps",
                   fmt::format("the warm-up takes {} steps and the run has {}, so the learning "
                               "rate does not come to optim.lr",
                               warm, steps)});
  std::vector<double> late;
  for (const double epoch : options.milestones)
    if (steps_in(epoch, steps_per_epoch) >= steps) late.push_back(epoch);
  if (options.name != "step") return all;
  if (!late.empty())
    all.push_back({"milestones",
                   fmt::format("the run ends after {:.4g} epochs, so the learning "
                               "rate does not fall at {}",
                               static_cast<double>(steps) / static_cast<double>(steps_per_epoch),
                               fmt::join(late, ", "))});
  return all;
}

SchedulePtr make_schedule(const ScheduleOptions& c, double lr, int64_t steps_per_epoch,
                          int64_t steps) {
  check(c, lr);
  if (c.name == "one_cycle") {
    OneCycleOptions options;
    options.max_lr = lr;
    options.total = steps;
    options.rising = c.peak_at;
    options.three_phase = c.three_phase;
    if (c.cycle_momentum)
      options.momentum = OneCycleOptions::Momentum{c.base_momentum, c.max_momentum};
    if (c.min_lr > 0) options.final_division = lr / options.initial_division / c.min_lr;
    return one_cycle_schedule(options);
  }
  const int64_t warm = warm_steps(c, steps_per_epoch);
  if (c.name == "inverse_sqrt") return inverse_sqrt_schedule(lr, warm, c.warmup_start);
  const int64_t falling = std::max<int64_t>(steps - warm, 1);
  const auto rest = [&] {
    if (c.name == "constant" || c.name == "step") return constant_schedule(lr);
    if (c.name == "cosine") return cosine_schedule(lr, c.min_lr, falling);
    FRUGAL_ASSERT(c.name == "linear");
    return linear_schedule(lr, c.min_lr, falling);
  };
  const SchedulePtr warmed = warmup(rest(), warm, c.warmup_start);
  if (c.name != "step") return warmed;
  // Milestones are epochs of the whole run. One within the warm-up lowers the rest of it.
  std::vector<int64_t> milestones;
  for (const double epoch : c.milestones)  // the first step has the whole rate
    milestones.push_back(std::max<int64_t>(1, steps_in(epoch, steps_per_epoch)));
  return step_schedule(warmed, std::move(milestones), c.gamma);
}

}  // namespace frugal::optim

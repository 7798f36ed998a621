// Schedules of the learning rate, and of the momentum beside it: pure functions of the step.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/option.h"

namespace frugal::optim {

class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual double lr(int64_t step) const = 0;  // step >= 0
  // For Optimizer::set_momentum(). Nothing: the optimizer's own momentum stays as it is.
  virtual std::optional<double> momentum(int64_t /*step*/) const { return {}; }
};
using SchedulePtr = std::shared_ptr<const Schedule>;

SchedulePtr constant_schedule(double lr);

// lr * gamma^(number of milestones at or before the step), with a constant lr or that of `rest`.
// Errors: milestones that fall, gamma outside (0, 1].
SchedulePtr step_schedule(double lr, std::vector<int64_t> milestones, double gamma);
SchedulePtr step_schedule(SchedulePtr rest, std::vector<int64_t> milestones, double gamma);

// Half a cosine from lr to min_lr over `total` steps, then min_lr. Ref: Loshchilov & Hutter 2017,
// equation 5.
SchedulePtr cosine_schedule(double lr, double min_lr, int64_t total);

// Linear from lr to min_lr over `total` steps, then min_lr. With warmup() before it, this is the
// schedule of BERT. Ref: Devlin et al. 2019, appendix A.2.
SchedulePtr linear_schedule(double lr, double min_lr, int64_t total);

// The schedule of the original transformer, with lr as its highest rate: with t = step + 1,
//   lr min(t / warm, sqrt(warm / t))
// `start`: as in warmup(), from start lr at step 0 to lr at step `warm`, then lr sqrt(warm / step).
// With warm 0: lr / sqrt(t). Ref: Vaswani et al. 2017, equation 3.  Errors: those of warmup().
SchedulePtr inverse_sqrt_schedule(double lr, int64_t warm, std::optional<double> start = {});

// Rises linearly over `steps` steps to the first rate of `rest`. Then follows `rest`, whose step 0
// is the step after them. With lr the first rate of `rest`, step i has the rate
//   lr (i + 1) / steps                         without `start`
//   lr (start + (1 - start) i / steps)         with it: 0 as in Hugging Face's schedules, another
//                                              value as start_factor of PyTorch's LinearLR
// Errors: negative steps; a start outside [0, 1].
SchedulePtr warmup(SchedulePtr rest, int64_t steps, std::optional<double> start = {});

struct OneCycleOptions {
  double max_lr = 0.1;
  int64_t total = 1;             // steps
  double rising = 0.3;           // the part of the steps in which the rate rises
  double initial_division = 25;  // the first rate is max_lr / initial_division
  double final_division = 1e4;   // the last rate is the first rate / final_division
  // The rate falls in as many steps as it rose, to the first rate, and in the rest to the last one.
  bool three_phase = false;
  // The momentum moves against the rate: it falls while the rate rises, and rises while the rate
  // falls to the first rate. Nothing: the schedule has no momentum.
  struct Momentum {
    double lowest = 0.85, highest = 0.95;
  };
  std::optional<Momentum> momentum = {};
};
// The rate rises and falls along cosines, as PyTorch's OneCycleLR, with its defaults, but without a
// momentum. Ref: Smith & Topin 2018.
// Errors: a rising share outside [0, 1], in three phases above 0.5; momenta outside (0, 1) or in
// the wrong order.
SchedulePtr one_cycle_schedule(const OneCycleOptions& options);

// A schedule by its name. Times are shares of a run, steps and epochs.
struct ScheduleOptions {
  std::string name = "one_cycle";
  int64_t warmup_steps = 0;
  double warmup_epochs = 0;
  std::optional<double> warmup_start = {};
  std::vector<double> milestones = {};
  double gamma = 0.1;
  double min_lr = 0;
  double peak_at = OneCycleOptions().rising;
  bool three_phase = false;
  bool cycle_momentum = false;
  double base_momentum = OneCycleOptions::Momentum().lowest;
  double max_momentum = OneCycleOptions::Momentum().highest;

  bool cycles() const { return name == "one_cycle" && cycle_momentum; }
  static std::vector<by_name::Option<ScheduleOptions>> list();
};

// Errors (OptionError): options that no schedule of highest rate `lr` can have together.
void check(const ScheduleOptions& options, double lr);

// Options that a run of `steps` steps does not come to, each with what follows from that: a warm-up
// that the run does not end, milestones behind its end.
struct Unreached {
  std::string option, what;
};
std::vector<Unreached> unreached(const ScheduleOptions& options, int64_t steps_per_epoch,
                                 int64_t steps);

// The schedule of a run of `steps` steps, whose highest rate is `lr`. Errors: as check().
SchedulePtr make_schedule(const ScheduleOptions& options, double lr, int64_t steps_per_epoch,
                          int64_t steps);

}  // namespace frugal::optim

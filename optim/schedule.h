// Learning-rate schedules: pure functions of the step.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace frugal::optim {

class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual double lr(int64_t step) const = 0;  // step >= 0
};
using SchedulePtr = std::shared_ptr<const Schedule>;

SchedulePtr constant_schedule(double lr);

// lr * gamma^(number of milestones at or before the step).  Errors: milestones not increasing,
// gamma outside (0, 1].
SchedulePtr step_schedule(double lr, std::vector<int64_t> milestones, double gamma);

// Half a cosine from lr to min_lr over `total` steps, then min_lr. Ref: Loshchilov & Hutter 2017,
// equation 5.
SchedulePtr cosine_schedule(double lr, double min_lr, int64_t total);

// Linear from lr to min_lr over `total` steps, then min_lr. With warmup() before it, this is the
// schedule of BERT. Ref: Devlin et al. 2019, appendix A.2.
SchedulePtr linear_schedule(double lr, double min_lr, int64_t total);

// lr sqrt(flat / (flat + step)): the rate falls with the square root of the steps. With warmup()
// over `flat` steps before it, this is the schedule of the original transformer, with its highest
// rate lr. Ref: Vaswani et al. 2017, section 5.3.  Errors: flat < 1.
SchedulePtr inverse_sqrt_schedule(double lr, int64_t flat);

// Rises linearly over `steps` steps, from lr/steps to the first rate of `rest`. Then follows
// `rest`, whose step 0 is the step after them.
SchedulePtr warmup(SchedulePtr rest, int64_t steps);

struct OneCycleOptions {
  double max_lr = 0.1;
  int64_t total = 1;             // steps
  double rising = 0.3;           // the part of the steps in which the rate rises
  double initial_division = 25;  // the first rate is max_lr / initial_division
  double final_division = 1e4;   // the last rate is the first rate / final_division
};
// The rate rises and falls along cosines, with PyTorch's defaults. Ref: Smith & Topin 2018.
SchedulePtr one_cycle_schedule(const OneCycleOptions& options);

}  // namespace frugal::optim

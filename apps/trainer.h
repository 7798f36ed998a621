// The training loop.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/cli/progress.h"
#include "apps/cli/report.h"
#include "apps/config/config.h"
#include "apps/config/make_data.h"
#include "apps/convergence.h"
#include "apps/planner.h"
#include "apps/run_folder.h"
#include "apps/run_state.h"
#include "apps/sensitivity.h"
#include "apps/step_times.h"
#include "compress/policies/learner.h"
#include "data/batch_source.h"
#include "optim/schedule.h"

namespace frugal::apps {

class CapturedStep;

struct TrainOptions {
  std::string out;      // empty: nothing is written
  bool resume = false;  // continue what `out` holds, from the start if it holds nothing yet
  bool quiet = false;   // no progress
  // Called after each checkpoint of a run that goes on, with the steps done.
  std::function<void(int64_t step)> saved = {};
};

// A run from its configuration to its summary. After equal numbers of steps, weights and metrics
// are equal to the bit, however often the run was interrupted, and on any number of threads but
// for what oneDNN sums up by threads (ARCHITECTURE.md).
class Trainer {
 public:
  // Errors: those of the data files, the folder and the checkpoint.
  Trainer(const Config& config, const TrainOptions& options);

  // Errors: a loss or gradient that is not finite, naming the step and the first such tensor (the
  // last checkpoint stays); Interrupted, after a checkpoint, saying how to go on; OutOfMemory.
  Json run();

 private:
  using Clock = std::chrono::steady_clock;

  // What steps depend on, from state_. Errors: values that this run cannot have.
  void restore(int64_t per_epoch);
  std::optional<compress::OffloadStats> offload_stats() const;
  void step();
  bool is_better(const EpochResult& a, const EpochResult& b) const;
  bool finish_epoch();  // false: a signal came during the evaluation
  bool epoch_over() const;
  void log_step(double lr, double norm);
  void log_widths();
  void log_plan();
  void log_convergence();
  void show();
  void checkpoint();
  void save_average();  // under optim.ema
  // Forward and backward; `usual`: the same work as in other steps, which may be replayed, and then
  // with the update at rate lr, which leaves `norm` to say so.
  BatchResult pass(Batch batch, Context& context, const StepOptions& options, bool usual, double lr,
                   std::optional<double>& norm);
  void decide_anew();  // the policy's decisions changed
  // Throws if `value` is not finite, naming the first tensor that is not; repeats the last batch.
  void check_finite(double value, const char* what);
  Speed speed() const;
  ProgressLine progress_line() const;

  Config config_;
  TrainOptions options_;
  std::shared_ptr<CapturedStep> captured_;  // shared: deleted by who made it, in CUDA builds only
  Device device_;
  BatchSpec spec_;
  std::shared_ptr<Module> model_;
  std::unique_ptr<data::BatchSource> train_, test_, validation_;
  std::unique_ptr<Optimizer> optimizer_;
  optim::SchedulePtr schedule_;
  std::unique_ptr<SavePolicy> policy_;
  compress::AdaptivePolicy* adaptive_ = nullptr;  // these two: in policy_, if it is one
  compress::Learner* learner_ = nullptr;
  std::optional<Adaptation> adaptation_;
  std::optional<Planner> planner_;  // with the policy `budget`
  compress::BudgetPolicy* budget_ = nullptr;
  std::optional<Tracking> tracking_;
  std::unique_ptr<RunFolder> folder_;
  std::unique_ptr<Progress> progress_;
  std::vector<Variable> parameters_;
  Rng rng_;
  RunState state_;
  compress::OffloadStats offload_before_;  // of the parts of the run before this one
  data::LoaderState last_batch_;           // where the last batch came from, and rng_ before it
  RngKey last_rng_;
  int64_t epochs_ = 0, steps_ = 0;
  StepTimes times_;
  double adapt_seconds_ = 0;
};

}  // namespace frugal::apps

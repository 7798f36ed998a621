// Run: what a training run is made of. It owns the network, the optimizer, the batches and the plan
// of a memory budget. Each is made when it is first asked for, and once.
//
//   train::Run run(recipe);                    // functions that make the parts, and options
//   run.train();                               // train::Trainer, with a folder if there is one
//   run.plan(memory);                          // what other ways to keep activations take
//   run.profile(3);                            // what steps spend their time on
//   run.trial()->step(1);                      // a step that is measured and not kept
//   run.find_rate({.steps = 100});             // a learning rate
//
// The program `frugal` makes a recipe of a configuration (apps/config/make_run.h), and a program
// that embeds the library writes its own (examples/budget).
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "core/rng.h"
#include "data/batch_source.h"
#include "models/module.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "train/planning/ways.h"
#include "train/rate_range.h"
#include "train/run/profile.h"
#include "train/trainer.h"
#include "train/trial_run.h"

namespace frugal::train {

struct RunRecipe {
  // The network on a device, and what updates it.
  std::function<std::shared_ptr<Module>(Device device)> make_model;
  std::function<std::unique_ptr<Optimizer>(Module& model)> make_optimizer;
  // steps: of the whole run. Empty: a constant rate, `lr`.
  std::function<optim::SchedulePtr(int64_t steps_per_epoch, int64_t steps)> make_schedule = {};
  double lr = 0.1;
  // What is trained on. The other two may be empty or return null: the run has no such data.
  // test_batch: what a plan allows in the place of the recipe's own size; 0: no limit.
  std::function<std::unique_ptr<data::BatchSource>()> open_train;
  std::function<std::unique_ptr<data::BatchSource>(int64_t test_batch)> open_test = {},
                                                                        open_validation = {};
  // Makes a plan that keeps a memory budget. Empty: there is none, or the run plans by itself
  // (compress::budget(), plan_of_own()).
  std::function<std::shared_ptr<Planner>()> make_planner = {};
  // What plans count and may vary. Empty: it is read off the batches, and only they may grow.
  std::function<PlannedRun()> planned = {};
  Device device = kCpu;
  // What steps do and how activations are kept, without sources, folder and callbacks.
  TrainerOptions options = {};
};

// The steps of a trainer of these options on the device, with what its plan decides.
TrialOptions trial_options(const TrainerOptions& options, Device device);

// What steps of a run take, see Run::plan().
struct RunPlan {
  std::vector<WayMemory> ways;
  std::optional<Recommendation> recommended;  // where the memory is given
  std::optional<PlanReport> budget;           // the plan of the run's memory budget
};

// What a function returns by reference belongs to the run. Errors: those of the recipe's functions;
// OptionError for a budget that no plan keeps. Thread safety: none.
class Run {
 public:
  explicit Run(RunRecipe recipe);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const Task& task() const { return *recipe_.options.task; }
  Device device() const { return recipe_.device; }
  Module& model() { return *shared_model(); }
  std::shared_ptr<Module> shared_model();  // for who outlives the run
  Optimizer& optimizer();
  data::BatchSource& batches();
  Batch next_batch();                         // the next one of training, epoch after epoch
  data::BatchSource* test();                  // null: the run has none
  data::BatchSource* validation();            // null: the run has none
  const std::shared_ptr<Planner>& planner();  // null: no memory budget
  Rng& rng() { return rng_; }                 // drives dropout in the steps of trials
  RngKey rng_state() const { return rng_.state(); }

  // What trains the run, made at the first call. `complete` adds a folder, callbacks and ranks to
  // the options. Errors: those of Trainer's constructor, and of the parts.
  Trainer& trainer(const std::function<void(TrainerOptions& options)>& complete = {});
  bool train() { return trainer().run(); }  // see Trainer::run()

  // What plans count and may vary.
  const PlannedRun& planned();
  // Counts on `meta` what a step takes that keeps activations in one way or another. memory: bytes
  // into which a step should fit.
  RunPlan plan(std::optional<int64_t> memory = {});
  // Profiles trial steps. Two steps before them make the optimizer's state and the widths. On
  // `meta`, where nothing takes time and all steps are equal, it is one step. traces: with what is
  // allocated.
  Profile profile(int64_t steps, bool traces = false);

  // The options of measured steps, with what the plan decides.
  TrialOptions trial_options();
  // Steps that are measured and not kept. next: gives batches; empty: those of training, epoch
  // after epoch. The run must outlive it.
  std::unique_ptr<TrialRun> trial(TrialRun::NextBatch next = {});
  // Trains with rising rates, see rate_range.h. The network and the optimizer stay as this leaves
  // them. stop: asked between steps; true ends the search.
  RateRange find_rate(const RateRangeOptions& range, std::function<bool()> stop = {});

 private:
  RunRecipe recipe_;
  std::optional<std::shared_ptr<Planner>> planner_;
  std::optional<PlannedRun> planned_;
  std::unique_ptr<data::BatchSource> train_;
  std::optional<std::unique_ptr<data::BatchSource>> test_, validation_;
  std::shared_ptr<Module> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Trainer> trainer_;
  Rng rng_;
};

}  // namespace frugal::train

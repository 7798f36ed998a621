#include "train/run/run.h"

#include "autograd/timeline.h"
#include "core/integers.h"
#include "core/random_streams.h"
#include "train/planning/own_plan.h"
#include "train/tasks/make_task.h"

namespace frugal::train {

Run::Run(RunRecipe recipe) : recipe_(std::move(recipe)) {
  FRUGAL_CHECK(recipe_.make_model && recipe_.make_optimizer && recipe_.open_train,
               "[run] expected a recipe with make_model, make_optimizer and open_train");
  TrainerOptions& options = recipe_.options;
  if (options.task == nullptr) options.task = make_task(options.spec);
  rng_ = streams::kDropout.rng(options.seed);
}

Module& Run::model() {
  if (model_ == nullptr) model_ = recipe_.make_model(recipe_.device);
  return *model_;
}

Optimizer& Run::optimizer() {
  if (optimizer_ == nullptr) optimizer_ = recipe_.make_optimizer(model());
  return *optimizer_;
}

data::BatchSource& Run::batches() {
  if (train_ == nullptr) train_ = recipe_.open_train();
  return *train_;
}

Batch Run::next_batch() {
  const TimeSpan span(Timeline::Kind::load, "next batch");
  for (;;)
    if (std::optional<Batch> batch = batches().next()) return std::move(*batch);  // an epoch ended
}

namespace {

using Source = std::unique_ptr<data::BatchSource>;

data::BatchSource* opened(std::optional<Source>& source,
                          const std::function<Source(int64_t test_batch)>& open,
                          const std::shared_ptr<Planner>& planner) {
  if (!source)
    source = open ? open(planner != nullptr ? planner->settings().test_batch : 0) : nullptr;
  return source->get();
}

}  // namespace

data::BatchSource* Run::test() { return opened(test_, recipe_.open_test, planner()); }

data::BatchSource* Run::validation() {
  return opened(validation_, recipe_.open_validation, nullptr);
}

const std::shared_ptr<Planner>& Run::planner() {
  if (!planner_) planner_ = recipe_.make_planner ? recipe_.make_planner() : nullptr;
  return *planner_;
}

Trainer& Run::trainer(const std::function<void(TrainerOptions& options)>& complete) {
  if (trainer_ != nullptr) return *trainer_;
  TrainerOptions options = recipe_.options;
  options.compression.planner = planner();
  options.test = test();
  options.validation = validation();
  const int64_t per_epoch = ceil_div(batches().batches(), options.gradient_accumulation);
  const int64_t steps = options.steps > 0 ? options.steps : options.epochs * per_epoch;
  optim::SchedulePtr schedule = recipe_.make_schedule ? recipe_.make_schedule(per_epoch, steps)
                                                      : optim::constant_schedule(recipe_.lr);
  if (complete) complete(options);
  trainer_ = std::make_unique<Trainer>(model(), optimizer(), std::move(schedule), batches(),
                                       std::move(options));
  return *trainer_;
}

TrialOptions trial_options(const TrainerOptions& options) {
  TrialOptions trial;
  trial.step = step_options(options);
  trial.compression = options.compression;
  trial.seed = options.seed;
  trial.cuda_graphs = options.cuda_graphs;
  return trial;
}

TrialOptions Run::trial_options() {
  TrainerOptions options = recipe_.options;
  std::shared_ptr<Planner>& plan = options.compression.planner = planner();
  if (plan == nullptr && !options.compression.choice.memory_budget().empty()) {
    options.test = test();
    plan = plan_of_own(options, model(), optimizer(), batches());
  }
  return train::trial_options(options);
}

std::unique_ptr<TrialRun> Run::trial(TrialRun::NextBatch next) {
  if (!next) next = [this] { return next_batch(); };
  return std::make_unique<TrialRun>(task(), model(), optimizer(), std::move(next), trial_options(),
                                    rng_);
}

RateRange Run::find_rate(const RateRangeOptions& range, std::function<bool()> stop) {
  TrainerOptions options = recipe_.options;
  options.compression.planner = planner();
  options.stop = std::move(stop);
  return train::find_rate(model(), optimizer(), batches(), std::move(options), range);
}

}  // namespace frugal::train

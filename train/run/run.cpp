#include "train/run/run.h"

#include <algorithm>
#include <utility>

#include "autograd/timeline.h"
#include "core/integers.h"
#include "core/memory/memory_trace.h"
#include "core/random/random_streams.h"
#include "train/option_error.h"
#include "train/planning/own_plan.h"
#include "train/planning/recommend.h"
#include "train/planning/way_steps.h"
#include "train/tasks/make_task.h"

namespace frugal::train {

Run::Run(RunRecipe recipe) : recipe_(std::move(recipe)) {
  FRUGAL_CHECK(recipe_.make_model && recipe_.make_optimizer && recipe_.open_train,
               "[run] expected a recipe with make_model, make_optimizer and open_train");
  TrainerOptions& options = recipe_.options;
  if (options.task == nullptr) options.task = make_task(options.spec);
  rng_ = streams::kDropout.rng(options.seed);
}

std::shared_ptr<Module> Run::shared_model() {
  if (model_ == nullptr) model_ = recipe_.make_model(recipe_.device);
  return model_;
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
  // Null says that an epoch has ended.
  for (;;)
    if (std::optional<Batch> batch = batches().next()) return std::move(*batch);
}

namespace {

// Is it the rest of an epoch, which has fewer samples than other batches?
bool is_rest(const Batch& batch, const data::BatchSource& source) {
  const int64_t smallest = source.smallest_batch();
  const Tensor& counted = batch.samples.defined() ? batch.samples : batch.input;
  return counted.size(0) == smallest && smallest * source.batches() < source.samples();
}

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
  if (planner_) return *planner_;
  planner_ = recipe_.make_planner ? recipe_.make_planner() : nullptr;
  TrainerOptions options = recipe_.options;
  if (*planner_ != nullptr || options.compression.choice.memory_budget().empty()) return *planner_;
  options.test = test();
  validation();  // its data count, too
  planner_ = plan_of_own(options, model(), optimizer(), batches());
  return *planner_;
}

Trainer& Run::trainer(const std::function<void(TrainerOptions& options)>& complete) {
  if (trainer_ != nullptr) return *trainer_;
  TrainerOptions options = recipe_.options;
  options.compression.planner = planner();
  options.test = test();
  options.validation = validation();
  const int64_t per_epoch = ceil_div(batches().batches(), options.gradient_accumulation);
  const int64_t steps = steps_of(options, batches().batches());
  optim::SchedulePtr schedule = recipe_.make_schedule ? recipe_.make_schedule(per_epoch, steps)
                                                      : optim::constant_schedule(recipe_.lr);
  if (complete) complete(options);
  trainer_ = std::make_unique<Trainer>(model(), optimizer(), std::move(schedule), batches(),
                                       std::move(options));
  return *trainer_;
}

TrialOptions trial_options(const TrainerOptions& options, Device device) {
  TrialOptions trial;
  trial.step = step_options(options, device);
  trial.compression = options.compression;
  trial.seed = options.seed;
  trial.cuda_graphs = options.cuda_graphs;
  return trial;
}

TrialOptions Run::trial_options() {
  TrainerOptions options = recipe_.options;
  options.compression.planner = planner();
  // A step takes no more batches than an epoch has.
  options.gradient_accumulation =
      std::clamp<int64_t>(batches().batches(), 1, options.gradient_accumulation);
  return train::trial_options(options, device());
}

std::unique_ptr<TrialRun> Run::trial(TrialRun::NextBatch next) {
  if (!next) next = [this] { return next_batch(); };
  return std::make_unique<TrialRun>(task(), model(), optimizer(), std::move(next), trial_options(),
                                    rng_);
}

const PlannedRun& Run::planned() {
  if (planned_) return *planned_;
  if (recipe_.planned) return planned_.emplace(recipe_.planned());
  TrainerOptions options = recipe_.options;
  options.test = test();
  PlannedRun& run = planned_.emplace();
  run.options = read_off(options, recipe_.device, batches());
  run.options.run.make_model = recipe_.make_model;
  run.options.run.make_optimizer = recipe_.make_optimizer;
  run.counts_kernels = recipe_.device == kCpu;
  run.growing = [meta = run.options.run, own = run.options.batch](Growth growth) {
    if (growth != Growth::batch)
      throw OptionError("run", "expected a recipe that says how the number grows (planned)");
    constexpr int64_t kMost = int64_t{1} << 24;
    return Growing{.range = {.most = kMost}, .own = own, .grown = [meta](int64_t value) {
                     return Growing::Grown{meta, value};
                   }};
  };
  return run;
}

RunPlan Run::plan(std::optional<int64_t> memory) {
  RunPlan plan;
  WaySteps steps(planned());
  if (planner() != nullptr) plan.budget = planner()->report();
  if (memory)
    plan.recommended = planner() != nullptr ? recommend(planned(), *memory, *planner())
                                            : recommend(planned(), *memory, steps);
  plan.ways = memory_of_ways(planned(), steps);
  return plan;
}

Profile Run::profile(int64_t steps, bool traces) {
  const bool runs = device().type != DeviceType::meta;
  std::unique_ptr<TrialRun> trials;
  std::optional<WaySteps> counted;
  std::shared_ptr<Planner> plan;
  // A step of the rest of an epoch would say less than the others take. A source that knows its
  // smallest batch has no two of them in turn.
  const auto next = [this] {
    Batch batch = next_batch();
    return is_rest(batch, batches()) ? next_batch() : batch;
  };
  if (runs) {
    trials = trial(next);
    trials->step(0);
    trials->adapt(next(), recipe_.options.compression.choice.measuring.first);
    trials->step(kFirstMeasuredStep);
  } else {
    counted.emplace(planned());
    plan = planner();
    // Steps on meta do not count what entropy coding saves, so the plan does not, either.
    PlannerOptions without = planned().options;
    if (plan != nullptr && std::exchange(without.choice.entropy, false))
      plan = std::make_shared<Planner>(without);
  }
  Profile profile;
  profile.timed = runs;
  profile.steps = runs ? steps : 1;
  profile.timeline = timeline_of(runs ? model() : counted->model(), device());
  const auto live = traces ? std::make_shared<MemoryTrace>(device()) : nullptr;
  profile.live_begin = profile.timeline->milliseconds();
  const TimelineScope scope(*profile.timeline);
  for (int64_t i = 1; i <= profile.steps; ++i)
    profile.memory = runs ? trials->step(kFirstMeasuredStep + static_cast<uint64_t>(i)).memory
                          : counted->step(own_way(planned()), plan.get());
  if (live != nullptr) live->stop();
  profile.live = live;
  return profile;
}

RateRange Run::find_rate(const RateRangeOptions& range, std::function<bool()> stop) {
  TrainerOptions options = recipe_.options;
  options.compression.planner = planner();
  options.stop = std::move(stop);
  return train::find_rate(model(), optimizer(), batches(), std::move(options), range);
}

}  // namespace frugal::train

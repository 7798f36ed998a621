#include "apps/bench/gradient_bench.h"

#include "apps/config/config_error.h"
#include "apps/config/make_data.h"
#include "apps/config/make_model.h"
#include "apps/config/make_optimizer.h"
#include "apps/config/make_task.h"
#include "apps/config/set_up_device.h"
#include "apps/config/train_options.h"
#include "core/random_streams.h"
#include "train/gradient_noise.h"
#include "train/planning/planner.h"
#include "train/policy_parts.h"
#include "train/sensitivity.h"
#include "train/trial_run.h"

namespace frugal::apps {

namespace {

Device cpu(const Config& config) {
  if (config.run.device != "cpu")
    throw ConfigError("device", fmt::format("expected cpu here, got {}", config.run.device));
  return set_up_device(config.run);
}

}  // namespace

GradientBench::GradientBench(const Config& config)
    : config_(config),
      device_(cpu(config)),
      batches_(make_batches(config, Split::train)),
      model_(make_model(config, batch_spec(config), device_)),
      task_(make_task(config)),
      rng_(streams::kDropout.rng(static_cast<uint64_t>(config.run.seed))),
      probe_(*task_, *model_) {}

void GradientBench::train(int64_t steps) {
  const auto optimizer = make_optimizer(config_, *model_);
  train::TrialOptions options = trial_options(config_, nullptr);
  options.compression = {};
  options.compression.bits = 0;
  options.compression.recipes = false;
  train::TrialRun run(
      *task_, *model_, *optimizer, [this] { return next(); }, options, rng_);
  for (int64_t i = 0; i < steps; ++i) run.step(static_cast<uint64_t>(i), config_.optim.lr);
}

Batch GradientBench::next() {
  std::optional<Batch> batch = batches_->next();
  // The epoch has ended, or this is its short last batch.
  while (!batch || batch->input.size(0) != config_.data.batch_size) batch = batches_->next();
  return *batch;
}

std::vector<float> GradientBench::gradient(const Batch& batch, SavePolicy* policy, uint64_t step,
                                           RngKey start, int64_t checkpointed_blocks) {
  return probe_.gradient(batch, policy, pass(step, start, checkpointed_blocks));
}

void GradientBench::let_learn(SavePolicy& policy, const Config& config, RngKey start) {
  constexpr int64_t kSteps = 16;
  const PolicyParts parts(policy);
  std::optional<Planner> planner;
  if (parts.budget != nullptr) {
    planner.emplace(planner_options(config));
    planner->adopt(*parts.budget);
  }
  Batch batch;
  for (int64_t i = 0; i < kSteps; ++i)
    gradient(batch = next(), &policy, static_cast<uint64_t>(i), start);
  if (parts.adaptive == nullptr) return;
  SensitivityOptions options;
  options.batch = batch.input.size(0);
  options.samples = config.compression.adapt_samples;
  if (planner) options.allocate = [&] { planner->plan_again(*parts.budget); };
  Adaptation(*task_, *model_, *parts.adaptive, options)
      .refresh(batch, 1, {0, start, config.train.label_smoothing, 0});
}

std::vector<SavedRecord> GradientBench::saved(const Batch& batch, SavePolicy& policy, uint64_t step,
                                              RngKey start) {
  const auto optimizer = make_optimizer(config_, *model_);
  return probe_.saved(batch, policy, *optimizer, pass(step, start));
}

double GradientBench::minibatch_variance(int64_t batches, RngKey start) {
  const std::vector<float> first = gradient(next(), nullptr, 0, start);
  GradientNoise noise(std::vector<float>(first.size(), 0.0f));
  noise.add(first);
  for (int64_t i = 1; i < batches; ++i) noise.add(gradient(next(), nullptr, 0, start));
  return noise.variance().value;
}

}  // namespace frugal::apps

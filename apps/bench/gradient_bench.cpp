#include "apps/bench/gradient_bench.h"

#include "apps/config/config_error.h"
#include "apps/config/make_run.h"
#include "apps/config/set_up_device.h"
#include "apps/config/train_options.h"
#include "train/gradient_noise.h"
#include "train/planning/planner.h"
#include "train/policy_parts.h"
#include "train/sensitivity.h"

namespace frugal::apps {

namespace {

const Config& on_cpu(const Config& config) {
  if (config.run.device != "cpu")
    throw ConfigError("device", fmt::format("expected cpu here, got {}", config.run.device));
  set_up_device(config.run);
  return config;
}

}  // namespace

GradientBench::GradientBench(const Config& config)
    : config_(on_cpu(config)), run_(run_recipe(config)), probe_(run_.task(), run_.model()) {}

void GradientBench::train(int64_t steps) {
  train::TrialOptions options = run_.trial_options();
  options.compression = {compress::bits(0, {.recipes = false})};
  train::TrialRun run(
      run_.task(), run_.model(), run_.optimizer(), [this] { return next(); }, options, run_.rng());
  for (int64_t i = 0; i < steps; ++i) run.step(static_cast<uint64_t>(i), config_.optim.lr);
}

Batch GradientBench::next() {
  std::optional<Batch> batch = run_.batches().next();
  // The epoch has ended, or this is its short last batch.
  while (!batch || batch->input.size(0) != config_.data.batch_size) batch = run_.batches().next();
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
  Adaptation(run_.task(), run_.model(), *parts.adaptive, options)
      .refresh(batch, 1, {0, start, config.train.label_smoothing, 0});
}

std::vector<SavedRecord> GradientBench::saved(const Batch& batch, SavePolicy& policy, uint64_t step,
                                              RngKey start) {
  return probe_.saved(batch, policy, run_.optimizer(), pass(step, start));
}

double GradientBench::minibatch_variance(int64_t batches, RngKey start) {
  const std::vector<float> first = gradient(next(), nullptr, 0, start);
  GradientNoise noise(std::vector<float>(first.size(), 0.0f));
  noise.add(first);
  for (int64_t i = 1; i < batches; ++i) noise.add(gradient(next(), nullptr, 0, start));
  return noise.variance().value;
}

}  // namespace frugal::apps

#include "apps/bench/gradient_bench.h"

#include "apps/config/keys/config_error.h"
#include "apps/config/make_run.h"
#include "apps/config/planned_run.h"
#include "apps/config/set_up_device.h"
#include "apps/config/train_options.h"
#include "core/words/nouns.h"
#include "train/noise/sensitivity.h"
#include "train/planning/planner.h"
#include "train/policy_parts.h"

namespace frugal::apps {

namespace {

train::RunRecipe recipe_on_cpu(const Config& config) {
  if (config.run.device != "cpu")
    throw ConfigError("device", fmt::format("expected cpu here, got {}", config.run.device));
  set_up_device(config.run);
  train::RunRecipe recipe = starting_recipe(config);
  recipe.lr = config.optim.lr;
  return recipe;
}

}  // namespace

GradientBench::GradientBench(const Config& config) : GradientStudy(recipe_on_cpu(config)) {}

void GradientBench::let_learn(SavePolicy& policy, const Config& config) {
  const PolicyParts parts(policy);
  std::optional<Planner> planner;
  if (parts.budget != nullptr) {
    planner.emplace(planned_run(config).options);
    planner->adopt(*parts.budget);
  }
  const Batch batch = GradientStudy::let_learn(policy);
  if (parts.adaptive == nullptr) return;
  SensitivityOptions options;
  options.batch = batch.input.size(0);
  options.samples = config.compression.measuring.samples;
  if (planner) options.allocate = [&] { planner->plan_again(*parts.budget); };
  Adaptation(task(), model(), *parts.adaptive, options)
      .refresh(batch, 1, {0, rng(), config.train.label_smoothing, checkpointed_blocks()});
}

Json estimate_json(const Estimate& e, double unit) {
  return {{"value", e.value / unit}, {"standard_error", e.error / unit}};
}

std::string estimate_text(const Estimate& e, double unit) {
  return fmt::format("{:.4f} +- {:.4f}", e.value / unit, 1.96 * e.error / unit);
}

std::string setting_text(int64_t train_steps, int64_t draws, int64_t batches,
                         const train::GradientErrors& errors) {
  return fmt::format("after {}; {}; over {}{}; intervals of 95 %", with_noun(train_steps, "step"),
                     with_noun(draws, "draw"), errors.unit_name(),
                     errors.has_minibatches() ? fmt::format(" (of {})", batches) : "");
}

}  // namespace frugal::apps

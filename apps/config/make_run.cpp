#include "apps/config/make_run.h"

#include "apps/config/data/make_data.h"
#include "apps/config/make_choice.h"
#include "apps/config/make_model.h"
#include "apps/config/make_optimizer.h"
#include "apps/config/make_task.h"
#include "apps/config/planned_run.h"
#include "apps/config/resolve.h"
#include "apps/config/starting_weights.h"
#include "apps/config/train_options.h"
#include "compress/policies/policy_kind.h"

namespace frugal::apps {

namespace {

// Batches are those of a rank.
Config of_rank(const Config& config) {
  return config.distributed.whole_batch > 0 ? config : share_of_rank(config);
}

}  // namespace

std::shared_ptr<Planner> make_plan(const Config& config) {
  if (config.compression.policy != PolicyKind::budget) return nullptr;
  return std::make_shared<Planner>(planned_run(of_rank(config)).options);
}

train::Run make_run(const Config& config) { return train::Run(starting_recipe(config)); }

train::RunRecipe starting_recipe(const Config& config) {
  check_starting_weights(config);
  train::RunRecipe recipe = run_recipe(config);
  recipe.make_model = [config, make = recipe.make_model](Device device) {
    std::shared_ptr<Module> network = make(device);
    if (device.type != DeviceType::meta) load_starting_weights(*network, config);
    return network;
  };
  return recipe;
}

train::RunRecipe run_recipe(const Config& config, const BatchSpec& spec,
                            const distributed::CommunicatorPtr& ranks) {
  train::RunRecipe recipe;
  recipe.make_model = [config, spec](Device device) { return make_model(config, spec, device); };
  recipe.make_optimizer = [config, ranks](Module& model) {
    return make_optimizer(config, model, ranks);
  };
  recipe.device = Device::parse(config.run.device);
  recipe.options.spec = spec;
  recipe.options.task = make_task(config, spec);
  recipe.options.seed = static_cast<uint64_t>(config.run.seed);
  recipe.options.label_smoothing = config.train.label_smoothing;
  recipe.options.checkpointed_blocks = checkpointed_blocks(config.train);
  recipe.options.compression.choice = make_choice(config.compression);
  return recipe;
}

train::RunRecipe run_recipe(const Config& config, const distributed::CommunicatorPtr& ranks) {
  train::RunRecipe recipe = run_recipe(config, nullptr, ranks);
  recipe.make_planner = [config] { return make_plan(config); };
  return recipe;
}

train::RunRecipe run_recipe(const Config& config, std::shared_ptr<Planner> planner,
                            const distributed::CommunicatorPtr& ranks) {
  train::RunRecipe recipe = run_recipe(config, batch_spec(config), ranks);
  const bool says = ranks == nullptr || ranks->rank() == 0;
  recipe.make_schedule = [config, says](int64_t steps_per_epoch, int64_t steps) {
    if (says) warn_of_unreached(config, steps_per_epoch, steps);
    return make_schedule(config, steps_per_epoch, steps);
  };
  recipe.open_train = [config] { return make_batches(config, Split::train); };
  recipe.open_test = [config](int64_t test_batch) {
    return make_batches(config, Split::test,
                        test_batch > 0 ? test_batch : config.data.test_batch());
  };
  recipe.open_validation = [config](int64_t) { return make_batches(config, Split::validation); };
  recipe.make_planner = [planner] { return planner; };
  recipe.planned = [config] { return planned_run(of_rank(config)); };
  recipe.options = trainer_options(config, nullptr);
  recipe.options.task = make_task(config);
  recipe.options.ranks.communicator = ranks;
  return recipe;
}

}  // namespace frugal::apps

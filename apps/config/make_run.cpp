#include "apps/config/make_run.h"

#include "apps/config/make_data.h"
#include "apps/config/make_model.h"
#include "apps/config/make_optimizer.h"
#include "apps/config/make_task.h"
#include "apps/config/train_options.h"

namespace frugal::apps {

train::RunRecipe run_recipe(const Config& config, const distributed::CommunicatorPtr& ranks) {
  return run_recipe(config, make_planner(share_of_rank(config)), ranks);
}

train::RunRecipe run_recipe(const Config& config, std::shared_ptr<Planner> planner,
                            const distributed::CommunicatorPtr& ranks) {
  train::RunRecipe recipe;
  recipe.make_model = [config](Device device) {
    return make_model(config, batch_spec(config), device);
  };
  recipe.make_optimizer = [config, ranks](Module& model) {
    return make_optimizer(config, model, ranks);
  };
  recipe.make_schedule = [config](int64_t steps_per_epoch, int64_t steps) {
    return make_schedule(config, steps_per_epoch, steps);
  };
  recipe.open_train = [config] { return make_batches(config, Split::train); };
  recipe.open_test = [config](int64_t test_batch) {
    return make_batches(config, Split::test,
                        test_batch > 0 ? test_batch : config.data.test_batch());
  };
  recipe.open_validation = [config](int64_t) { return make_batches(config, Split::validation); };
  recipe.make_planner = [planner] { return planner; };
  recipe.device = Device::parse(config.run.device);
  recipe.options = trainer_options(config, nullptr);
  recipe.options.task = make_task(config);
  recipe.options.ranks.communicator = ranks;
  return recipe;
}

}  // namespace frugal::apps

// From a configuration to a run: the only place that puts a run's parts together.
#pragma once
#include "apps/config/config.h"
#include "train/run/run.h"

namespace frugal::apps {

// A run of its own, from the weights that the configuration names: make_run(config).train().
// REQUIRES: `config` is resolved.
train::Run make_run(const Config& config);
// What make_run() makes. The weights must be there; on meta they are not read.
train::RunRecipe starting_recipe(const Config& config);

// A first plan; null without a memory budget. Errors: no plan within the budget.
std::shared_ptr<Planner> make_plan(const Config& config);

// The run of a resolved configuration, whose network has random weights. The network and the
// batches are made when they are asked for. `ranks`: the processes that train together; null: this
// one trains alone.
train::RunRecipe run_recipe(const Config& config, const distributed::CommunicatorPtr& ranks = {});
// Takes a plan that is there already; null: there is none.
train::RunRecipe run_recipe(const Config& config, std::shared_ptr<Planner> planner,
                            const distributed::CommunicatorPtr& ranks);

// Without data: for batches of `spec` that come from elsewhere. The configuration may be one that
// is not resolved, if it says what the network needs (model.num_classes and its like).
train::RunRecipe run_recipe(const Config& config, const BatchSpec& spec,
                            const distributed::CommunicatorPtr& ranks = {});

}  // namespace frugal::apps

// The planner of a program that has a network, an optimizer and batches, and asks for a memory
// budget (compress::budget()). `frugal` makes its planners of configurations.
#pragma once
#include <memory>

#include "train/planning/planner.h"
#include "train/trainer.h"

namespace frugal::train {

// What plans must know of a run, but its network and its optimizer. What batches look like is read
// off the first one, and off the first one of options.test; both sources then stand where they
// stood. REQUIRES: options.task. Errors: OptionError for a budget that is none; no batches.
PlannerOptions read_off(const TrainerOptions& options, Device device, data::BatchSource& batches);

// A first plan. The network and the optimizer are lent to steps on `meta`, now and when the plan
// changes; both must outlive the planner.
// REQUIRES: options.task; a memory budget.
// Errors: those of read_off(); OptionError for a budget without a plan, for one with several ranks,
// or if an evaluation with batches of options.test takes more than the budget; an optimizer without
// Optimizer::without_state().
std::shared_ptr<Planner> plan_of_own(const TrainerOptions& options, Module& model,
                                     const Optimizer& optimizer, data::BatchSource& batches);

}  // namespace frugal::train

// From a resolved configuration to the options of the training library: the only place that maps
// one to the other.
#pragma once
#include <memory>
#include <optional>

#include "apps/config/config.h"
#include "train/compression.h"
#include "train/noise/sensitivity.h"
#include "train/planning/planned_run.h"
#include "train/trainer.h"
#include "train/update_time.h"

namespace frugal::apps {

SensitivityOptions sensitivity_options(const Config& config);
// Empty: the configuration asks neither for tracking nor for the guard.
std::optional<TrackingOptions> tracking_options(const Config& config);
// What a step of this run is made of on `meta`.
MetaRun meta_run(const Config& config);
// Does a step on `meta` count what kernels of the CPU take for themselves? With device meta only
// where run.threads is given: without, what is counted is equal on all machines.
bool counts_kernels(const Config& config);
// The largest share of a rank: batches of config.data are those of the rank that has most of them.
Config share_of_rank(Config config);
// The run in its largest phase: with train.freeze_epochs, the one in which all is trained. A
// run that ends before that, or that has a memory budget, stays as it is.
Config largest_phase(Config config);
// `planner`: of the same configuration.
CompressionOptions compression_options(const Config& config, std::shared_ptr<Planner> planner);
// How many batches a step takes, where the configuration alone can tell.
int64_t batches_of_step(const Config& config);
// When steps update parameters, but for what a plan decides.
UpdateTime update_time(const Config& config);
// Without data, folder and callbacks.
TrainerOptions trainer_options(const Config& config, std::shared_ptr<Planner> planner);

}  // namespace frugal::apps

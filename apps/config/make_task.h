// From a configuration to the task of its run.
#pragma once
#include "apps/config/config.h"
#include "train/task.h"

namespace frugal::apps {

// REQUIRES: resolved.
train::TaskPtr make_task(const Config& config);
// Makes the task for batches that another source than the configuration's data gives.
train::TaskPtr make_task(const Config& config, BatchSpec spec);

}  // namespace frugal::apps

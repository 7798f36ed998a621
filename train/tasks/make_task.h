// The task of some data.
#pragma once
#include "train/task.h"

namespace frugal::train {

// By kind of batch, targets and metric. Errors: a metric that no task has.
TaskPtr make_task(const BatchSpec& spec);

}  // namespace frugal::train

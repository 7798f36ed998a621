// The task of some data.
#pragma once
#include "train/tasks/language_model.h"

namespace frugal::train {

// By kind of batch, targets and metric. logit_bytes: LanguageModel's part_bytes. Errors: a metric
// that no task has; weights of classes for data without.
TaskPtr make_task(const BatchSpec& spec, int64_t logit_bytes = LanguageModel::kLogitBytes,
                  const ClassOptions& options = {});

}  // namespace frugal::train

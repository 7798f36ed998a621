// A model's loss and accuracy on a dataset.
#pragma once
#include <functional>
#include <optional>

#include "data/batch_source.h"
#include "models/module.h"
#include "train/ranks/ranks.h"
#include "train/run/run_state.h"
#include "train/task.h"

namespace frugal::train {

// Makes one pass in evaluation mode over `batches`, which are put back to their beginning first.
// Gives nothing when `stop` returned true between two batches, on any rank. If there are several
// ranks, each takes its share of the batches (BatchSource::set_share()), and all get the measures
// of the whole. Metrics see all outputs in the order in which one process sees them, or add up what
// they counted.
// Errors: NotFinite for a loss; no target that counts.
std::optional<Evaluation> evaluate(const Task& task, Module& model, data::BatchSource& batches,
                                   const std::function<bool()>& stop = {},
                                   const Ranks& ranks = one_rank());

// What the best epoch is chosen by, on the validation set where there is one: the metric, or the
// accuracy where there is none. Higher is better: a metric that should fall, such as a perplexity,
// has its sign changed.
double score_of(const EpochResult& result, const Task& task);

}  // namespace frugal::train

// The metrics of train/metrics/metric_names.h that read outputs and targets alone.
#pragma once
#include <memory>

#include "train/task.h"

namespace frugal::train {

// A new measure for spec.metric and spec.target, of classes, labels or values: not map, map_50 and
// knn, which belong to their tasks. Null where spec.metric is empty. Details of miou and dice: the
// other one of the two and, of up to 64 classes, both for each that occurs.
// Errors: a metric that does not measure spec.target.
std::unique_ptr<Metric> make_metric(const BatchSpec& spec);

}  // namespace frugal::train

#include "train/tasks/make_task.h"

#include <algorithm>

#include "core/quoted.h"
#include "train/metric_names.h"
#include "train/tasks/classification.h"
#include "train/tasks/detection.h"
#include "train/tasks/node_classification.h"
#include "train/tasks/regression.h"
#include "train/tasks/segmentation.h"
#include "train/tasks/several_labels.h"

namespace frugal::train {
namespace {

std::shared_ptr<const SupervisedTask> of_samples(const BatchSpec& spec, int64_t logit_bytes,
                                                 const ClassOptions& options) {
  if (spec.has_several_labels()) return std::make_shared<SeveralLabels>(spec, options);
  if (spec.has_values()) return std::make_shared<Regression>(spec);
  if (spec.target_of_each_pixel)
    return std::make_shared<Segmentation>(
        spec, SegmentationOptions{.class_weights = options.class_weights});
  if (spec.target_of_each_token) return std::make_shared<LanguageModel>(spec, logit_bytes);
  return std::make_shared<Classification>(spec, options);
}

}  // namespace

TaskPtr make_task(const BatchSpec& spec, int64_t logit_bytes, const ClassOptions& options) {
  FRUGAL_CHECK(options.class_weights.empty() ||
                   !(spec.has_values() || spec.has_boxes() || spec.target_of_each_token),
               "[task] expected data of classes for weights of classes, got others");
  // The task of views is made with its network (train/tasks/self_supervised.h).
  const auto known = [&](const MetricName& metric) {
    return metric.name == spec.metric && metric.name != "knn";
  };
  FRUGAL_CHECK(
      spec.metric.empty() || std::any_of(kMetrics.begin(), kMetrics.end(), known),
      "[task] expected one of the metrics f1, map, matthews, miou, micro_f1, r2 and perplexity, "
      "or none, got {}",
      in_quotes(spec.metric));
  if (spec.kind == BatchSpec::Kind::graph)
    return std::make_shared<NodeClassification>(spec, of_samples(spec, logit_bytes, options));
  if (spec.has_boxes()) return std::make_shared<Detection>(spec);
  return of_samples(spec, logit_bytes, options);
}

}  // namespace frugal::train

#include "train/tasks/make_task.h"

#include "core/words/quoted.h"
#include "train/metrics/metric_names.h"
#include "train/tasks/classification.h"
#include "train/tasks/detection.h"
#include "train/tasks/language_model.h"
#include "train/tasks/node_classification.h"
#include "train/tasks/regression.h"
#include "train/tasks/segmentation.h"
#include "train/tasks/self_supervised.h"
#include "train/tasks/several_labels.h"

namespace frugal::train {
namespace {

using Target = BatchSpec::Target;

void check(const BatchSpec& spec, const TaskOptions& options) {
  const Target target = spec.target;
  const bool has_classes = target == Target::class_of_sample || target == Target::labels ||
                           target == Target::class_of_pixel;
  FRUGAL_CHECK(options.class_weights.empty() || has_classes,
               "[task] expected data of classes for weights of classes, got others");
  if (spec.metric.empty()) return;
  const MetricName* const metric = find_metric(spec.metric);
  FRUGAL_CHECK(metric != nullptr && metric->measures(target),
               "[task] expected one of the metrics {}, or none, for targets of the kind {}, got {}",
               names_of_metrics(target), target_name(target), in_quotes(spec.metric));
}

std::shared_ptr<const SupervisedTask> of_outputs(const BatchSpec& spec,
                                                 const TaskOptions& options) {
  switch (spec.target) {
    case Target::labels:
      return std::make_shared<SeveralLabels>(spec, ClassOptions{options.class_weights});
    case Target::values:
      return std::make_shared<Regression>(spec);
    case Target::class_of_pixel:
      return std::make_shared<Segmentation>(
          spec, SegmentationOptions{.loss = options.pixel_loss,
                                    .focal_gamma = options.focal_gamma,
                                    .class_weights = options.class_weights});
    case Target::class_of_token:
      return std::make_shared<LanguageModel>(spec, options.logit_bytes);
    default:
      return std::make_shared<Classification>(spec, ClassOptions{options.class_weights});
  }
}

}  // namespace

std::vector<by_name::Option<TaskOptions>> TaskOptions::list() {
  namespace range = by_name::range;
  return {{{"loss", range::choice("cross_entropy, focal, dice, cross_entropy_dice"),
            "A class for each pixel: what is trained with; cross_entropy_dice is the sum of both. "
            "Evaluations report the cross-entropy."},
           &TaskOptions::pixel_loss},
          {{"focal_gamma", range::number(0, 16), "loss=focal: the exponent of 1 - p."},
           &TaskOptions::focal_gamma},
          {{"class_weights", range::list(range::number(kLeastClassWeight, 1e6), 0, 1 << 16),
            "Weights of the classes in the loss that is trained with: the cross-entropy is the "
            "weighted sum over the sum of the weights. A class for each pixel: also in the focal "
            "loss. Several labels: of each label's loss, in their mean. Evaluations report the "
            "plain loss. []: all are 1."},
           &TaskOptions::class_weights}};
}

TaskPtr make_task(BatchSpec spec, const TaskOptions& options) {
  if (spec.metric.empty() && !has_accuracy(spec.target)) spec.metric = usual_metric(spec.target);
  check(spec, options);
  if (spec.has_boxes()) return std::make_shared<Detection>(spec);
  if (spec.has_views())
    return std::make_shared<SelfSupervision>(spec, options.knn, options.samples);
  if (spec.kind == BatchSpec::Kind::graph)
    return std::make_shared<NodeClassification>(spec, of_outputs(spec, options));
  return of_outputs(spec, options);
}

}  // namespace frugal::train

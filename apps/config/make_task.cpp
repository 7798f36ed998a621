#include "apps/config/make_task.h"

#include "apps/config/make_data.h"
#include "apps/config/set_up_device.h"
#include "apps/config/value_named.h"
#include "train/tasks/language_model.h"
#include "train/tasks/make_task.h"
#include "train/tasks/segmentation.h"

namespace frugal::apps {
namespace {

void check_class_weights(const Config& config, const BatchSpec& spec) {
  const std::vector<double>& weights = config.train.class_weights;
  if (weights.empty()) return;
  if (spec.has_values())
    throw ConfigError("train.class_weights",
                      fmt::format("expected [], since the targets of {} are numbers and no classes",
                                  config.data.name));
  if (static_cast<int64_t>(weights.size()) != spec.classes)
    throw ConfigError("train.class_weights",
                      fmt::format("expected a weight for each of {} classes, got {}", spec.classes,
                                  weights.size()));
}

train::SegmentationOptions::Loss pixel_loss(const TrainConfig& config) {
  using Loss = train::SegmentationOptions::Loss;
  if (config.label_smoothing > 0 && config.loss != "cross_entropy")
    throw ConfigError("train.label_smoothing",
                      "expected 0 with a train.loss other than cross_entropy");
  return value_named<Loss>(config.loss, {{"cross_entropy", Loss::cross_entropy},
                                         {"focal", Loss::focal},
                                         {"dice", Loss::dice},
                                         {"cross_entropy_dice", Loss::cross_entropy_dice}});
}

}  // namespace

train::TaskPtr make_task(const Config& config) {
  BatchSpec spec = batch_spec(config);
  if (spec.mixes) spec.classes = *config.model.num_classes;  // targets have a share of each class
  return make_task(config, std::move(spec));
}

train::TaskPtr make_task(const Config& config, BatchSpec spec) {
  check_class_weights(config, spec);
  train::TaskOptions options;
  options.class_weights = config.train.class_weights;
  options.logit_bytes = train::part_bytes_on_gpu(gpu_memory(config.run));
  if (spec.target_of_each_pixel()) options.pixel_loss = pixel_loss(config.train);
  options.focal_gamma = config.train.focal_gamma;
  options.knn.k = config.model.neighbours;
  if (spec.has_views()) options.samples = [config] { return training_samples(config); };
  return train::make_task(std::move(spec), options);
}

}  // namespace frugal::apps

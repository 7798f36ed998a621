#include "apps/config/make_task.h"

#include "apps/config/data/make_data.h"
#include "apps/config/keys/value_named.h"
#include "apps/config/set_up_device.h"
#include "train/tasks/language_model.h"
#include "train/tasks/make_task.h"
#include "train/tasks/segmentation.h"

namespace frugal::apps {
namespace {

void check_class_weights(const Config& config, const BatchSpec& spec) {
  const std::vector<double>& weights = config.train.of_task.class_weights;
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

void check_pixel_loss(const TrainConfig& config) {
  using Loss = train::PixelLoss;
  if (config.label_smoothing > 0 && config.of_task.pixel_loss != Loss::cross_entropy)
    throw ConfigError("train.label_smoothing",
                      "expected 0 with a train.loss other than cross_entropy");
}

}  // namespace

train::TaskPtr make_task(const Config& config) {
  BatchSpec spec = batch_spec(config);
  if (spec.mixes) spec.classes = *config.model.num_classes;  // targets have a share of each class
  return make_task(config, std::move(spec));
}

train::TaskPtr make_task(const Config& config, BatchSpec spec) {
  check_class_weights(config, spec);
  if (spec.target_of_each_pixel()) check_pixel_loss(config.train);
  train::TaskOptions options = config.train.of_task;
  options.logit_bytes = train::part_bytes_on_gpu(gpu_memory(config.run));
  if (spec.has_views()) options.samples = [config] { return training_samples(config); };
  return train::make_task(std::move(spec), options);
}

}  // namespace frugal::apps

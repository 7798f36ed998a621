#include "apps/config/make_task.h"

#include "apps/config/make_data.h"
#include "apps/config/make_model.h"
#include "apps/config/set_up_device.h"
#include "train/tasks/make_task.h"
#include "train/tasks/segmentation.h"
#include "train/tasks/self_supervised.h"

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

train::TaskPtr segmentation(const Config& config, BatchSpec spec) {
  using Loss = train::SegmentationOptions::Loss;
  const TrainConfig& c = config.train;
  if (c.label_smoothing > 0 && c.loss != "cross_entropy")
    throw ConfigError("train.label_smoothing",
                      "expected 0 with a train.loss other than cross_entropy");
  const Loss loss = c.loss == "focal"                ? Loss::focal
                    : c.loss == "dice"               ? Loss::dice
                    : c.loss == "cross_entropy_dice" ? Loss::cross_entropy_dice
                                                     : Loss::cross_entropy;
  return std::make_shared<train::Segmentation>(
      std::move(spec), train::SegmentationOptions{loss, c.focal_gamma, c.class_weights});
}

}  // namespace

train::TaskPtr make_task(const Config& config) {
  BatchSpec spec = batch_spec(config);
  if (spec.mixes) spec.classes = *config.model.num_classes;  // targets have a share of each class
  return make_task(config, std::move(spec));
}

train::TaskPtr make_task(const Config& config, BatchSpec spec) {
  check_class_weights(config, spec);
  if (is_self_supervised(config.model))
    return std::make_shared<train::SelfSupervision>(std::move(spec),
                                                    train::KnnOptions{.k = config.model.neighbours},
                                                    [config] { return training_samples(config); });
  if (spec.target_of_each_pixel) return segmentation(config, std::move(spec));
  return train::make_task(spec, train::part_bytes_on_gpu(gpu_memory(config.run)),
                          {.class_weights = config.train.class_weights});
}

}  // namespace frugal::apps

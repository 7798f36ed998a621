#include "apps/config/make_task.h"

#include "apps/config/make_data.h"
#include "apps/config/make_model.h"
#include "train/tasks/make_task.h"
#include "train/tasks/self_supervised.h"

namespace frugal::apps {

train::TaskPtr make_task(const Config& config) {
  BatchSpec spec = batch_spec(config);
  if (spec.mixes) spec.classes = *config.model.num_classes;  // of targets
  return make_task(config, std::move(spec));
}

train::TaskPtr make_task(const Config& config, BatchSpec spec) {
  if (is_self_supervised(config.model))
    return std::make_shared<train::SelfSupervision>(std::move(spec),
                                                    train::KnnOptions{.k = config.model.neighbours},
                                                    [config] { return training_samples(config); });
  return train::make_task(spec);
}

}  // namespace frugal::apps

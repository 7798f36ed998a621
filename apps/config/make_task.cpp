#include "apps/config/make_task.h"

#include "apps/config/make_data.h"
#include "train/tasks/make_task.h"

namespace frugal::apps {

train::TaskPtr make_task(const Config& config) {
  BatchSpec spec = batch_spec(config);
  if (spec.mixes) spec.classes = *config.model.num_classes;  // of targets
  return make_task(config, std::move(spec));
}

train::TaskPtr make_task(const Config&, BatchSpec spec) { return train::make_task(spec); }

}  // namespace frugal::apps

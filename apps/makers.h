// From names and configurations to objects: the only name-to-maker tables.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/config.h"
#include "data/loader.h"
#include "models/module.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace frugal::apps {

std::vector<std::string> model_names();
std::vector<std::string> dataset_names();
std::vector<std::string> level_names();

// What the configured data look like, known without reading them.
struct ImageSpec {
  Shape shape;  // [H, W, C]
  int64_t classes = 0;
};
ImageSpec image_spec(const DataConfig& config);

// Fills what is null: num_classes, in_channels and the folder of the data.
// Errors (ConfigError): values that do not fit the data.
void resolve(Config& config);

// REQUIRES (both): resolved. `image` [H, W, C] matters to the mlp only.
std::shared_ptr<Module> make_model(const Config& config, const Shape& image, Device device);
DatasetPtr make_dataset(const Config& config, bool train);

data::LoaderOptions loader_options(const Config& config, bool train);
std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config, Module& model);
optim::SchedulePtr make_schedule(const Config& config, int64_t steps_per_epoch, int64_t steps);

// Applies threads and the memory limit, and gives the device.
Device set_up_device(const RunConfig& config);

}  // namespace frugal::apps

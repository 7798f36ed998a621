// From a configuration to what trains it, beside the network and the data (make_model.h,
// make_data.h).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/config/make_data.h"
#include "apps/config/make_model.h"
#include "models/module.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace frugal::apps {

std::vector<std::string> optimizer_names();
std::vector<std::string> schedule_names();

// Fills what is null: num_classes, in_channels and the folder of the data.
// Errors (ConfigError): values that do not fit the data.
void resolve(Config& config);
// Of this, what concerns rounding: "auto" becomes what it means on that device.
// Errors (ConfigError): dithered with rebuilt signs.
void resolve_rounding(CompressionConfig& config, const std::string& device);

std::unique_ptr<Optimizer> make_optimizer(const Config& config, Module& model);
optim::SchedulePtr make_schedule(const Config& config, int64_t steps_per_epoch, int64_t steps);

// Of a network's blocks, the first ones that are recomputed (models/module.h).
int64_t checkpointed_blocks(const TrainConfig& config);

// Applies `threads` alone: for what computes nothing on the device.
void set_up_threads(const RunConfig& config);
// Applies threads and the memory limit, and gives the device.
Device set_up_device(const RunConfig& config);
// The same for what computes, which `doing` names ("trained"). Errors (ConfigError): the device
// meta, with the commands that can use it.
Device set_up_computing_device(const RunConfig& config, const char* doing);

}  // namespace frugal::apps

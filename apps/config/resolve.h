// Fills what a configuration leaves open, and checks what only all keys together can tell.
#pragma once
#include <string>

#include "apps/config/config.h"

namespace frugal::apps {

// Fills what is null: num_classes, in_channels and the folder of the data.
// Errors (ConfigError): values that do not fit the data.
void resolve(Config& config);
// resolve(). Where the data are not there or cannot be read, a warning says so, and what follows
// from them stays null.
void resolve_if_data_are_there(Config& config);
// Of this, what concerns rounding: "auto" becomes what it means on that device.
void resolve_rounding(CompressionConfig& config, const std::string& device);

// Of a network's blocks, the first ones that are recomputed (models/module.h).
int64_t checkpointed_blocks(const TrainConfig& config);

}  // namespace frugal::apps

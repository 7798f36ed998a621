// Fills what a configuration leaves open, and checks what only all keys together can tell.
#pragma once
#include <string>

#include "apps/config/config.h"

namespace frugal::apps {

// Fills what is open. The data decide their folder, num_classes and in_channels. Other keys decide
// the policy (a memory_budget: policy budget). The device decides the rounding and slice_bytes. The
// function also reads compression.advanced.profile.
// Errors (ConfigError): values that do not fit the data; keys that contradict each other, such as
// what ranks cannot do together.
void resolve(Config& config);
// Does what resolve() does. Where the data are not there or cannot be read, a warning says so, and
// what follows from them stays null.
void resolve_if_data_are_there(Config& config);
// The part of resolve() that concerns rounding: "auto" becomes what it means on that device.
void resolve_rounding(CompressionConfig& config, const std::string& device);

// How many of a network's blocks are recomputed: the first ones (models/module.h).
int64_t checkpointed_blocks(const TrainConfig& config);

}  // namespace frugal::apps

// The weights that a new run begins with: model.weights, and model.adapter over them.
#pragma once
#include <string>

#include "apps/config/config.h"
#include "models/module.h"

namespace frugal::apps {

// Plans do not read weights, so a folder with a config.json alone will do.
// Errors (ConfigError at model.weights): neither a file nor a folder is there.
void check_starting_weights(const Config& config);

// Fills a network that was just made. Returns what was read, in a line for each of the two; empty:
// the configuration names none. Errors: those of open_base(), load_base() and load_adapter().
std::string load_starting_weights(Module& network, const Config& config);

}  // namespace frugal::apps

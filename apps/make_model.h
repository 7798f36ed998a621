// From a configuration to its network: the only table of models' names.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/config.h"
#include "apps/make_data.h"
#include "models/module.h"

namespace frugal::apps {

std::vector<std::string> model_names();

// REQUIRES: a resolved configuration. Errors (ConfigError): a network for other data than `spec`'s.
std::shared_ptr<Module> make_model(const Config& config, const BatchSpec& spec, Device device);

}  // namespace frugal::apps

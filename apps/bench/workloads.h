// The networks and batches of docs/measurements.md.
#pragma once
#include <string>

#include "apps/json.h"

namespace frugal::apps {

// A configuration with random data: r20, r18, r50, bert or gcn.  Errors (ConfigError): another
// name.
Json workload(const std::string& name);

}  // namespace frugal::apps

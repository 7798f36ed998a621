// What is measured: the networks and batches of docs/measurements.md, and the steps.
#pragma once
#include <cstdint>
#include <string>

#include "apps/json.h"
#include "train/step.h"

namespace frugal::apps {

// A configuration with random data: r20, r18, r50, bert, lora or gcn.
// Errors (ConfigError): another name.
Json workload(const std::string& name);

using train::kFirstMeasuredStep;
// The rate of updates in measured steps. Its value does not matter: only their time does.
constexpr double kMeasuredRate = 1e-3;

}  // namespace frugal::apps

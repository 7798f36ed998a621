// What is measured: the networks and batches of docs/measurements.md, and the steps.
#pragma once
#include <cstdint>
#include <string>

#include "apps/json.h"

namespace frugal::apps {

// A configuration with random data: r20, r18, r50, bert or gcn.  Errors (ConfigError): another
// name.
Json workload(const std::string& name);

// Measured steps have numbers from here on, because policies look at gradients more often in the
// first steps of a run.
constexpr uint64_t kFirstMeasuredStep = 1'000'001;
// The rate of updates in measured steps. Its value does not matter: only their time does.
constexpr double kMeasuredRate = 1e-3;

}  // namespace frugal::apps

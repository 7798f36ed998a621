// A profile as a trace for ui.perfetto.dev.
#pragma once
#include <string>

#include "train/run/profile.h"

namespace frugal::apps {

// Chrome's trace format: a complete event for each span, and a counter of the live bytes of each
// category.
std::string trace_json(const train::Profile& profile);

}  // namespace frugal::apps

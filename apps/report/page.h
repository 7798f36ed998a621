// The report of a run, or of several beside each other, as one HTML page that needs nothing else.
// It is made of the files of runs alone.
#pragma once
#include <string>
#include <vector>

#include "apps/report/run_data.h"

namespace frugal::apps {

// Errors: lines or a summary that lack what their type has.
std::string report_page(const ReportRun& run);
// The first run is what the others are compared with. REQUIRES: at least two.
std::string overlay_page(const std::vector<ReportRun>& runs);

}  // namespace frugal::apps

// What the files of a run say, for its report.
#pragma once
#include <string>
#include <vector>

#include "apps/config/config.h"

namespace frugal::apps {

inline constexpr const char* kReportFile = "report.html";
inline constexpr const char* kTensorTimesFile = "tensor_times.json";

// The lines of metrics.jsonl in their order. The last line of a run at work may not be whole; it is
// left out. Errors: no such file; a line that is not JSON. `op` begins the message.
std::vector<Json> read_metrics(const char* op, const std::string& folder);

// Times of recorded steps, by the step's number. Empty: there are none, or the file is damaged, and
// a warning says so.
Json read_tensor_times(const std::string& folder);

// running: a process trains in the folder. cut: none does, and the run has not come to its end.
enum class RunStatus { finished, running, cut };

struct ReportRun {
  std::string folder, name;  // name: the last part of the path
  RunStatus status = RunStatus::cut;
  Config config;
  Json document;  // config.json
  std::vector<Json> lines;
  Json summary;       // null before the run has ended
  Json tensor_times;  // see read_tensor_times()
};

// Errors: a folder without config.json or metrics.jsonl; files that are not JSON.
ReportRun read_report_run(const std::string& folder);
// Reads the folder for the process that trains in it, which knows the status.
ReportRun read_report_run(const std::string& folder, RunStatus status);

}  // namespace frugal::apps

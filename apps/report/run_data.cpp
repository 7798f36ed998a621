#include "apps/report/run_data.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>

#include "apps/config/keys/config_error.h"
#include "core/log.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/json_strict.h"

namespace frugal::apps {
namespace {

// A process that trains holds a lock on the folder of checkpoints (train/run/run_folder.h).
bool is_at_work(const std::string& folder) {
  const int file = open((folder + "/checkpoint").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return false;
  const bool taken = flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(file);
  return taken;
}

std::string name_of(const std::string& folder) {
  std::string path = std::filesystem::absolute(folder).lexically_normal().string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return std::filesystem::path(path).filename().string();
}

}  // namespace

std::vector<Json> read_metrics(const char* op, const std::string& folder) {
  const std::string path = folder + "/metrics.jsonl";
  if (!data::is_file(path))
    throw ConfigError(
        "", fmt::format("[{}] expected the folder of a run, which holds metrics.jsonl; {} has none",
                        op, in_quotes(folder)));
  const std::vector<uint8_t> bytes = data::read_file(op, path);
  const std::string text(bytes.begin(), bytes.end());
  std::vector<Json> lines;
  int64_t number = 0;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    ++number;
    try {
      lines.push_back(data::parse_json<Json>(std::string_view(text).substr(begin, end - begin)));
    } catch (const data::JsonError& e) {
      throw Error(fmt::format("[{}] {}, line {}: {}", op, in_quotes(path), number, e.what()));
    }
  }
  return lines;
}

Json read_tensor_times(const std::string& folder) {
  const std::string path = folder + "/" + kTensorTimesFile;
  if (!data::is_file(path)) return Json::object();
  try {
    if (Json times = read_json(path); times.is_object()) return times;
  } catch (const Error&) {
  }
  // A run does not wait until the file lies on the disk, so a power cut may leave it empty.
  log().warn("{} holds no times, and is left out", in_quotes(path));
  return Json::object();
}

ReportRun read_report_run(const std::string& folder) {
  // A run that goes on with --extend has the summary of its first part.
  const RunStatus status = is_at_work(folder)                        ? RunStatus::running
                           : data::is_file(folder + "/summary.json") ? RunStatus::finished
                                                                     : RunStatus::cut;
  return read_report_run(folder, status);
}

ReportRun read_report_run(const std::string& folder, RunStatus status) {
  ReportRun run;
  run.folder = folder;
  run.name = name_of(folder);
  run.status = status;
  run.lines = read_metrics("report", folder);
  FRUGAL_CHECK(data::is_file(folder + "/config.json"),
               "[report] expected the folder of a run, which holds config.json; {} has none",
               in_quotes(folder));
  run.document = read_json(folder + "/config.json");
  run.config = parse_config(run.document);
  if (data::is_file(folder + "/summary.json")) run.summary = read_json(folder + "/summary.json");
  run.tensor_times = read_tensor_times(folder);
  return run;
}

}  // namespace frugal::apps

#include "apps/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "apps/version.h"
#include "data/atomic_file.h"
#include "data/safetensors.h"
#include "models/state.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "model/";
constexpr const char* kOptimizer = "optimizer/";
const std::set<std::string> kNames = {"config.json",  "config.json.tmp",  "metrics.jsonl",
                                      "summary.json", "summary.json.tmp", "checkpoint"};

[[noreturn]] void fail(const std::string& doing, const std::string& path) {
  throw Error(fmt::format("[output] cannot {} {}: {}", doing, path, std::strerror(errno)));
}

// Why the folder cannot serve; empty: it can.
std::string objection(const std::string& path, bool resume) {
  if (!fs::exists(path)) return "";
  if (!fs::is_directory(path)) return "is not a folder";
  for (const auto& entry : fs::directory_iterator(path)) {
    if (!resume) return "is not empty; --resume continues the run in it, another --out starts anew";
    if (!kNames.contains(entry.path().filename().string()))
      return fmt::format("holds {}, which is no file of a run; nothing was changed",
                         entry.path().filename().string());
  }
  return "";
}

data::Metadata metadata(const RunState& state, bool averaged) {
  return {{"format", "pt"},
          {"step", std::to_string(state.step)},
          {"weights", averaged ? "averages of optim.ema" : "as trained"},
          {"frugal", kVersion}};
}

}  // namespace

RunFolder::RunFolder(const std::string& path, bool resume) : path_(path) {
  try {
    const std::string why = objection(path_, resume);
    if (!why.empty()) throw ConfigError("", fmt::format("--out {} {}", path_, why));
    fs::create_directories(path_ + "/checkpoint");
  } catch (const fs::filesystem_error& e) {
    throw Error(fmt::format("[output] cannot use the folder {}: {}", path_, e.code().message()));
  }
  lock_ = open((path_ + "/checkpoint").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) fail("open", path_ + "/checkpoint");
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const bool taken = errno == EWOULDBLOCK;  // a file system without locks is no reason to stop
    if (taken) {
      close(lock_);
      throw Error(fmt::format("[output] another process is training in {}", path_));
    }
  }
}

RunFolder::~RunFolder() {
  if (metrics_ >= 0) close(metrics_);
  if (lock_ >= 0) close(lock_);
}

bool RunFolder::has_checkpoint() const {
  return fs::exists(path_ + "/checkpoint/state.safetensors");
}

RunState RunFolder::load(const Config& config, Module& model, Optimizer& optimizer) {
  const std::string path = path_ + "/checkpoint/state.safetensors";
  const auto file = data::SafetensorsFile::open(path);
  RunState state;
  try {
    const Config before = parse_config(Json::parse(file.metadata().at("config")));
    const std::string difference = first_difference(before, config);
    if (!difference.empty())
      throw ConfigError(difference,
                        fmt::format("the run in {} was made with another value; results would "
                                    "belong to neither configuration",
                                    path_));
    state = run_state_from(Json::parse(file.metadata().at("run")));
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(fmt::format("[checkpoint] {} is no state of a run: {}", path, e.what()));
  }
  models::NamedTensors weights, slots;
  for (const std::string& name : file.names()) {
    if (name.starts_with(kModel))
      weights.emplace_back(name.substr(std::strlen(kModel)), file.read(name));
    else if (name.starts_with(kOptimizer))
      slots.emplace_back(name.substr(std::strlen(kOptimizer)), file.read(name));
  }
  models::load_state_dict(model, weights);
  optimizer.load_state(slots);
  save_last(state, model);
  return state;
}

void RunFolder::save(const Config& config, RunState& state, Module& model,
                     const Optimizer& optimizer) {
  sync_metrics();
  state.metrics_bytes = metrics_bytes_;
  CategoryScope scope(Category::workspace);
  models::NamedTensors tensors;
  for (auto& [name, tensor] : models::state_views(model))
    tensors.emplace_back(kModel + name, tensor);
  for (const auto& [name, tensor] : optimizer.state())
    tensors.emplace_back(kOptimizer + name, tensor);
  data::write_safetensors(
      path_ + "/checkpoint/state.safetensors", tensors,
      {{"config", to_json(config).dump()}, {"frugal", kVersion}, {"run", to_json(state).dump()}});
  save_last(state, model);
}

void RunFolder::save_last(const RunState& state, Module& model) {
  CategoryScope scope(Category::workspace);
  data::write_safetensors(path_ + "/checkpoint/last.safetensors", models::state_views(model),
                          metadata(state, false));
}

void RunFolder::save_average(const RunState& state, Module& model) {
  CategoryScope scope(Category::workspace);
  data::write_safetensors(path_ + "/checkpoint/last_average.safetensors",
                          models::state_views(model), metadata(state, true));
}

void RunFolder::save_best(const RunState& state, Module& model, bool averaged) {
  CategoryScope scope(Category::workspace);
  data::write_safetensors(path_ + "/checkpoint/best.safetensors", models::state_views(model),
                          metadata(state, averaged));
}

void RunFolder::start_metrics(int64_t bytes) {
  const std::string path = path_ + "/metrics.jsonl";
  metrics_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (metrics_ < 0) fail("open", path);
  const off_t size = lseek(metrics_, 0, SEEK_END);
  FRUGAL_CHECK(size >= bytes, "[checkpoint] expected at least {} bytes in {}, got {}", bytes, path,
               static_cast<int64_t>(size));
  if (ftruncate(metrics_, bytes) != 0 || lseek(metrics_, bytes, SEEK_SET) < 0)
    fail("truncate", path);
  metrics_bytes_ = bytes;
}

void RunFolder::append_metrics(const Json& line) {
  const std::string text = line.dump() + "\n";
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(metrics_, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail("write", path_ + "/metrics.jsonl");
    done += static_cast<size_t>(wrote);
  }
  metrics_bytes_ += static_cast<int64_t>(text.size());
}

void RunFolder::sync_metrics() {
  if (fsync(metrics_) != 0 && errno != EINVAL) fail("sync", path_ + "/metrics.jsonl");
}

void RunFolder::write(const std::string& name, const Json& document) {
  data::atomic_write(path_ + "/" + name, document.dump(2) + "\n");
}

}  // namespace frugal::apps

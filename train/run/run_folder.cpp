#include "train/run/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/words/quoted.h"
#include "data/formats/atomic_file.h"
#include "data/formats/file_bytes.h"
#include "data/formats/json_strict.h"
#include "data/formats/safetensors.h"
#include "models/state.h"
#include "train/option_error.h"
#include "train/run/checkpoint.h"

namespace frugal::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVersion = FRUGAL_VERSION;
constexpr const char* kModel = "model/";
constexpr const char* kOptimizer = "optimizer/";
constexpr const char* kExchange = "exchange/";
constexpr const char* kLearned = "learned/";  // compress::Learned::arrays
constexpr const char* kState = "state.safetensors";
constexpr const char* kBest = "best.safetensors";
constexpr const char* kSeconds = "seconds";
constexpr const char* kMetrics = "metrics.jsonl";
const std::set<std::string> kNames = {
    "config.json", "metrics.jsonl", "metrics.csv", "tensor_times.json", "summary.json",
    "report.html", "checkpoint", "input.json", "classes.json", "columns.json", "vocab.txt",
    "vocab.json", "characters.txt", "merges.txt", "tensorboard", "data.json", "base.json",
    // what a model's folder has for its tokenizer
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja",
    "added_tokens.json", "special_tokens_map.json"};

// A run with a file of another name could neither be resumed nor replaced.
void check_name(const std::string& name) {
  FRUGAL_CHECK(kNames.contains(name.substr(0, name.find('/'))),
               "[output] expected the name of a file of runs (train/run/run_folder.h), got {}",
               in_quotes(name));
}

// Is this the rest of a file that a process was writing when it was killed? Before version 2 of the
// state, such a file was NAME.tmp.
bool is_leftover(const std::string& name, const std::string& file) {
  return name == file + ".tmp" || data::is_temporary_of(name, file);
}
bool is_leftover_of_run(const std::string& name) {
  return std::any_of(kNames.begin(), kNames.end(),
                     [&](const std::string& file) { return is_leftover(name, file); });
}
constexpr const char* kKept = "best_step_";
constexpr const char* kWeights = ".safetensors";
bool is_leftover_of_checkpoint(const std::string& name) {
  if (name.starts_with(kKept) && !name.ends_with(kWeights)) return true;
  return is_leftover(name, kState) || is_leftover(name, "last.safetensors") ||
         is_leftover(name, "last_average.safetensors") || is_leftover(name, "best.safetensors") ||
         is_leftover(name, kSeconds);
}

[[noreturn]] void fail(const std::string& doing, const std::string& path) {
  throw Error(fmt::format("[output] cannot {} {}: {}", doing, path, std::strerror(errno)));
}

bool is_of_checkpoint(const std::string& name) {
  static const std::set<std::string> kFiles = {
      kState, "last.safetensors", "last_average.safetensors", "best.safetensors", kSeconds};
  return kFiles.contains(name) || name.starts_with(kKept) || is_leftover_of_checkpoint(name);
}

// Returns the reason why the folder is none that `overwrite` may replace. Empty: it is.
std::string objection_to_replacing(const std::string& path) {
  if (!fs::exists(path)) return "";
  if (!fs::is_directory(path)) return "is not a folder";
  const auto other = [](const fs::path& found) {
    return fmt::format(
        "holds {}, which is no file of a run; run_folder.overwrite replaces runs alone, and "
        "nothing was changed",
        in_quotes(found.string()));
  };
  bool is_run = fs::is_empty(path);
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (!kNames.contains(name) && !is_leftover_of_run(name)) return other(name);
    is_run = is_run || name == "checkpoint" || name == "config.json";
    if (entry.is_symlink() && name == "checkpoint") return other(name);  // it holds the lock
    if (entry.is_symlink() || !entry.is_directory()) continue;
    if (name != "checkpoint" && name != "tensorboard") return other(name);
    for (const auto& inner : fs::directory_iterator(entry.path())) {
      const std::string file = inner.path().filename().string();
      const bool own = name == "checkpoint" ? is_of_checkpoint(file)
                                            : file.find("tfevents") != std::string::npos;
      if (!own || inner.is_directory()) return other(fs::path(name) / file);
    }
  }
  return is_run ? "" : "is no folder of a run: it has no config.json; nothing was changed";
}

// What steps had taken when the run last wrote it; 0: not known. It matters to reports alone, so a
// damaged file is no error. The file comes before the state: after a kill between the two it counts
// steps that are taken again, and the seconds of a run never become fewer.
double seconds_in(const std::string& path) {
  std::ifstream file(path);
  int64_t step = -1;
  double seconds = 0;
  return file >> step >> seconds && seconds >= 0 ? seconds : 0;
}

// Returns the reason why the run cannot use the folder. Empty: it can.
std::string objection(const std::string& path, bool resume) {
  if (!fs::exists(path)) return "";
  if (!fs::is_directory(path)) return "is not a folder";
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_symlink() && !is_leftover_of_run(name))
      return fmt::format(
          "holds {}, which is a link, and nothing is written through links inside the folder of a "
          "run; put what it names in its place, or start anew with another run_folder.path; "
          "nothing "
          "was changed",
          in_quotes(name));
    // A process that is killed early leaves an empty folder of checkpoints and nothing else.
    const bool bare = name == "checkpoint" && entry.is_directory() && fs::is_empty(entry.path());
    if (!resume && !bare)
      return "is not empty; run_folder.resume continues the run in it, run_folder.overwrite "
             "replaces it, another run_folder.path starts anew";
    if (!kNames.contains(name) && !is_leftover_of_run(name))
      return fmt::format("holds {}, which is no file of a run; nothing was changed",
                         printable(name));
  }
  if (fs::exists(path + "/checkpoint/" + kState)) return "";
  // A run writes both files after its state.
  for (const char* name : {"checkpoint/last.safetensors", "summary.json"})
    if (fs::exists(path + "/" + name))
      return fmt::format(
          "holds {} and no checkpoint/{}, without which a run cannot go on; put that file back, or "
          "start anew with another run_folder.path; nothing was changed",
          name, kState);
  return "";
}

data::Metadata metadata(const RunState& state, bool averaged) {
  return {{"format", "pt"},
          {"step", std::to_string(state.step)},
          {"weights", averaged ? "averages of optim.ema" : "as trained"},
          {"frugal", kVersion}};
}

}  // namespace

bool is_needed_by_run(const std::string& path) {
  std::error_code none;
  const fs::path place = fs::absolute(path, none);
  const std::string name = place.filename().string();
  fs::path folder = place.parent_path();
  const bool of_checkpoint = folder.filename() == "checkpoint";
  if (of_checkpoint) folder = folder.parent_path();
  if (!fs::exists(place, none) || !fs::exists(folder / "config.json", none) ||
      !fs::is_directory(folder / "checkpoint", none))
    return false;
  return of_checkpoint ? is_of_checkpoint(name) : kNames.contains(name) && name != "report.html";
}

RunFolder::RunFolder(const std::string& path, bool resume, bool overwrite)
    : path_(path), replaces_(overwrite) {
  try {
    const std::string why = overwrite ? objection_to_replacing(path_) : objection(path_, resume);
    if (!why.empty()) throw OptionError("run_folder.path", path_ + " " + why);
    make_folders();
  } catch (const fs::filesystem_error& e) {
    throw Error(fmt::format("[output] cannot use the folder {}: {}", path_, e.code().message()));
  }
  lock_ = open((path_ + "/checkpoint").c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (lock_ < 0) fail("open", path_ + "/checkpoint");
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const bool taken = errno == EWOULDBLOCK;  // a file system without locks is no reason to stop
    if (taken) {
      close(lock_);
      made_.clear();
      throw Error(fmt::format("[output] another process is training in {}", path_));
    }
  }
  if (!replaces_) remove_leftovers();
}

RunFolder::~RunFolder() {
  for (const auto& [name, appended] : appended_) close(appended.file);
  std::error_code ignored;  // somebody may have put something into a folder
  if (!kept_ && !has_checkpoint())
    for (auto last = made_.rbegin(); last != made_.rend(); ++last) fs::remove(*last, ignored);
  if (lock_ >= 0) close(lock_);
}

void RunFolder::make_folders() {
  std::vector<fs::path> missing;
  for (fs::path path = fs::absolute(path_) / "checkpoint"; !fs::exists(path);
       path = path.parent_path())
    missing.push_back(path);
  for (auto path = missing.rbegin(); path != missing.rend(); ++path) {
    if (fs::create_directory(*path)) made_.push_back(path->string());
    waiting_.push_back(path->parent_path().string());
  }
}

// REQUIRES: the lock, so that no other process writes here.
void RunFolder::remove_leftovers() const {
  const auto remove = [](const std::string& folder, bool (*is_leftover)(const std::string&)) {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(folder))
      if (is_leftover(entry.path().filename().string())) all.push_back(entry.path());
    std::error_code ignored;  // it is in nobody's way
    for (const fs::path& path : all) fs::remove(path, ignored);
  };
  remove(path_, is_leftover_of_run);
  remove(path_ + "/checkpoint", is_leftover_of_checkpoint);
}

void RunFolder::replace() {
  if (!replaces_) return;
  replaces_ = false;
  try {
    // The state goes first: a run without one is not resumed by mistake.
    fs::remove(path_ + "/checkpoint/" + kState);
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(path_ + "/checkpoint"))
      all.push_back(entry.path());
    for (const auto& entry : fs::directory_iterator(path_))
      if (entry.path().filename() != "checkpoint") all.push_back(entry.path());  // it has the lock
    for (const fs::path& path : all) fs::remove_all(path);
  } catch (const fs::filesystem_error& e) {
    throw Error(
        fmt::format("[output] cannot replace the run in {}: {}", path_, e.code().message()));
  }
  data::sync_path(path_ + "/checkpoint");
  data::sync_path(path_);
}

bool RunFolder::has_checkpoint() const {
  std::error_code none;
  return !replaces_ && fs::exists(path_ + "/checkpoint/" + kState, none);
}

void RunFolder::describe(const std::string& text,
                         std::function<void(const std::string& before)> check) {
  description_ = text;
  check_ = std::move(check);
}

Checkpoint RunFolder::read() const {
  const std::string path = path_ + "/checkpoint/state.safetensors";
  const auto file = data::SafetensorsFile::open(path);
  Checkpoint checkpoint;
  RunState& state = checkpoint.state;
  try {
    // The version first: another one may have another description.
    state = run_state_from(file.metadata().at("run"), checkpoint.compression);
    if (check_) check_(file.metadata().at("config"));
  } catch (const OptionError&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(fmt::format("[checkpoint] {} is no state of a run that can go on: {}", path,
                            data::json_reason(e)));
  }
  state.seconds = seconds_in(path_ + "/checkpoint/" + kSeconds);
  checkpoint.path = path;
  for (const std::string& name : file.names()) {
    if (name.starts_with(kModel))
      checkpoint.model.emplace_back(name.substr(std::strlen(kModel)), file.read(name));
    else if (name.starts_with(kOptimizer))
      checkpoint.optimizer.emplace_back(name.substr(std::strlen(kOptimizer)), file.read(name));
    else if (name.starts_with(kExchange))
      checkpoint.exchange.emplace_back(name.substr(std::strlen(kExchange)), file.read(name));
    else if (name.starts_with(kLearned))
      checkpoint.compression.learned.arrays[name.substr(std::strlen(kLearned))] =
          file.read(name).to_vector<float>();
  }
  return checkpoint;
}

void RunFolder::loaded(const RunState& state, Module& model) {
  save_last(state, model);
  remove_unkept(state);
}

void RunFolder::save(RunState& state, const CompressionState& compression, Module& model,
                     const NamedTensors& optimizer, const NamedTensors& exchange) {
  sync_waiting();
  state.metrics_bytes = appended_[kMetrics].bytes;
  commit_held(state);
  CategoryScope scope(Category::workspace);
  models::NamedTensors tensors;
  for (auto& [name, tensor] : models::state_views(model))
    tensors.emplace_back(kModel + name, tensor);
  for (const auto& [name, tensor] : optimizer) tensors.emplace_back(kOptimizer + name, tensor);
  for (const auto& [name, tensor] : exchange) tensors.emplace_back(kExchange + name, tensor);
  for (const auto& [name, array] : compression.learned.arrays)
    tensors.emplace_back(kLearned + name,
                         Tensor::from(array, {static_cast<int64_t>(array.size())}));
  write(std::string("checkpoint/") + kSeconds, fmt::format("{} {}\n", state.step, state.seconds),
        Lasting::never);
  data::write_safetensors(
      path_ + "/checkpoint/state.safetensors", tensors,
      {{"config", description_}, {"frugal", kVersion}, {"run", text_of(state, compression)}});
  save_last(state, model);
  remove_unkept(state);
}

std::string RunFolder::kept_name(int64_t step) { return kKept + std::to_string(step) + kWeights; }

void RunFolder::save_kept(const RunState& state, Module& model, bool averaged) {
  hold(kept_name(state.step), model, metadata(state, averaged));
}

// A file without a name costs a write to memory. What makes it last is paid once a checkpoint.
void RunFolder::hold(const std::string& name, Module& model, const data::Metadata& metadata) {
  CategoryScope scope(Category::workspace);
  held_[name] = data::written_safetensors(path_ + "/checkpoint/" + name, models::state_views(model),
                                          metadata);
}

void RunFolder::commit_held(const RunState& state) {
  for (const EpochResult& result : state.kept)
    if (const auto found = held_.find(kept_name(result.step)); found != held_.end())
      found->second->commit();
  if (const auto best = held_.find(kBest); best != held_.end()) best->second->commit();
  held_.clear();
}

void RunFolder::remove_unkept(const RunState& state) const {
  std::set<std::string> kept;
  for (const EpochResult& result : state.kept) kept.insert(kept_name(result.step));
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(path_ + "/checkpoint")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kKept) && name.ends_with(kWeights) && !kept.contains(name))
      others.push_back(entry.path());
  }
  std::error_code ignored;  // a file that stays takes room and does no harm
  for (const fs::path& path : others) fs::remove(path, ignored);
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
  hold(kBest, model, metadata(state, averaged));
}

void RunFolder::start_metrics(int64_t bytes) { start_appending(kMetrics, bytes); }

void RunFolder::append_metrics(const std::string& line) { append(kMetrics, line + "\n"); }

void RunFolder::start_appending(const std::string& name, int64_t bytes) {
  check_name(name);
  const std::string path = path_ + "/" + name;
  const bool made = !fs::exists(path);
  const auto open_file = [&] {
    // Neither a link nor a pipe without a reader holds the run up.
    const int file =
        open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (file < 0) fail("open", path);
    return file;
  };
  int file = open_file();
  struct stat found {};
  const bool is_file = fstat(file, &found) == 0 && S_ISREG(found.st_mode);
  // Another name of the same file may be a copy of the folder that links what does not change.
  const bool is_shared = is_file && found.st_nlink > 1;
  if (!is_file || is_shared) close(file);
  FRUGAL_CHECK(is_file, "[output] expected a regular file at {}", path);
  if (is_shared) {
    const std::vector<uint8_t> all = data::read_file("output", path);
    data::atomic_write(path, {reinterpret_cast<const char*>(all.data()), all.size()});
    file = open_file();
  }
  Appended& appended = appended_[name];
  if (appended.file >= 0) close(appended.file);
  appended = {file, bytes};
  if (made) {
    made_.push_back(path);
    waiting_.push_back(path_);  // states say how long it is, so its name must last
  }
  const off_t size = lseek(file, 0, SEEK_END);
  FRUGAL_CHECK(size >= bytes, "[checkpoint] expected at least {} bytes in {}, got {}", bytes, path,
               static_cast<int64_t>(size));
  if (ftruncate(file, bytes) != 0 || lseek(file, bytes, SEEK_SET) < 0) fail("truncate", path);
}

void RunFolder::append(const std::string& name, std::string_view text) {
  Appended& appended = appended_.at(name);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(appended.file, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail("write", path_ + "/" + name);
    done += static_cast<size_t>(wrote);
  }
  appended.bytes += static_cast<int64_t>(text.size());
}

void RunFolder::sync_waiting() {
  std::set<std::string> synced;
  for (const std::string& path : waiting_)
    if (synced.insert(path).second) data::sync_path(path);
  waiting_.clear();
  for (const auto& [name, appended] : appended_)
    if (fsync(appended.file) != 0 && errno != EINVAL) fail("sync", path_ + "/" + name);
}

void RunFolder::write(const std::string& name, const std::string& text, Lasting lasting) {
  check_name(name);
  const std::string path = path_ + "/" + name;
  const bool made = !fs::exists(path);
  data::atomic_write(path, text, lasting == Lasting::now);
  if (lasting == Lasting::with_checkpoint) {
    waiting_.push_back(path);
    waiting_.push_back(path_);
  }
  if (made) made_.push_back(path);
}

}  // namespace frugal::train

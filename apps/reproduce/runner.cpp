#include "apps/reproduce/runner.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "apps/cli/child_process.h"
#include "apps/cli/signals.h"
#include "apps/cli/version.h"
#include "apps/config/data/make_data.h"
#include "apps/config/set_up_device.h"
#include "apps/reproduce/measures.h"
#include "apps/reproduce/search.h"
#include "core/cuda/cuda_memory.h"
#include "core/words/quoted.h"
#include "data/formats/json_strict.h"
#include "train/planning/recommend.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = std::chrono::milliseconds(10);
constexpr auto kLockWait = std::chrono::seconds(30);

// Only one runner works in a folder. Children inherit the lock: after kill -9 of a runner, the next
// one waits until they have ended, since two trainings must not write into one folder.
class Lock {
 public:
  explicit Lock(const std::string& path) : file_(open(path.c_str(), O_RDWR | O_CREAT, 0644)) {
    if (file_ < 0) throw Error(fmt::format("cannot write {}", in_quotes(path)));
    const auto end = Clock::now() + kLockWait;
    while (flock(file_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return;  // a file system without locks is no reason to stop
      if (Clock::now() > end || signal_received() != 0) {
        close(file_);
        throw Error(
            fmt::format("another `frugal reproduce` works in the folder of {}", in_quotes(path)));
      }
      std::this_thread::sleep_for(kPause);
    }
  }
  ~Lock() { close(file_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int file_;
};

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

struct Child {
  const Cell* cell = nullptr;
  int64_t seed = 0;
  std::vector<std::string> command;
  std::string out, err;  // files
  pid_t id = 0;
  Clock::time_point begin;
};

// Cells that wait, those that run, and what becomes of them.
class Runner {
 public:
  Runner(ResultStore& store, const RunnerOptions& options)
      : store_(store), options_(options), machine_(machine_facts()), memory_(free_memory()) {
    jobs_ =
        options.jobs > 0 ? options.jobs : std::max<int64_t>(1, std::thread::hardware_concurrency());
  }

  void add(const Cell& cell, int64_t seed) {
    const ResultKey key = key_of(cell, seed);
    if (!known_.insert(id_of(key)).second) return;
    if (store_.has(key)) {
      ++report_.had;
      return;
    }
    for (const Cell* each : {&cell, cell.pretraining.get()})
      if (const std::string missing = each == nullptr ? "" : missing_need(*each);
          !missing.empty()) {
        ++report_.left_out[missing];
        return;
      }
    ++all_;
    if (cell.search != nullptr) {
      searches_.emplace_back(&cell, seed);
    } else if (cell.pretraining != nullptr) {
      add_pretraining(*cell.pretraining);
      later_.emplace_back(&cell, seed);
    } else {
      queue(cell, seed);
    }
  }

  RunnerReport run() {
    try {
      advance();
      while (next_ < waiting_.size() || !running_.empty()) {
        while (next_ < waiting_.size() && may_start(waiting_[next_])) start(waiting_[next_++]);
        std::this_thread::sleep_for(kPause);
        collect();
        if (signal_received() != 0) stop();
      }
    } catch (...) {
      end_children();
      throw;
    }
    return report_;
  }

 private:
  // Folders of runs may be deleted when a table is done, so a result alone does not suffice here.
  bool is_pretrained(const Cell& cell) const {
    std::error_code none;
    return store_.has(key_of(cell, 1)) && fs::is_directory(run_of(cell, options_.out, 1), none);
  }

  void add_pretraining(const Cell& cell) {
    if (!known_.insert(id_of(key_of(cell, 1))).second || is_pretrained(cell)) return;
    ++all_;
    queue(cell, 1);
  }

  void queue(const Cell& cell, int64_t seed) {
    Child child;
    child.cell = &cell;
    child.seed = seed;
    child.command = command_of(cell, options_.out, seed);
    const std::string log =
        fmt::format("{}/logs/{}-{}-{}", options_.out, cell.table, cell.hash.substr(0, 12), seed);
    child.out = log + ".json";
    child.err = log + ".txt";
    // Cells that must be alone come last, when the others have ended.
    const auto place =
        std::upper_bound(waiting_.begin() + static_cast<std::ptrdiff_t>(next_), waiting_.end(),
                         child, [](const Child& a, const Child& b) {
                           return runs_alone(a.cell->kind) < runs_alone(b.cell->kind);
                         });
    waiting_.insert(place, child);
  }

  bool may_start(const Child& child) const {
    if (running_.empty()) return true;
    if (runs_alone(child.cell->kind) || runs_alone(running_.front().cell->kind)) return false;
    int64_t taken = child.cell->memory;
    for (const Child& other : running_) taken += other.cell->memory;
    return static_cast<int64_t>(running_.size()) < jobs_ && (memory_ == 0 || taken <= memory_);
  }

  void start(Child child) {
    save_base(*child.cell, options_.out);
    child.begin = Clock::now();
    std::vector<std::string> words = {"/proc/self/exe"};
    words.insert(words.end(), child.command.begin(), child.command.end());
    child.id = start_child(words, child.out, child.err);
    running_.push_back(child);
  }

  static std::string id_of(const ResultKey& key) {
    return key.hash + key.kind + std::to_string(key.seed) + key.scale;
  }

  // Adds the trainings that searches need next, and keeps the results of those that have ended.
  void advance_searches() {
    for (size_t i = 0; i < searches_.size();) {
      const auto [cell, seed] = searches_[i];
      const SearchState state = state_of(*cell, seed, store_);
      const Cell* failed = nullptr;
      for (const Cell* training : state.missing) {
        add(*training, seed);
        if (failed_.contains(id_of(key_of(*training, seed)))) failed = training;
      }
      if (state.result) {
        keep(*cell, seed, *state.result);
      } else if (failed != nullptr) {
        fail(*cell, seed, "a training of the search failed: " + failed->title(), {});
      } else {
        ++i;
        continue;
      }
      searches_.erase(searches_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  // Queues the cells whose pre-training has ended.
  void advance_later() {
    std::vector<std::pair<const Cell*, int64_t>> left;
    for (const auto& [cell, seed] : std::exchange(later_, {})) {
      if (is_pretrained(*cell->pretraining))
        queue(*cell, seed);
      else if (failed_.contains(id_of(key_of(*cell->pretraining, 1))))
        fail(*cell, seed, "its pre-training failed: " + cell->pretraining->title(), {});
      else
        left.emplace_back(cell, seed);
    }
    later_.insert(later_.end(), left.begin(), left.end());
  }

  void advance() {
    advance_later();
    advance_searches();
    advance_later();  // trainings that searches have just added
  }

  void collect() {
    const int64_t before = ended_;
    for (size_t i = 0; i < running_.size();) {
      int status = 0;
      if (waitpid(running_[i].id, &status, WNOHANG) == 0) {
        ++i;
        continue;
      }
      const Child child = running_[i];
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      finish(child, status);
    }
    if (ended_ > before && signal_received() == 0) advance();
  }

  void finish(const Child& child, int status) {
    if (signal_received() != 0 && status != 0) return;  // it was told to end
    const Cell& cell = *child.cell;
    const std::chrono::duration<double> took = Clock::now() - child.begin;
    try {
      if (status != 0) {
        const std::string said = last_line(file_text(child.err));
        throw Error(said.empty() ? "the process ended with " + status_text(status) : said);
      }
      StoredResult result;
      result.values = values_of(cell.kind, data::parse_json<Json>(file_text(child.out)),
                                run_of(cell, options_.out, child.seed));
      result.seconds = took.count();
      keep(cell, child.seed, result);
    } catch (const std::exception& e) {
      fail(cell, child.seed, data::json_reason(e), child.command);
    }
  }

  void keep(const Cell& cell, int64_t seed, StoredResult result) {
    result.version = kVersion;
    result.machine = machine_;
    if (const RunConfig& run = cell.config.run; run.on_cuda())
      result.machine["gpu"] = fmt::format("{}, {}", gpu_name(run), run.precision);
    result.date = now_utc();
    result.command = "frugal " + shell_line(command_of(cell, options_.out, seed));
    store_.put(key_of(cell, seed), result);
    ++report_.done;
    options_.say(
        fmt::format("[{}/{}] {}: {}{} ({:.1f} s)", ++ended_, all_, cell.table, cell.title(),
                    has_seeds(cell.kind) ? fmt::format(", seed {}", seed) : "", result.seconds));
  }

  void fail(const Cell& cell, int64_t seed, const std::string& why,
            const std::vector<std::string>& command) {
    failed_.insert(id_of(key_of(cell, seed)));
    std::string text = fmt::format("{}: {}: {}", cell.table, cell.title(), why);
    if (!command.empty()) text += "\n  frugal " + shell_line(command);
    report_.failed.push_back(text);
    options_.say(
        fmt::format("[{}/{}] {}: {}: failed: {}", ++ended_, all_, cell.table, cell.title(), why));
  }

  void end_children() {
    for (const Child& child : running_) kill(child.id, SIGTERM);
    while (!running_.empty()) {
      std::this_thread::sleep_for(kPause);
      collect();
    }
  }

  [[noreturn]] void stop() {
    end_children();
    throw Interrupted(signal_received(),
                      fmt::format("after {} of {} results; the same command goes on from there",
                                  report_.done, all_));
  }

  ResultStore& store_;
  const RunnerOptions& options_;
  const Json machine_;
  const int64_t memory_;  // bytes; 0: not known
  int64_t jobs_ = 1, all_ = 0, ended_ = 0;
  std::set<std::string> known_, failed_;                   // keys of results
  std::vector<std::pair<const Cell*, int64_t>> searches_;  // searches under way, with their seeds
  std::vector<std::pair<const Cell*, int64_t>> later_;     // cells that wait for their pre-training
  std::vector<Child> waiting_, running_;
  size_t next_ = 0;
  RunnerReport report_;
};

}  // namespace

ResultKey key_of(const Cell& cell, int64_t seed) {
  return {cell.hash, name_of(cell.kind), seed, name_of(cell.scale)};
}

RunnerReport run_cells(const std::vector<Cell>& cells, ResultStore& store,
                       const RunnerOptions& options) {
  catch_signals();
  for (const char* folder : {"runs", "logs"}) {
    std::error_code failed;
    fs::create_directories(options.out + "/" + folder, failed);
    if (failed) throw Error(fmt::format("cannot write into {}", in_quotes(options.out)));
  }
  const Lock lock(options.out + "/lock");
  Runner runner(store, options);
  for (const Cell& cell : cells)
    for (int64_t i = 0; i < cell.seeds; ++i) runner.add(cell, has_seeds(cell.kind) ? i + 1 : 0);
  return runner.run();
}

std::string missing_need(const Cell& cell) {
  const DataConfig& data = cell.config.data;
  if (cell.config.run.device != "meta" && data_traits(cell.config).reads_files) {
    std::error_code none;
    if (!data.dir && find_data(data.name).empty()) return "the data " + data.name;
    if (data.dir && !fs::exists(*data.dir, none)) return "the data in " + in_quotes(*data.dir);
  }
  if (cell.config.run.on_cuda() && !kHasCuda) return "a GPU";
  return "";
}

}  // namespace frugal::apps

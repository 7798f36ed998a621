// The commands of the program as functions: they take the options of the command line, and what the
// program prints as JSON comes back as text.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>

#include "apps/cli/commands.h"
#include "apps/cli/report.h"
#include "apps/cli/signals.h"
#include "apps/cli/version.h"
#include "apps/config/set_up_device.h"
#include "python/module/bindings.h"

namespace frugal::python {
namespace {

using apps::Json;

// Commands catch signals. The program's own handlers come back when the last command ends: those of
// several threads may end in any order. A stack for handlers belongs to a thread.
class Handlers {
 public:
  Handlers() {
    sigaltstack(nullptr, &stack_);
    const std::lock_guard lock(mutex_);
    if (commands_++ > 0) return;
    for (size_t i = 0; i < std::size(kNumbers); ++i) sigaction(kNumbers[i], nullptr, &before_[i]);
  }
  ~Handlers() {
    {
      const std::lock_guard lock(mutex_);
      if (--commands_ == 0)
        for (size_t i = 0; i < std::size(kNumbers); ++i)
          sigaction(kNumbers[i], &before_[i], nullptr);
    }
    stack_t now = stack_;
    if ((now.ss_flags & SS_DISABLE) != 0) now.ss_size = MINSIGSTKSZ;
    sigaltstack(&now, nullptr);
  }
  Handlers(const Handlers&) = delete;
  Handlers& operator=(const Handlers&) = delete;

 private:
  static constexpr int kNumbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE};
  static inline std::mutex mutex_;
  static inline int commands_ = 0;
  static inline struct sigaction before_[std::size(kNumbers)] = {};
  stack_t stack_ = {};
};

// Lets one run train at a time: the memory of all tensors of the process is counted as the run's.
// What a child of fork() inherits is a run of its parent.
class OneRun {
 public:
  OneRun() {
    pid_t before = process_;
    if (before == getpid() || !process_.compare_exchange_strong(before, getpid()))
      throw Error(
          "[train] expected one run at a time, but another one trains in this process, and the "
          "memory of both would be counted as that of each; wait until it ends, or train in a "
          "process of its own (multiprocessing)");
  }
  ~OneRun() { process_ = 0; }
  OneRun(const OneRun&) = delete;
  OneRun& operator=(const OneRun&) = delete;

 private:
  static inline std::atomic<pid_t> process_ = 0;  // the one that trains
};

std::string text_of(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// What the command would print.
template <class F>
std::string taken(const F& command) {
  const Handlers handlers;
  const py::gil_scoped_release release;
  const apps::SettingsScope settings;
  const apps::TakenJson taken;
  command();
  return text_of(taken.document);
}

py::dict dict_of(const train::StepReport& report) {
  py::dict norms;
  for (const auto& [layer, norm] : report.layer_norms) norms[py::str(layer)] = norm;
  py::dict dict;
  dict["epoch"] = report.epoch;
  dict["step"] = report.step;
  dict["lr"] = report.lr;
  dict["loss"] = report.loss;
  dict["accuracy"] = report.accuracy;
  dict["gradient_norm"] = report.gradient_norm;
  dict["logs"] = report.logs;
  dict["layer_norms"] = norms;
  dict["activation_bytes"] = report.memory.saved();
  dict["peak_bytes"] = report.memory.peak;
  dict["bits"] = report.mean_bits;
  return dict;
}

py::dict dict_of(const train::Evaluation& found) {
  py::dict dict;
  dict["loss"] = found.loss;
  dict["accuracy"] = found.accuracy;
  dict["samples"] = found.samples;
  if (found.metric) dict["metric"] = *found.metric;
  return dict;
}

py::dict dict_of(const train::EpochReport& report) {
  py::dict dict;
  dict["epoch"] = report.epoch;
  dict["step"] = report.step;
  dict["lr"] = report.lr;
  dict["train_loss"] = report.train_loss;
  dict["train_accuracy"] = report.train_accuracy;
  dict["seconds"] = report.seconds;
  dict["bits"] = report.mean_bits;
  dict["last"] = report.last;
  if (report.result) dict["test"] = dict_of(report.result->test);
  if (report.result && report.result->validation)
    dict["validation"] = dict_of(*report.result->validation);
  return dict;
}

// A function of Python as a callback: it gets a dict, and False ends the run. Training runs without
// the interpreter's lock.
template <class Report>
std::function<bool(const Report&)> callback(const py::object& function) {
  if (function.is_none()) return {};
  return [&function](const Report& report) {
    const py::gil_scoped_acquire lock;
    return !function(dict_of(report)).is(py::bool_(false));
  };
}

// The summary, as JSON. Empty: a callback ended the run.
std::string train(const std::string& config, const std::string& out,
                  const std::vector<std::string>& sets, bool resume, int64_t extend,
                  const std::string& init_from, bool overwrite, bool data_changed, bool quiet,
                  const py::object& on_step, const py::object& on_epoch) {
  const OneRun alone;
  apps::TrainArguments arguments;
  arguments.config = config;
  arguments.out = out;
  arguments.sets = sets;
  arguments.resume = resume;
  arguments.extend = extend;
  arguments.init_from = init_from;
  arguments.overwrite = overwrite;
  arguments.data_changed = data_changed;
  arguments.quiet = quiet;
  arguments.json = true;
  arguments.callbacks = {callback<train::StepReport>(on_step),
                         callback<train::EpochReport>(on_epoch)};
  try {
    return taken([&] { apps::train_command(arguments); });
  } catch (const apps::Interrupted&) {
    if (apps::signal_received() != 0) throw;
    return "";
  }
}

}  // namespace

void add_commands(py::module_& module) {
  using namespace py::literals;
  module.attr("version") = apps::kVersion;
  module.attr("has_cuda") = kHasCuda;
  module.def("train", &train, "config"_a, "out"_a, "sets"_a, "resume"_a, "extend"_a, "init_from"_a,
             "overwrite"_a, "data_changed"_a, "quiet"_a, "on_step"_a, "on_epoch"_a);
  module.def(
      "plan",
      [](const std::string& config, const std::vector<std::string>& sets, const std::string& memory,
         const std::string& most, bool explain) {
        apps::PlanArguments arguments;
        arguments.config = config;
        arguments.sets = sets;
        arguments.memory = memory;
        arguments.max = most;
        arguments.explain = explain;
        arguments.json = true;
        return taken([&] { apps::plan_command(arguments); });
      },
      "config"_a, "sets"_a, "memory"_a, "largest"_a, "explain"_a);
  module.def(
      "evaluate",
      [](const std::string& config, const std::string& checkpoint, const std::string& weights,
         const std::string& split, const std::string& data, const std::string& tta,
         const std::vector<std::string>& sets) {
        apps::EvalArguments arguments;
        arguments.config = config;
        arguments.checkpoint = checkpoint;
        arguments.weights = weights;
        arguments.split = split;
        arguments.data = data;
        arguments.tta = tta;
        arguments.sets = sets;
        arguments.json = true;
        return taken([&] { apps::eval_command(arguments); });
      },
      "config"_a, "checkpoint"_a, "weights"_a, "split"_a, "data"_a, "tta"_a, "sets"_a);
  module.def(
      "write_report",
      [](const std::vector<std::string>& folders, const std::string& out) {
        const py::gil_scoped_release release;
        return apps::write_report({folders, out});
      },
      "folders"_a, "out"_a);
}

}  // namespace frugal::python

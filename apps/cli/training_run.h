// TrainingRun: a run of `frugal train`, from its configuration to its summary. Makes what the
// configuration names, lets train::Trainer train it, and reports: progress on the terminal,
// metrics.jsonl, metrics.csv, event files and summary.json.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "apps/cli/event_file.h"
#include "apps/cli/metrics_csv.h"
#include "apps/cli/progress.h"
#include "apps/config/config.h"
#include "train/run/run.h"

namespace frugal::apps {

// What a program that embeds the commands is told of a run, beside the reports. False: the run ends
// there, after a checkpoint.
struct TrainCallbacks {
  std::function<bool(const StepReport& report)> on_step = {};
  std::function<bool(const EpochReport& report)> on_epoch = {};
};

struct TrainOptions {
  std::string out;      // empty: nothing is written
  bool resume = false;  // continue what `out` holds, from the start if it holds nothing yet
  bool quiet = false;   // no progress
  // What `out` holds may be a run of fewer epochs, or steps, than the configuration has.
  bool extend = false;
  // The data may be others than when the run in `out` began.
  bool data_changed = false;
  // A run in `out` goes when everything is ready for the new one.
  bool overwrite = false;
  // The processes that train together; null: this one trains alone. Only rank 0 writes and reports.
  distributed::CommunicatorPtr ranks = {};
  TrainCallbacks callbacks = {};
  // Called after each checkpoint of a run that goes on, with the steps done.
  std::function<void(int64_t step)> saved = {};
};

class TrainingRun {
 public:
  // Errors: those of the data files, the folder and the checkpoint.
  TrainingRun(const Config& config, const TrainOptions& options);
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  // The summary. Errors: those of Trainer::run(); Interrupted, after a checkpoint, saying how to go
  // on.
  Json run();

 private:
  bool is_first() const { return options_.ranks == nullptr || options_.ranks->rank() == 0; }
  void add_reports(TrainerOptions& options);
  bool train_all();  // false: it was stopped
  void show(const StepReport& report);
  void show(const EpochReport& report);
  void show(const Compression::Event& event, int64_t step);
  void show(const StepRecord& record, int64_t step);
  void write_report() const;
  void keep_measured(Json& summary) const;
  void append(const char* type, int64_t step, const Json& values);
  void write_starting_files();
  void load_start();
  std::string frozen_text();
  ProgressLine progress_line(const StepReport& report) const;
  void add_event(int64_t step, const Scalars& scalars);  // if the run writes event files
  void add_event(const EpochReport& report);
  void add_row(const EpochReport& report);

  Config config_;
  TrainOptions options_;
  Device device_;
  std::shared_ptr<Planner> planner_;  // with a memory budget
  std::shared_ptr<RunFolder> folder_;
  BatchSpec spec_;
  train::Run run_;
  std::string started_from_;  // what was read of model.weights, for people
  std::unique_ptr<Progress> progress_;
  Trainer* trainer_ = nullptr;  // run_ owns it
  std::unique_ptr<MetricsCsv> csv_;
  std::unique_ptr<EventFile> events_;  // made by the first event
  int64_t first_step_ = 0;             // steps that were done when this process began
};

}  // namespace frugal::apps

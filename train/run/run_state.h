// What a run knows beside its tensors, and how it is written down.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "data/batch_source.h"
#include "train/training_step.h"

namespace frugal::train {

// Sums over targets that count. The mean loss does not depend on how they were cut into batches:
// each batch's loss weighs by what it was divided by.
struct Totals {
  double loss = 0, weight = 0;  // weight: `samples`, or the sum of their weights
  int64_t correct = 0, samples = 0;
  void add(const BatchResult& batch);
  double mean_loss() const { return weight > 0 ? loss / weight : 0; }
  double accuracy() const {
    return samples > 0 ? static_cast<double>(correct) / static_cast<double>(samples) : 0;
  }
};

struct Evaluation {
  double loss = 0;
  double accuracy = 0;  // 0 where the task has none (Task::has_accuracy())
  int64_t samples = 0;  // pictures, rows, texts or nodes that count, and not their targets
  std::optional<double> metric = {};                         // the value of BatchSpec::metric
  std::vector<std::pair<std::string, double>> details = {};  // see Metric::details()
};

// An epoch that ended with an evaluation.
struct EpochResult {
  int64_t epoch = 0, step = 0;  // counted from 1
  double train_loss = 0, train_accuracy = 0;
  Evaluation test;
  std::optional<Evaluation> validation;  // none: the data have no nodes or samples for it
};

// How long an EarlyStop has waited (train/early_stop.h).
struct EarlyStopState {
  std::optional<double> best = {};  // the best measure so far; higher is better
  int64_t waited = 0;               // evaluations since then
};

// What reports of an epoch say of its last step.
struct LastStep {
  double lr = 0, mean_bits = 0;
  int64_t saved = 0;  // StepMemory::saved()
};

// Everything that later steps depend on, beside tensors and CompressionState: with them a run goes
// on to the same bits. If an attribute of a policy outlives a step, it is in CompressionState or
// follows from the step alone. The written form is JSON, because it lies in the metadata of a
// checkpoint.
struct RunState {
  static constexpr int64_t kVersion = 4;  // raised when the written form changes
  int64_t step = 0;                       // optimizer steps done
  int64_t batches = 0;  // forward passes done: numbers the streams of stochastic rounding
  data::LoaderState loader;
  RngKey rng;  // dropout draws from it
  Totals interval, epoch;
  std::optional<EpochResult> last, best;
  std::vector<EpochResult> kept;  // epochs whose weights are kept (keep_best), the best first
  EarlyStopState early_stop;
  StepMemory memory;
  LastStep last_step;
  // What the steps have taken. It is kept beside the written state (RunFolder), whose bytes do not
  // depend on time.
  double seconds = 0;
  int64_t metrics_bytes = 0;  // the bytes of metrics.jsonl that belong to this state
  bool finished = false;
  // Why it finished: "epochs", "steps", "patience" or "early_stop"; empty: it has not.
  std::string ended;
};

struct CompressionState;  // train/compression_state.h

// Writes the state and that of compression as JSON for the metadata of a checkpoint, without
// Learned::arrays, which are tensors of the checkpoint.
std::string text_of(const RunState& state, const CompressionState& compression);
// Fills `compression`, too. Errors: another version; a key missing, of the wrong type, or with a
// value that no run has.
RunState run_state_from(const std::string& text, CompressionState& compression);

}  // namespace frugal::train

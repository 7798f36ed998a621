// Trainer: trains a network on batches, with saved activations compressed.
//
//   train::Trainer trainer(model, optimizer, optim::constant_schedule(0.1), loader,
//                          {.epochs = 5, .test = &test, .compression = {compress::bits(4)}});
//   trainer.run();
#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "data/batch_source.h"
#include "models/module.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "train/batch_spec.h"
#include "train/compression.h"
#include "train/early_stop.h"
#include "train/ranks/ranks.h"
#include "train/run/run_folder.h"
#include "train/run/run_state.h"
#include "train/step.h"
#include "train/step_record.h"
#include "train/training_step.h"

namespace frugal::train {

class CapturedStep;
class GradientExchange;
class LossWatch;
class StepTimes;
struct UpdateTime;

// The 2-norm of the gradient of each layer, by the layer's name. A layer's weight and bias have one
// norm together.
using LayerNorms = std::vector<std::pair<std::string, double>>;

// What on_step gets about a step that has ended.
struct StepReport {
  int64_t epoch = 0, step = 0;       // both are counted from 1
  double lr = 0, gradient_norm = 0;  // the norm is measured before clipping
  double loss = 0, accuracy = 0;     // means over the steps since the last one with `logs`
  bool logs = false;                 // the log_interval ends with this step
  // The norms before clipping; empty where the step did not measure them (grad_norms).
  LayerNorms layer_norms = {};
  StepMemory memory = {};  // what this step took, the most on any rank
  // Bits in memory for each element that was packed in the forward pass, masks in the codes
  // included. 0: nothing was packed, or payloads may have been moved to a file.
  double mean_bits = 0;
};

// What on_epoch gets about an epoch that has ended.
struct EpochReport {
  int64_t epoch = 0, step = 0;  // both are counted from 1
  double train_loss = 0, train_accuracy = 0;
  double lr = 0, mean_bits = 0;  // what the last step of the epoch had
  int64_t saved = 0;             // StepMemory::saved() of that step
  // The time that steps have taken since the run began, also before interruptions.
  double seconds = 0;
  std::optional<EpochResult> result = {};  // none: the epoch was not evaluated
  bool last = false;
  bool stopped_early = false;  // early_stop says so: training ends
};

struct TrainerOptions {
  int64_t epochs = 10;
  int64_t steps = 0;  // where it is not 0, it replaces `epochs`
  int64_t gradient_accumulation = StepOptions().gradient_accumulation;  // batches of a step
  double label_smoothing = StepOptions().label_smoothing;
  double clip_norm =
      StepOptions().clip_norm;  // the most that a gradient's norm may be; 0: no limit
  // Are parameters updated in the backward pass? None: yes, unless something speaks against it
  // (train/update_time.h). After a step that does so, parameters have no gradients.
  std::optional<bool> in_backward = {};
  // Blocks that are recomputed; a planner may raise this.
  int64_t checkpointed_blocks = StepOptions().checkpointed_blocks;
  // After so many epochs parameters that freeze() (models/freeze.h) froze before the trainer was
  // made are trained; 0: never. What compression has learned then starts anew.
  int64_t freeze_epochs = 0;
  // A run in options.folder that has ended goes on, if there are more epochs or steps now.
  bool extend = false;
  // A run in options.folder goes on although its epochs have another number of batches now. An
  // epoch that was cut begins anew. Steps are counted as if all epochs had been like the new ones.
  bool data_changed = false;
  int64_t log_interval = 50;  // in steps
  int64_t eval_interval = 1;  // in epochs
  // Steps between checkpoints; 0: at the ends of epochs alone.
  int64_t checkpoint_interval = 0;
  // An epoch that ends sooner after the last checkpoint writes none. The end of a run and a stop
  // always write one.
  double checkpoint_seconds = 30;
  // run() ends after so many seconds, as if `stop` had asked for it; 0: it does not.
  double max_seconds = 0;
  int64_t keep_best = 1;     // the number of evaluations whose weights are kept, see RunFolder
  int64_t grad_norms = 0;    // steps between norms of each layer's gradient; 0: never
  uint64_t seed = 0;         // dropout and rounding draw from it
  bool cuda_graphs = false;  // steps are captured and rerun (train/captured_step.h)
  bool watches_loss = true;  // warns once of a loss that grows by orders of magnitude

  // Ends training early, with a patience. Its metric then also says which evaluation is the best
  // one.
  EarlyStopOptions early_stop = {};

  // Both may be null, and must outlive the trainer. Without `test` nothing is evaluated.
  data::BatchSource* test = nullptr;
  data::BatchSource* validation = nullptr;
  // What a batch means. Null: make_task() chooses by the target, kind and metric of `spec`.
  TaskPtr task = {};
  BatchSpec spec = {};

  CompressionOptions compression = {};
  // Several processes train together: each has a trainer of the same options, and its share of all
  // batches (BatchSource::set_share(), which the trainer calls).
  RanksOptions ranks = {};
  // Checkpoints go there; null: nothing is written. If there are several ranks, rank 0 alone has a
  // folder.
  std::shared_ptr<RunFolder> folder = {};

  // Called after each step and each epoch, before its checkpoint. False: the run ends there.
  std::function<bool(const StepReport& report)> on_step = {};
  std::function<bool(const EpochReport& report)> on_epoch = {};
  // Called with what steers compression found or decided, after step `step`.
  std::function<void(const Compression::Event& event, int64_t step)> on_event = {};
  // Called with the record of step 2, when widths and the optimizer's state are there, and of the
  // first step of the epochs 2, 4, 8 and so on. Without it nothing is recorded.
  std::function<void(const StepRecord& record, int64_t step)> on_record = {};
  // Called after each checkpoint of a run that goes on.
  std::function<void(int64_t step)> on_checkpoint = {};
  // Asked between steps and between batches of an evaluation: true ends the run at once.
  std::function<bool()> stop = {};

  static std::vector<by_name::Option<TrainerOptions>> list();
};

// The steps of a run whose epochs have so many batches.
int64_t steps_of(const TrainerOptions& options, int64_t batches);
// When a trainer of these options updates parameters on the device.
UpdateTime update_time(const TrainerOptions& options, Device device);
// What all steps of a trainer of these options do on the device.
StepOptions step_options(const TrainerOptions& options, Device device);

// How several ranks spent the time of training.
struct RanksReport {
  int ranks = 1;
  // The share of the time of steps in which gradients were added up, and the share in which a rank
  // waited for sums, or for slower ranks. Both are means over the ranks.
  double communication = 0, waiting = 0;
  // How much longer the slowest rank computes than the mean, as a share of the mean. 0.1: by a
  // tenth.
  double imbalance = 0;
  int64_t step_bytes = 0;  // the bytes of gradients that a rank adds up in a step
  // The part of the communication that took no time from the step.
  double hidden() const {
    return communication > 0 ? std::clamp(1 - waiting / communication, 0.0, 1.0) : 0;
  }
};

struct Speed {
  double samples_per_second = 0;  // in training, without evaluation
  std::string unit = "images";    // what is counted beside samples: see unit_of()
  double units_per_second = 0;
  double step_ms_median = 0;  // see StepTimes
  // The share of the time of training in which sensitivities were measured.
  double adaptation_share = 0;
  // The share of the time of training in which convergence was watched.
  double tracking_share = 0;
};

// If there are several ranks, a run ends on all of them when a callback of any rank ends it.
//
// After equal numbers of steps, weights and reports are equal to the bit, however often the run was
// interrupted, and on any number of threads except for what oneDNN sums up by threads
// (ARCHITECTURE.md). Thread safety: none.
class Trainer {
 public:
  // Goes on from the checkpoint in options.folder, if there is one. The first four must outlive the
  // trainer. Errors: OptionError for options that contradict each other; those of the checkpoint.
  Trainer(Module& model, Optimizer& optimizer, optim::SchedulePtr schedule,
          data::BatchSource& batches, TrainerOptions options = {});
  ~Trainer();

  // Trains until the last step, or until a callback ends the run; then a checkpoint is written and
  // another trainer can go on from it. True: the run has come to its end.
  // Errors: NotFinite for a loss or gradient that is not finite, naming the step and the first such
  // tensor (the last checkpoint stays), and for such a loss of an evaluation; OutOfMemory.
  bool run();

  int64_t steps() const { return steps_; }    // all that the run has, also those to come
  int64_t epochs() const { return epochs_; }  // all that the run has, also those to come
  const RunState& state() const { return state_; }
  const StepTimes& times() const { return *times_; }  // train/step_times.h
  Speed speed() const;
  // Empty where one process trains. All ranks call it together.
  std::optional<RanksReport> ranks_report() const;
  const Compression& compression() const { return compression_; }

 private:
  class Watch;
  void join_ranks();
  void check_same_data();
  void load_checkpoint(int64_t per_epoch);
  void restore(int64_t per_epoch, const CompressionState& compression);
  void count_again(int64_t per_epoch);
  void next_epoch();  // REQUIRES: all batches of the epoch are done
  void thaw_if_due();
  void step();
  void make_lasting(const Batch& batch, const Context& of_step);
  void share_buffers();
  void finish(const StepResult& step, Watch& watch, double lr, double seconds);
  Batch next_batch(bool& copied);
  bool epoch_over() const;
  bool finish_epoch();  // false: options_.stop said so during the evaluation
  bool evaluate_epoch(EpochReport& report);
  bool is_better(const EpochResult& a, const EpochResult& b) const;
  void keep(const EpochResult& result, bool averaged);
  bool measures_norms() const;  // does the next step measure layers' norms?
  bool is_recorded() const;     // does the next step make a StepRecord?
  LayerNorms layer_norms(const UpdateInBackward::Squares& squares) const;
  bool checkpoint_is_due();  // called at the end of an epoch
  void checkpoint();
  void save_average();  // does nothing where the optimizer keeps no averages
  std::string what_is_kept() const;
  // Throws if `value` is not finite, naming the first tensor that is not; repeats the last batch.
  void check_finite(double value, const char* what);
  bool stops();  // does a rank want to end the run here? The streams of all ranks then agree

  TrainerOptions options_;
  const Task& task_;  // is *options_.task
  Ranks ranks_;
  Module& model_;
  Optimizer& optimizer_;
  optim::SchedulePtr schedule_;
  data::BatchSource& batches_;
  Device device_;
  Compression compression_;
  std::shared_ptr<CapturedStep> captured_;  // shared: deleted by who made it, in CUDA builds only
  std::unique_ptr<GradientExchange> exchange_;
  std::optional<TrainingStep> step_;
  distributed::CommunicatorPtr statistics_;  // a channel of its own for batch norms
  bool writes_ = false;                      // has rank 0 a folder?
  bool has_small_batches_ = false;           // may a batch have fewer samples than ranks?
  std::vector<Variable> parameters_;
  std::vector<std::string> layers_;  // the name of each parameter's layer
  std::optional<EarlyStop> early_stop_;
  std::unique_ptr<LossWatch> loss_watch_;  // null without TrainerOptions::watches_loss
  Rng rng_;
  RunState state_;
  data::LoaderState last_batch_;  // where the last batch came from, and rng_ before it
  RngKey last_rng_;
  int64_t epochs_ = 0, steps_ = 0;
  bool stopped_ = false;                                // has a callback ended the run?
  std::chrono::steady_clock::time_point written_ = {};  // when the last checkpoint was
  std::chrono::steady_clock::time_point begun_ = {};    // when run() began
  std::unique_ptr<StepTimes> times_;
};

// Trains with a trainer of these options and returns the last evaluation of a run with a test set.
std::optional<EpochResult> fit(Module& model, Optimizer& optimizer, optim::SchedulePtr schedule,
                               data::BatchSource& batches, const TrainerOptions& options = {});

}  // namespace frugal::train

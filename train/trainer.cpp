#include "train/trainer.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <map>

#include "autograd/checkpoint.h"
#include "autograd/record.h"
#include "core/integers.h"
#include "core/log.h"
#include "core/random/random_streams.h"
#include "distributed/agreement.h"
#include "distributed/shared_statistics.h"
#include "models/freeze.h"
#include "models/graph_layers.h"
#include "ops/precision.h"
#include "optim/averaged.h"
#include "optim/clip.h"
#include "train/captured_step.h"
#include "train/compression_state.h"
#include "train/evaluate.h"
#include "train/held_copies.h"
#include "train/loss_watch.h"
#include "train/option_error.h"
#include "train/planning/own_plan.h"
#include "train/ranks/gradient_exchange.h"
#include "train/run/checkpoint.h"
#include "train/step_recorder.h"
#include "train/step_times.h"
#include "train/tasks/make_task.h"
#include "train/update_time.h"

namespace frugal::train {
namespace {

using Clock = std::chrono::steady_clock;

// Adds the task, the plan of a memory budget with its settings, and the options of steps that
// compression must know.
TrainerOptions completed(TrainerOptions options, Module& model, const Optimizer& optimizer,
                         data::BatchSource& batches) {
  for (const auto& each : TrainerOptions::list())
    by_name::check_range(each.key.range, each.get(options),
                         std::string("trainer.") + each.key.name);
  const Device device = model.device();
  if (options.task == nullptr) options.task = make_task(options.spec);
  CompressionOptions& compression = options.compression;
  if (compression.planner == nullptr && !compression.choice.memory_budget().empty())
    compression.planner = plan_of_own(options, model, optimizer, batches);
  int64_t most_reserved = 0;
  if (compression.planner != nullptr) {
    const PlannedSettings planned = compression.planner->settings();
    options.checkpointed_blocks = planned.checkpointed_blocks;
    ops::set_convolution_workspace(planned.workspace_limit);
    // A budget of the peak also limits the memory that the allocator holds.
    if (!compression.planner->of_activations()) most_reserved = compression.planner->limit();
  }
  allocator(device).set_most_reserved(most_reserved);
  TrainerOptions of_step = options;
  // A step takes no more batches than an epoch has.
  of_step.gradient_accumulation =
      std::clamp<int64_t>(batches.batches(), 1, options.gradient_accumulation);
  const UpdateTime time = update_time(of_step, device);
  check(time);
  options.in_backward = keeps_gradients(time).empty();
  if (compression.tracking) {
    compression.tracking->label_smoothing = options.label_smoothing;
    compression.tracking->checkpointed_blocks = options.checkpointed_blocks;
    compression.tracking->batches = of_step.gradient_accumulation;
    const int64_t most =
        compression.tracking->other != nullptr ? batches.batches() : batches.samples();
    compression.tracking->batch = std::min(compression.tracking->batch, most);
    const auto& ranks = options.ranks.communicator;
    compression.tracking->seed =
        ranks != nullptr ? seed_of_rank(options.seed, ranks->rank()) : options.seed;
  }
  return options;
}

}  // namespace

std::vector<by_name::Option<TrainerOptions>> TrainerOptions::list() {
  namespace range = by_name::range;
  using by_name::without_effect;
  using S = TrainerOptions;
  constexpr int64_t kMany = int64_t{1} << 40, kEpochs = 1'000'000;
  return {
      {{"epochs", range::integer(1, kEpochs),
        "Passes over the data, unless steps says when to stop."},
       &S::epochs},
      {{"steps", range::integer(0, kMany), "Stop after so many steps instead; 0: by epochs."},
       &S::steps},
      {{"log_interval", range::integer(1, kMany), "Steps between lines of metrics.jsonl."},
       &S::log_interval},
      {without_effect({"checkpoint_interval", range::integer(0, kMany),
                       "Steps between checkpoints; 0: only at the ends of epochs, as "
                       "checkpoint_seconds says."}),
       &S::checkpoint_interval},
      {without_effect({"checkpoint_seconds", range::number(0, 1e6),
                       "An epoch that ends sooner than so many seconds after the last "
                       "checkpoint writes none, unless it is the last one; 0: each epoch "
                       "writes one."}),
       &S::checkpoint_seconds},
      {{"eval_interval", range::integer(1, kEpochs),
        "Epochs between evaluations on the test images; the last epoch always has one."},
       &S::eval_interval},
      {{"keep_best", range::integer(1, 1000),
        "Keep the weights of so many best evaluations, as checkpoint/best_step_N.safetensors; "
        "1: only the best, as checkpoint/best.safetensors."},
       &S::keep_best},
      {{"grad_norms", range::integer(0, kMany),
        "Steps between lines of metrics.jsonl with the norm of each layer's gradient; 0: none."},
       &S::grad_norms},
      {{"label_smoothing", range::below(0, 1), "Weight of the uniform distribution in the target."},
       &S::label_smoothing},
      {{"gradient_accumulation", range::integer(1, 4096),
        "Batches that make one step: its loss is the mean over all their targets."},
       &S::gradient_accumulation},
      {without_effect({"max_seconds", range::number(0, 1e9),
                       "Stop after so many seconds of this process, with a checkpoint, as SIGTERM "
                       "does; --resume goes on. 0: never."}),
       &S::max_seconds},
      {{"freeze_epochs", range::integer(0, kEpochs),
        "freeze: after so many epochs everything is trained; 0: never."},
       &S::freeze_epochs},
      {{"clip_norm", range::number(0, 1e12), "Scale gradients down to this global norm; 0: off."},
       &S::clip_norm},
      {{"in_backward", range::or_nothing(range::flag()),
        "Update each parameter as soon as its gradient is complete, so that gradients are "
        "never all in memory. null: yes, but not with clip_norm, gradient accumulation, "
        "recomputed blocks, several ranks or CUDA."},
       &S::in_backward}};
}

namespace {

int64_t recomputed_blocks(const TrainerOptions& options) {
  const std::shared_ptr<Planner>& planner = options.compression.planner;
  return planner != nullptr ? planner->settings().checkpointed_blocks : options.checkpointed_blocks;
}

}  // namespace

int64_t steps_of(const TrainerOptions& options, int64_t batches) {
  return options.steps > 0 ? options.steps
                           : options.epochs * ceil_div(batches, options.gradient_accumulation);
}

UpdateTime update_time(const TrainerOptions& options, Device device) {
  const auto& ranks = options.ranks.communicator;
  return {.in_backward = options.in_backward,
          .clip_norm = options.clip_norm,
          .gradient_accumulation = options.gradient_accumulation,
          .recomputes = recomputed_blocks(options) > 0,
          .ranks = ranks != nullptr ? ranks->size() : 1,
          .on_cuda = device.type == DeviceType::cuda};
}

StepOptions step_options(const TrainerOptions& options, Device device) {
  return {.gradient_accumulation = options.gradient_accumulation,
          .label_smoothing = options.label_smoothing,
          .clip_norm = options.clip_norm,
          .in_backward = keeps_gradients(update_time(options, device)).empty(),
          .checkpointed_blocks = recomputed_blocks(options)};
}

// What the trainer does beside the computation of a step.
class Trainer::Watch final : public StepObserver {
 public:
  Watch(Trainer& trainer, bool measures_norms, bool is_recorded)
      : t_(trainer), measures_norms_(measures_norms), is_recorded_(is_recorded) {}

  StepPart next(int64_t) override {
    t_.last_batch_ = t_.batches_.state();
    t_.last_rng_ = t_.rng_.state();
    bool copied = false;
    Batch batch = t_.next_batch(copied);
    return {std::move(batch), copied ? t_.ranks_.size() : 1, !copied || t_.ranks_.rank() == 0};
  }

  SavePolicy* before_forward(const Batch& batch, int64_t part, bool last,
                             const Context& context) override {
    const bool has_lasting = batch.held || t_.task_.spec().target_of_each_pixel();
    if (is_recorded_ && part == 0 && t_.times_->steps() == 0 && has_lasting)
      t_.make_lasting(batch, context);
    t_.compression_.before_forward(batch,
                                   {static_cast<uint64_t>(t_.state_.batches), t_.last_rng_,
                                    t_.options_.label_smoothing, t_.options_.checkpointed_blocks},
                                   t_.state_.step, last);
    if (is_recorded_ && part == 0) {
      recorder_.emplace(t_.model_, t_.optimizer_, t_.compression_.policy());
      return recorder_->policy();
    }
    if (recorder_) recorder_->next_batch();
    return t_.compression_.policy();
  }

  Capture capture() override {
    if (t_.captured_ == nullptr) return {};
    if (t_.compression_.is_usual() && !measures_norms_ && !recorder_)
      return {t_.captured_.get(), static_cast<uint64_t>(t_.state_.batches)};
    // So that no gradients are there beside those that are measured.
    if constexpr (kHasCuda) t_.captured_->forget();
    return {};
  }

  AtBackward at_backward(int64_t part) override {
    if (!recorder_ || part > 0) return {};
    return [this](const Variable& loss, const StepMemory& memory) {
      recorder_->before_backward(loss, memory);
    };
  }

  void after_backward(const BatchResult& result) override {
    t_.compression_.after_backward();
    if (t_.ranks_.alone()) t_.check_finite(result.loss, "loss");
    ++t_.state_.batches;
  }

  // Results become those of all ranks.
  void after_parts(StepResult& result) override {
    result.results = t_.ranks_.sum(std::move(result.results), result.loss, result.units);
    for (const BatchResult& part : result.results) {
      if (!t_.ranks_.alone()) t_.check_finite(part.loss, "loss");
      samples_ += part.samples;
      t_.state_.interval.add(part);
      t_.state_.epoch.add(part);
    }
    if (recorder_) recorder_->update();
  }

  void before_clipping(StepResult& result) override {
    if (measures_norms_) layer_norms_ = t_.layer_norms(result.squares);
  }

  void before_update(const StepResult& result) override {
    t_.check_finite(result.norm, "gradient norm");
  }

  void after_update() override { t_.share_buffers(); }

  int64_t samples() const { return samples_; }
  LayerNorms take_layer_norms() { return std::move(layer_norms_); }
  std::optional<StepRecorder>& recorder() { return recorder_; }

 private:
  Trainer& t_;
  bool measures_norms_, is_recorded_;
  int64_t samples_ = 0;  // counts those of all ranks
  LayerNorms layer_norms_;
  std::optional<StepRecorder> recorder_;  // from the first forward pass on
};

Trainer::~Trainer() = default;

Trainer::Trainer(Module& model, Optimizer& optimizer, optim::SchedulePtr schedule,
                 data::BatchSource& batches, TrainerOptions options)
    : options_(completed(std::move(options), model, optimizer, batches)),
      task_(*options_.task),
      ranks_(options_.ranks),
      model_(model),
      optimizer_(optimizer),
      schedule_(std::move(schedule)),
      batches_(batches),
      device_(model.device()),
      compression_(task_, model, options_.compression, seed_of_rank(options_.seed, ranks_.rank()),
                   ranks_),
      loss_watch_(options_.watches_loss ? std::make_unique<LossWatch>(task_.spec()) : nullptr),
      rng_(streams::kDropout.rng(seed_of_rank(options_.seed, ranks_.rank()))),
      times_(std::make_unique<StepTimes>()) {
  if (options_.freeze_epochs > 0 && options_.compression.planner != nullptr)
    throw OptionError("trainer.freeze_epochs",
                      "expected 0 with a memory budget: a plan for what is trained at first does "
                      "not fit all of the network");
  if (options_.early_stop.patience != 0) {
    if (options_.test == nullptr)
      throw OptionError("early_stop.patience", "expected 0 without a test set");
    early_stop_.emplace(options_.early_stop, task_);
  }
  if constexpr (kHasCuda)
    if (options_.cuda_graphs) {
      if (*options_.in_backward || compression_.offload_stats() ||
          options_.gradient_accumulation > 1 || !ranks_.alone())
        throw OptionError("trainer.cuda_graphs",
                          "expected false with in_backward, offload, gradient_accumulation or "
                          "several ranks");
      captured_ = std::make_shared<CapturedStep>(task_, model_, compression_.policy());
    }
  for (const auto& p : model_.parameters()) {
    parameters_.push_back(*p.parameter);
    const size_t dot = p.name.rfind('.');
    layers_.push_back(dot == std::string::npos ? p.name : p.name.substr(0, dot));
  }
  const int64_t per_epoch = ceil_div(batches_.batches(), options_.gradient_accumulation);
  steps_ = steps_of(options_, batches_.batches());
  epochs_ = ceil_div(steps_, per_epoch);
  join_ranks();
  step_.emplace(StepSubject{task_, model_, optimizer_, *exchange_, ranks_, statistics_},
                step_options(options_, device_));
  load_checkpoint(per_epoch);
  if (options_.folder != nullptr) options_.folder->replace();
  if (options_.folder != nullptr) options_.folder->start_metrics(state_.metrics_bytes);
}

void Trainer::join_ranks() {
  writes_ = ranks_.any(options_.folder != nullptr, "the folder of the run");
  exchange_ = std::make_unique<GradientExchange>(ranks_, model_, optimizer_, options_.ranks,
                                                 *options_.in_backward, options_.seed);
  if (ranks_.alone()) return;
  has_small_batches_ = batches_.smallest_batch() < ranks_.size();
  if (task_.spec().kind == BatchSpec::Kind::graph && has_small_batches_ && ranks_.rank() == 0)
    log().warn(
        "[ranks] this graph's batches cannot be divided among {} ranks: all of them compute the "
        "same batch. data.sampler neighbours gives each its share",
        ranks_.size());
  check_same_data();
  batches_.set_share(ranks_.share());
  for (data::BatchSource* const source : {options_.test, options_.validation})
    if (source != nullptr) source->set_share(ranks_.share());
  if (options_.ranks.sync_batch_norm) statistics_ = ranks_.communicator().channel();
  NamedTensors values;
  for (const auto& p : model_.parameters()) values.emplace_back(p.name, p.parameter->value());
  for (const auto& b : model_.buffers()) values.emplace_back(b.name, *b.buffer);
  distributed::broadcast_values(ranks_.communicator(), values);
}

// All ranks read the share of rank 0 of the first batch, which must be equal.
void Trainer::check_same_data() {
  const CategoryScope scope(Category::workspace);
  const Tensor sizes = Tensor::from<int64_t>({batches_.batches(), batches_.samples()}, {2});
  distributed::check_same_values(ranks_.communicator(),
                                 {{"the number of batches and of samples of an epoch", sizes}});
  batches_.set_share({0, ranks_.size()});
  const data::LoaderState before = batches_.state();
  const std::optional<Batch> batch = batches_.next();
  distributed::check_same_values(
      ranks_.communicator(),
      {{"the first batch's input", batch->input}, {"the first batch's target", batch->target}});
  batches_.seek(before);
}

void Trainer::load_checkpoint(int64_t per_epoch) {
  RunFolder* const folder = options_.folder.get();
  if (!ranks_.any(folder != nullptr && folder->has_checkpoint(), "a checkpoint")) return;
  Checkpoint checkpoint;
  if (folder != nullptr) checkpoint = folder->read();
  share(ranks_, checkpoint);
  apply(checkpoint, model_, optimizer_);
  state_ = std::move(checkpoint.state);
  const std::string path = folder != nullptr ? folder->path() : "the folder of rank 0";
  if (folder != nullptr) folder->loaded(state_, model_);
  try {
    restore(per_epoch, checkpoint.compression);
  } catch (const std::exception& e) {
    throw Error(
        fmt::format("[checkpoint] the state of the run in {} does not fit its "
                    "configuration: {}",
                    path, e.what()));
  }
  exchange_->load_state(checkpoint.exchange);  // restore() has said which parameters are trained
  save_average();
}

// The position of a run whose epochs had another number of batches.
void Trainer::count_again(int64_t per_epoch) {
  auto& [epoch, next_batch] = state_.loader;
  const int64_t all = batches_.batches();
  if (state_.step == epoch * per_epoch + ceil_div(next_batch, options_.gradient_accumulation) &&
      state_.batches == epoch * all + next_batch)
    return;
  next_batch = state_.finished ? all : 0;
  state_.step = epoch * per_epoch + (state_.finished ? per_epoch : 0);
  state_.batches = epoch * all + next_batch;
  state_.epoch = {};
}

void Trainer::restore(int64_t per_epoch, const CompressionState& compression) {
  if (options_.data_changed) count_again(per_epoch);
  const auto [epoch, next_batch] = state_.loader;
  batches_.seek(state_.loader);
  FRUGAL_CHECK(state_.step <= steps_ && epoch <= epochs_,
               "expected a step of at most {} and an epoch of at most {}, got {} and {}", steps_,
               epochs_, state_.step, epoch);
  const int64_t parts = options_.gradient_accumulation;
  FRUGAL_CHECK(state_.step == epoch * per_epoch + ceil_div(next_batch, parts) &&
                   state_.batches == epoch * batches_.batches() + next_batch,
               "expected the step and the batches of epoch {} and batch {}, got {} and {}", epoch,
               next_batch, state_.step, state_.batches);
  FRUGAL_CHECK(state_.rng.seed == options_.seed && state_.rng.offset >= streams::kDropout.first,
               "expected a stream of the seed {}, got one of {} at {}", options_.seed,
               state_.rng.seed, state_.rng.offset);
  rng_.restore({rng_.state().seed, state_.rng.offset});
  thaw_if_due();
  compression_.restore(compression);
  if (early_stop_) {
    EarlyStopState& stop = state_.early_stop;
    // Earlier versions kept no state where the patience counted epochs.
    if (!stop.best && state_.best && state_.last)
      stop = {measure_of(*state_.best, options_.early_stop.metric, task_),
              state_.last->epoch - state_.best->epoch};
    early_stop_->restore(stop);
  }
  if (!options_.extend || !state_.finished || state_.step >= steps_) return;
  // Else run() would end the last epoch a second time.
  state_.finished = false;
  state_.ended.clear();
  if (batches_.state().next_batch == batches_.batches()) next_epoch();
}

void Trainer::next_epoch() {
  batches_.next();  // the end of the epoch: moves on to the next
  thaw_if_due();
}

// At the beginning of an epoch and before its checkpoint, so that the epoch alone says what is
// frozen.
void Trainer::thaw_if_due() {
  if (options_.freeze_epochs == 0 || batches_.state().epoch < options_.freeze_epochs) return;
  if (!thaw(model_)) return;
  exchange_->take_parameters_of(model_);
  compression_.start_anew(options_.freeze_epochs *
                          ceil_div(batches_.batches(), options_.gradient_accumulation));
  if constexpr (kHasCuda)
    if (captured_ != nullptr)
      captured_ = std::make_shared<CapturedStep>(task_, model_, compression_.policy());
}

bool Trainer::epoch_over() const {
  return batches_.state().next_batch == batches_.batches() || state_.step == steps_;
}

bool Trainer::run() {
  const HeldCopiesScope copies;  // what this run makes does not count in the next one's memory
  const int64_t every = options_.checkpoint_interval;
  written_ = begun_ = Clock::now();
  while (!state_.finished) {
    if (stops()) {
      stopped_ = false;
      checkpoint();
      return false;
    }
    if (epoch_over()) {
      if (finish_epoch() && checkpoint_is_due()) checkpoint();
      continue;
    }
    step();
    if (options_.folder != nullptr) options_.folder->keep();
    if (every > 0 && state_.step % every == 0 && !epoch_over()) checkpoint();
  }
  return true;
}

// Ranks draw the same number of keys in most networks. Where they do not, all go on from the
// furthest, so that one offset restores all of them.
bool Trainer::stops() {
  const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
  const bool is_late = options_.max_seconds > 0 && seconds >= options_.max_seconds;
  const bool wanted = stopped_ || is_late || (options_.stop && options_.stop());
  if (ranks_.alone()) return wanted;
  const RngKey here = rng_.state();
  const CategoryScope scope(Category::workspace);
  const Tensor most =
      Tensor::from<int64_t>({wanted ? 1 : 0, static_cast<int64_t>(here.offset)}, {2});
  ranks_.communicator().all_reduce(most, distributed::Reduction::max, "the beginning of a step");
  rng_.restore({here.seed, static_cast<uint64_t>(most.item<int64_t>(1))});
  return most.item<int64_t>(0) != 0;
}

void Trainer::step() {
  const Clock::time_point begin = Clock::now();
  const int64_t left = batches_.batches() - batches_.state().next_batch;
  const std::optional<double> momentum = schedule_->momentum(state_.step);
  if (momentum) optimizer_.set_momentum(*momentum);
  StepCall call;
  call.lr = schedule_->lr(state_.step);
  call.rng = &rng_;
  call.parts = std::min(options_.gradient_accumulation, left);
  call.progress = static_cast<double>(state_.step + 1) / static_cast<double>(steps_);
  call.measures_norms = measures_norms();
  Watch watch(*this, call.measures_norms, is_recorded());
  const double watched = compression_.adaptation_seconds() + compression_.tracking_seconds();
  compression_.begin_step(state_.step + 1);
  StepResult result = step_->run(watch, call);
  ++state_.step;
  if (std::optional<StepRecorder>& recorder = watch.recorder()) {
    result.memory = recorder->with_peak(result.memory);
    options_.on_record(recorder->finish(result.memory), state_.step);
    recorder.reset();
  }
  result.memory = ranks_.most(result.memory);
  state_.memory.raise(result.memory);
  for (const auto& event : compression_.after_update(result.memory, call.lr, result.loss, momentum))
    if (options_.on_event) options_.on_event(event, state_.step);
  if constexpr (kHasCuda)
    if (compression_.decided_anew() && captured_ != nullptr) captured_->forget();
  const double measured =
      compression_.adaptation_seconds() + compression_.tracking_seconds() - watched;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count() - measured;
  finish(result, watch, call.lr, seconds);
}

// The first step of a process makes what later steps use again: the matrix of a whole graph, and
// the weights of pixels' classes. (What is made of a sampled graph lasts for its step alone.) Where
// that step is recorded, a forward pass that leaves no other trace makes it before, so that the
// record is that of a run which was not cut.
void Trainer::make_lasting(const Batch& batch, const Context& of_step) {
  const NoGrad no_grad;
  const RecomputeScope leaves_no_trace;
  Rng rng = rng_;
  Context context = of_step;
  context.rng = &rng;
  Batch copy = batch;
  forward_pass(task_, model_, copy, context, {.label_smoothing = options_.label_smoothing});
  begin_peak(device_);
}

// This rank's share of the next batch. A batch that has fewer samples than there are ranks, or that
// cannot be divided, is computed by all ranks alike, and each counts as one of them.
Batch Trainer::next_batch(bool& copied) {
  const data::LoaderState here = batches_.state();
  Batch batch = *batches_.next();
  copied = has_small_batches_ && ranks_.any(batch.input.size(0) == 0, "an empty share");
  if (!copied) return batch;
  batches_.set_share({});
  batches_.seek(here);
  batch = *batches_.next();
  batches_.set_share(ranks_.share());
  return batch;
}

// Statistics that ranks wrote by their own share of the batch become those of rank 0.
void Trainer::share_buffers() {
  if (ranks_.alone()) return;
  NamedTensors buffers;
  for (const auto& b : model_.buffers())
    if (b.use == Module::BufferUse::statistics) buffers.emplace_back(b.name, *b.buffer);
  distributed::broadcast_values(ranks_.communicator(), buffers);
}

bool Trainer::measures_norms() const {
  return options_.grad_norms > 0 && (state_.step + 1) % options_.grad_norms == 0;
}

bool Trainer::is_recorded() const {
  const auto [epoch, batch] = batches_.state();
  return options_.on_record &&
         (state_.step == 1 ||
          (batch == 0 && epoch > 0 && std::has_single_bit(static_cast<uint64_t>(epoch + 1))));
}

// Layers in the order of their first parameters.
LayerNorms Trainer::layer_norms(const UpdateInBackward::Squares& squares) const {
  LayerNorms norms;  // sums of squares until the end
  std::map<std::string, size_t> known;
  const std::vector<std::optional<double>> of_gradients = exchange_->norms(parameters_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const GradAccumulator* const leaf = parameters_[i].accumulator().get();
    const auto found = squares.find(leaf);
    if (found == squares.end() && !of_gradients[i]) continue;
    const double norm = found != squares.end() ? std::sqrt(found->second) : *of_gradients[i];
    const auto [place, added] = known.emplace(layers_[i], norms.size());
    if (added) norms.emplace_back(layers_[i], 0);
    norms[place->second].second += norm * norm;
  }
  for (auto& [name, value] : norms) value = std::sqrt(value);
  return norms;
}

void Trainer::finish(const StepResult& step, Watch& watch, double lr, double seconds) {
  times_->add(seconds, watch.samples(), step.units);
  StepReport report;
  report.epoch = batches_.state().epoch + 1;
  report.step = state_.step;
  report.lr = lr;
  report.gradient_norm = step.norm;
  report.layer_norms = watch.take_layer_norms();
  report.memory = step.memory;
  if (step.memory.packed_elements > 0 && !compression_.offload_stats())
    report.mean_bits = 8 * static_cast<double>(step.memory.packed) /
                       static_cast<double>(step.memory.packed_elements);
  state_.last_step = {report.lr, report.mean_bits, step.memory.saved()};
  state_.seconds += seconds;
  std::string warning;
  if (loss_watch_ != nullptr)
    warning = loss_watch_->add(state_.step, step.loss, std::max<int64_t>(watch.samples(), 1), lr);
  if (!warning.empty() && ranks_.rank() == 0) log().warn("{}", warning);
  const Totals& recent = state_.interval.samples > 0 ? state_.interval : state_.epoch;
  report.loss = recent.mean_loss();
  report.accuracy = recent.accuracy();
  report.logs = state_.step % options_.log_interval == 0;
  if (options_.on_step && !options_.on_step(report)) stopped_ = true;
  if (report.logs) state_.interval = {};
}

// A sentence and a blank, or nothing where the run has no checkpoint.
std::string Trainer::what_is_kept() const {
  const bool has = options_.folder != nullptr && options_.folder->has_checkpoint();
  return has ? "The last checkpoint is kept. " : "";
}

void Trainer::check_finite(double value, const char* what) {
  if (std::isfinite(value)) return;
  batches_.seek(last_batch_);
  rng_.restore(last_rng_);
  Context context;
  context.rng = &rng_;
  const Batch batch = *batches_.next();
  std::string where;
  if (batch.input.size(0) > 0) where = find_nonfinite(task_, model_, batch, context);
  // All ranks report what the first rank that has such a tensor found.
  if (!ranks_.alone()) {
    const std::vector<std::string> found =
        ranks_.communicator().all_gather(where, "the tensor that is not finite");
    where.clear();
    for (size_t r = 0; r < found.size() && where.empty(); ++r)
      if (!found[r].empty()) where = fmt::format("{} of rank {}", found[r], r);
  }
  throw NotFinite(fmt::format("[train] step {}: the {} is {}; first non-finite tensor: {}. {}{}",
                              state_.step + 1, what, std::isnan(value) ? std::abs(value) : value,
                              where.empty() ? "none, a sum overflows" : where, what_is_kept(),
                              advice_against_divergence(schedule_->lr(state_.step))));
}

bool Trainer::is_better(const EpochResult& a, const EpochResult& b) const {
  if (early_stop_) {
    const std::string& metric = options_.early_stop.metric;
    return measure_of(a, metric, task_) > measure_of(b, metric, task_);
  }
  return score_of(a, task_) > score_of(b, task_);
}

bool Trainer::evaluate_epoch(EpochReport& report) {
  std::optional<Evaluation> validation;
  std::optional<optim::Ema::Swap> average;
  if (optim::Ema* const ema = optimizer_.averages()) average.emplace(*ema);
  const auto judge = [&](const char* set, data::BatchSource& batches) {
    try {
      return evaluate(task_, model_, batches, options_.stop, ranks_);
    } catch (const NotFinite& e) {
      throw NotFinite(fmt::format("[train] step {}, the {} set: {}{}", state_.step, set,
                                  what_is_kept(), e.what()));
    }
  };
  if (options_.validation != nullptr && !(validation = judge("validation", *options_.validation)))
    return false;
  const auto test = judge("test", *options_.test);
  if (!test) return false;
  state_.last = {report.epoch, state_.step, state_.epoch.mean_loss(), state_.epoch.accuracy(),
                 *test,        validation};
  report.result = state_.last;
  keep(*state_.last, average.has_value());
  if (state_.best && !is_better(*state_.last, *state_.best)) return true;
  state_.best = state_.last;
  if (options_.folder != nullptr) options_.folder->save_best(state_, model_, average.has_value());
  return true;
}

void Trainer::keep(const EpochResult& result, bool averaged) {
  if (options_.keep_best == 1) return;
  std::vector<EpochResult>& kept = state_.kept;
  const auto place = std::find_if(
      kept.begin(), kept.end(), [&](const EpochResult& other) { return is_better(result, other); });
  if (place - kept.begin() >= options_.keep_best) return;
  kept.insert(place, result);
  if (static_cast<int64_t>(kept.size()) > options_.keep_best) kept.pop_back();
  if (options_.folder != nullptr) options_.folder->save_kept(state_, model_, averaged);
}

bool Trainer::finish_epoch() {
  EpochReport report;
  report.epoch = batches_.state().epoch + 1;
  report.step = state_.step;
  report.train_loss = state_.epoch.mean_loss();
  report.train_accuracy = state_.epoch.accuracy();
  report.lr = state_.last_step.lr;
  report.mean_bits = state_.last_step.mean_bits;
  report.saved = state_.last_step.saved;
  report.seconds = state_.seconds;
  report.last = state_.step == steps_;
  const int64_t evaluated_before = state_.last ? state_.last->epoch : 0;
  if (options_.test != nullptr && (report.last || report.epoch % options_.eval_interval == 0) &&
      !evaluate_epoch(report))
    return false;
  // Only at epochs with an evaluation, so that the evaluation judges the last weights.
  if (report.result && early_stop_) {
    report.stopped_early = early_stop_->add(*report.result, report.epoch - evaluated_before);
    state_.early_stop = early_stop_->state();
  }
  if (options_.on_epoch && !options_.on_epoch(report)) stopped_ = true;
  state_.epoch = {};
  state_.finished = report.last || report.stopped_early;
  const bool counts_epochs = options_.early_stop.unit == EarlyStopOptions::Unit::epochs;
  state_.ended = report.last             ? (options_.steps > 0 ? "steps" : "epochs")
                 : !report.stopped_early ? ""
                 : counts_epochs         ? "patience"
                                         : "early_stop";
  if (!state_.finished) next_epoch();
  return true;
}

// Epochs may be as short as a step, and a checkpoint takes several writes to the disk.
bool Trainer::checkpoint_is_due() {
  if (!writes_) return false;
  const int64_t every = options_.checkpoint_interval;
  if (state_.finished || (every > 0 && state_.step % every == 0)) return true;
  const double waited = std::chrono::duration<double>(Clock::now() - written_).count();
  const bool is_due = options_.folder != nullptr && waited >= options_.checkpoint_seconds;
  return ranks_.any(is_due, "a checkpoint that is due");
}

void Trainer::checkpoint() {
  if (!writes_) return;
  const CategoryScope scope(Category::workspace);
  const NamedTensors optimizer = optimizer_.state();  // all ranks may have a part of it
  state_.loader = batches_.state();
  state_.rng = rng_.state();
  const CompressionState compression = compression_.state();
  const NamedTensors exchange = exchange_->state();
  if (options_.folder != nullptr)
    options_.folder->save(state_, compression, model_, optimizer, exchange);
  save_average();
  // A rank that ended before the file is there would end rank 0, too.
  ranks_.communicator().barrier("the checkpoint");
  written_ = Clock::now();
  if (options_.on_checkpoint && !state_.finished) options_.on_checkpoint(state_.step);
}

void Trainer::save_average() {
  optim::Ema* const ema = optimizer_.averages();
  if (ema == nullptr || options_.folder == nullptr) return;
  const optim::Ema::Swap average(*ema);
  options_.folder->save_average(state_, model_);
}

Speed Trainer::speed() const {
  Speed speed;
  speed.samples_per_second = times_->samples_per_second();
  speed.unit = unit_of(task_.spec());
  speed.units_per_second = times_->units_per_second();
  const double adapted = compression_.adaptation_seconds();
  const double tracked = compression_.tracking_seconds();
  const double all = times_->seconds() + adapted + tracked;
  if (all > 0) speed.adaptation_share = adapted / all;
  if (all > 0) speed.tracking_share = tracked / all;
  speed.step_ms_median = 1000 * times_->median();
  return speed;
}

std::optional<RanksReport> Trainer::ranks_report() const {
  if (ranks_.alone()) return std::nullopt;
  RanksReport report;
  report.ranks = ranks_.size();
  const double n = ranks_.size();
  const double all = std::max(times_->seconds(), 1e-9);
  report.communication = ranks_.sum(exchange_->communication() / all, "seconds of sums") / n;
  report.waiting = ranks_.sum(exchange_->waiting() / all, "seconds of waiting") / n;
  const double computed = std::max(all - exchange_->waiting(), 1e-9);
  const double mean = ranks_.sum(computed, "seconds of computing") / n;
  const double slowest = ranks_.communicator().all_reduce(computed, distributed::Reduction::max,
                                                          "the most seconds of computing");
  report.imbalance = slowest / mean - 1;
  report.step_bytes = exchange_->bytes() / std::max<int64_t>(times_->steps(), 1);
  return report;
}

std::optional<EpochResult> fit(Module& model, Optimizer& optimizer, optim::SchedulePtr schedule,
                               data::BatchSource& batches, const TrainerOptions& options) {
  Trainer trainer(model, optimizer, std::move(schedule), batches, options);
  trainer.run();
  return trainer.state().last;
}

}  // namespace frugal::train

#include "apps/trainer.h"

#include <cmath>

#include "apps/captured_step.h"
#include "apps/cli/signals.h"
#include "apps/config/make_data.h"
#include "apps/config/make_model.h"
#include "apps/config/make_optimizer.h"
#include "apps/config/make_policy.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "apps/evaluate.h"
#include "compress/policies/offload_policy.h"
#include "core/integers.h"
#include "core/random_streams.h"
#include "models/graph_layers.h"
#include "ops/precision.h"
#include "optim/averaged.h"
#include "optim/clip.h"

namespace frugal::apps {
namespace {

// The averages of parameters that are evaluated; nullptr without optim.ema.
optim::Ema* average_of(Optimizer& optimizer) {
  auto* const averaged = dynamic_cast<optim::Averaged*>(&optimizer);
  return averaged != nullptr ? &averaged->average() : nullptr;
}

}  // namespace

Trainer::Trainer(const Config& config, const TrainOptions& options)
    : config_(config), options_(options), device_(set_up_computing_device(config.run, "trained")) {
  if (config_.compression.policy == "budget") {
    planner_.emplace(config_);
    planner_->apply(config_);
    ops::set_convolution_workspace(config_.run.workspace_limit);
  }
  // A budget of the peak is one of the memory that is held, too.
  const bool of_peak = planner_ && !planner_->of_activations();
  allocator(device_).set_most_reserved(of_peak ? planner_->limit() : 0);
  // The folder first: what cannot be written should say so before the data are read.
  if (!options_.out.empty()) {
    folder_ = std::make_unique<RunFolder>(options_.out, options_.resume);
  }
  train_ = make_batches(config_, Split::train);
  test_ = make_batches(config_, Split::test);
  validation_ = make_batches(config_, Split::validation);
  if (config_.train.patience > 0 && !validation_)
    throw ConfigError("train.patience",
                      fmt::format("expected 0, since {} has no validation set, got {}",
                                  config_.data.name, config_.train.patience));
  spec_ = batch_spec(config_);
  model_ = make_model(config_, spec_, device_);
  optimizer_ = make_optimizer(config_, *model_);
  policy_ = make_policy(config_.compression, static_cast<uint64_t>(config_.run.seed));
  adaptive_ = find_in<compress::AdaptivePolicy>(*policy_);
  learner_ = find_in<compress::Learner>(*policy_);
  if (planner_) {
    budget_ = find_in<compress::BudgetPolicy>(*policy_);
    planner_->adopt(*budget_);
  }
  if (adaptive_ != nullptr) {
    SensitivityOptions measuring = sensitivity_options(config_);
    if (planner_) {
      measuring.allocate = [this] { planner_->plan_again(*budget_); };
      measuring.most = [this] { return planner_->most_samples(); };
    }
    adaptation_.emplace(*model_, *policy_, measuring);
  }
  if (const auto tracked = tracking_options(config_))
    tracking_.emplace(*model_, *policy_, *tracked);
  if constexpr (kHasCuda)
    if (config_.run.cuda_graphs) {
      if (config_.optim.in_backward || !config_.compression.offload.empty() ||
          config_.train.gradient_accumulation > 1)
        throw ConfigError("cuda_graphs",
                          "expected false with optim.in_backward, compression.offload or "
                          "train.gradient_accumulation");
      captured_ = std::make_shared<CapturedStep>(*model_, policy_.get());
    }
  for (const auto& p : model_->parameters()) parameters_.push_back(*p.parameter);
  const int64_t per_epoch = ceil_div(train_->batches(), config_.train.gradient_accumulation);
  steps_ = config_.train.steps > 0 ? config_.train.steps : config_.train.epochs * per_epoch;
  epochs_ = ceil_div(steps_, per_epoch);
  schedule_ = make_schedule(config_, per_epoch, steps_);
  rng_ = streams::kDropout.rng(static_cast<uint64_t>(config_.run.seed));
  if (folder_ != nullptr && folder_->has_checkpoint()) {
    state_ = folder_->load(config_, *model_, *optimizer_);
    try {
      restore(per_epoch);
    } catch (const std::exception& e) {
      throw Error(
          fmt::format("[checkpoint] the state of the run in {} does not fit its "
                      "configuration: {}",
                      folder_->path(), e.what()));
    }
    save_average();
  }
  // The configuration after all that can fail: a start that fails leaves nothing.
  if (folder_ != nullptr) {
    if (!folder_->has_checkpoint()) folder_->write("config.json", to_json(config_));
    folder_->start_metrics(state_.metrics_bytes);
  }
  if (state_.metrics_bytes == 0) log_plan();
  if (!options_.quiet) progress_ = std::make_unique<Progress>();
  if (progress_ != nullptr && state_.step > 0)
    progress_->say(fmt::format("resumed at step {} of {}", state_.step, steps_));
}

void Trainer::restore(int64_t per_epoch) {
  const auto [epoch, next_batch] = state_.loader;
  train_->seek(state_.loader);
  FRUGAL_CHECK(state_.step <= steps_ && epoch <= epochs_,
               "expected a step of at most {} and an epoch of at most {}, got {} and {}", steps_,
               epochs_, state_.step, epoch);
  const int64_t parts = config_.train.gradient_accumulation;
  FRUGAL_CHECK(state_.step == epoch * per_epoch + ceil_div(next_batch, parts) &&
                   state_.batches == epoch * train_->batches() + next_batch,
               "expected the step and the batches of epoch {} and batch {}, got {} and {}", epoch,
               next_batch, state_.step, state_.batches);
  FRUGAL_CHECK(state_.rng.seed == rng_.state().seed && state_.rng.offset >= streams::kDropout.first,
               "expected a stream of the seed {}, got one of {} at {}", config_.run.seed,
               state_.rng.seed, state_.rng.offset);
  const auto check = [](bool wanted, bool there, const char* what) {
    FRUGAL_CHECK(wanted == there, "expected {} {}, got {}", wanted ? "the" : "no", what,
                 there ? "some" : "none");
  };
  check(tracking_.has_value(), !state_.tracking.empty(), "numbers of a tracker");
  check(adaptive_ != nullptr, state_.adaptive.has_value(), "widths of an adaptive policy");
  check(learner_ != nullptr, !state_.learned.empty(), "numbers of a policy that learns");
  check(planner_.has_value(), state_.planner.has_value(), "state of a planner");
  rng_.restore(state_.rng);
  if (tracking_) tracking_->restore(state_.tracking);
  if (adaptive_ != nullptr) adaptive_->restore(*state_.adaptive);
  if (learner_ != nullptr) learner_->restore_learned(state_.learned);
  if (planner_) planner_->resume(*state_.planner, *budget_);
  offload_before_ = state_.offload;
}

// Of all parts of the run.
std::optional<compress::OffloadStats> Trainer::offload_stats() const {
  const auto* moving = find_in<compress::OffloadPolicy>(*policy_);
  if (moving != nullptr) return offload_before_ + moving->store().stats();
  return std::nullopt;
}

bool Trainer::epoch_over() const {
  return train_->state().next_batch == train_->batches() || state_.step == steps_;
}

Json Trainer::run() {
  auto stop_if_asked = [&] {
    if (signal_received() == 0) return;
    checkpoint();
    const std::string at = fmt::format("at step {} of {}", state_.step, steps_);
    throw Interrupted(signal_received(),
                      folder_ == nullptr
                          ? at + "; without --out nothing was saved"
                          : fmt::format("{}; the checkpoint is in {}/checkpoint. The same command "
                                        "with --resume goes on from it",
                                        at, options_.out));
  };
  const int64_t every = config_.train.checkpoint_interval;
  while (!state_.finished) {
    stop_if_asked();
    if (epoch_over()) {
      if (finish_epoch()) checkpoint();
      continue;
    }
    step();
    if (folder_ != nullptr) folder_->keep();
    if (every > 0 && state_.step % every == 0 && !epoch_over()) checkpoint();
  }
  Json summary = summary_json(config_, state_, speed(), offload_stats());
  if (tracking_) summary["convergence"] = tracking_->json();
  if (folder_ != nullptr) folder_->write("summary.json", summary);
  return summary;
}

void Trainer::step() {
  const auto begin = Clock::now();
  const double tracked = tracking_ ? tracking_->seconds() : 0;
  // So that a step takes the same memory in a run that was cut before it.
  if (auto* graph = dynamic_cast<models::GraphModule*>(model_.get())) graph->forget_idle();
  begin_peak(device_);
  model_->zero_grad();
  Context context;
  context.rng = &rng_;
  context.checkpointed_blocks = checkpointed_blocks(config_.train);
  const int64_t left = train_->batches() - train_->state().next_batch;
  const int64_t parts = std::min(config_.train.gradient_accumulation, left);
  StepOptions options;
  options.label_smoothing = config_.train.label_smoothing;
  PartWeights weights(parts);
  const double lr = schedule_->lr(state_.step);
  UpdateInBackward update(*optimizer_, lr);
  if (config_.optim.in_backward) options.leaf_done = update.leaf_done();
  StepMemory memory;
  int64_t samples = 0, units = 0;
  const bool adapt = adaptation_ && adaptation_->due(state_.step + 1);
  const bool track = tracking_ && tracking_->due(state_.step + 1);
  Batch kept;
  double loss = 0;
  std::optional<double> updated;  // the gradients' norm, where the update was part of the pass
  for (int64_t i = 0; i < parts; ++i) {
    last_batch_ = train_->state();
    last_rng_ = rng_.state();
    Batch batch = *train_->next();
    options.weight = weights.next(batch);
    if (track && i == 0) tracking_->before(batch, state_.step + 1);
    begin_step(static_cast<uint64_t>(state_.batches));
    if (adapt && i + 1 == parts) kept = batch;
    units += units_of(spec_, batch);
    const bool learn =
        learner_ != nullptr && learner_->learns_at(static_cast<uint64_t>(state_.batches));
    const BatchResult result =
        pass(std::move(batch), context, options, !adapt && !track && !learn, lr, updated);
    if (learn) decide_anew();
    check_finite(result.loss, "loss");
    loss += result.loss * options.weight;
    ++state_.batches;
    state_.interval.add(result);
    state_.epoch.add(result);
    memory.raise(result.memory);
    samples += result.samples;
  }
  if (const double factor = weights.factor(); factor != 1) {
    optim::scale_grads(parameters_, factor);
    loss *= factor;
  }
  const double norm = updated                     ? *updated
                      : config_.optim.in_backward ? update.norm()
                      : config_.optim.clip_norm > 0
                          ? optim::clip_grad_norm(parameters_, config_.optim.clip_norm)
                          : optim::grad_norm(parameters_);
  check_finite(norm, "gradient norm");
  if (!updated) optimizer_->step(lr);
  ++state_.step;
  end_peak(device_, memory);
  state_.memory.raise(memory);
  if (planner_ && planner_->observe(memory, *budget_)) {
    log_plan();
    decide_anew();
  }
  const double spent = tracking_ ? tracking_->seconds() - tracked : 0;
  times_.add(std::chrono::duration<double>(Clock::now() - begin).count() - spent, samples, units);
  if (tracking_) tracking_->stepped(lr, loss);
  if (track) {
    if (tracking_->after(state_.step)) decide_anew();
    log_convergence();
  }
  if (adapt) {
    const auto start = Clock::now();
    adaptation_->refresh(kept, state_.step,
                         {static_cast<uint64_t>(state_.batches - 1), last_rng_,
                          config_.train.label_smoothing, checkpointed_blocks(config_.train)});
    adapt_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
    log_widths();
    log_plan();
    decide_anew();
  }
  show();
  if (state_.step % config_.train.log_interval == 0) log_step(lr, norm);
}

BatchResult Trainer::pass(Batch batch, Context& context, const StepOptions& options, bool usual,
                          double lr, std::optional<double>& norm) {
  if constexpr (kHasCuda)
    if (captured_ != nullptr) {
      if (usual) {
        const StepUpdate update{*optimizer_, lr, true, config_.optim.clip_norm};
        const CapturedResult result = captured_->run(
            std::move(batch), context, options, static_cast<uint64_t>(state_.batches), &update);
        if (result.updated) norm = result.norm;
        return result.batch;
      }
      captured_->forget();  // so that no gradients are there beside those that are measured
    }
  return forward_backward(*model_, std::move(batch), context, policy_.get(), options);
}

void Trainer::decide_anew() {
  if constexpr (kHasCuda)
    if (captured_ != nullptr) captured_->forget();
}

void Trainer::check_finite(double value, const char* what) {
  if (std::isfinite(value)) return;
  train_->seek(last_batch_);
  rng_.restore(last_rng_);
  Context context;
  context.rng = &rng_;
  const std::string where = find_nonfinite(*model_, *train_->next(), context);
  throw Error(
      fmt::format("[train] step {}: the {} is {}; first non-finite tensor: {}. The last checkpoint "
                  "is kept. Try "
                  "a lower optim.lr (now {}), optim.clip_norm, or a longer warm-up",
                  state_.step + 1, what, value, where.empty() ? "none, a sum overflows" : where,
                  config_.optim.lr));
}

void Trainer::show() {
  if (progress_ != nullptr && progress_->live()) progress_->show(progress_line());
}

ProgressLine Trainer::progress_line() const {
  ProgressLine line;
  line.epoch = train_->state().epoch + 1;
  line.epochs = epochs_;
  line.step = state_.step;
  line.steps = steps_;
  const Totals& recent = state_.interval.samples > 0 ? state_.interval : state_.epoch;
  line.loss = recent.mean_loss();
  line.accuracy = recent.accuracy();
  line.unit = unit_of(spec_);
  line.units_per_second = times_.recent_units_per_second();
  line.memory = state_.memory.peak;
  line.seconds_left = times_.recent() * static_cast<double>(steps_ - state_.step);
  return line;
}

void Trainer::log_step(double lr, double norm) {
  if (folder_ != nullptr)
    folder_->append_metrics({{"type", "step"},
                             {"epoch", train_->state().epoch + 1},
                             {"step", state_.step},
                             {"loss", state_.interval.mean_loss()},
                             {"accuracy", state_.interval.accuracy()},
                             {"lr", lr},
                             {"grad_norm", norm}});
  if (progress_ != nullptr && !progress_->live()) progress_->say(progress_text(progress_line()));
  state_.interval = {};
}

void Trainer::log_widths() {
  if (folder_ == nullptr) return;
  Json bits = Json::array();
  for (const auto& item : adaptive_->items()) bits.push_back(item.bits);
  folder_->append_metrics({{"type", "widths"},
                           {"step", state_.step},
                           {"average_bits", adaptive_->average_bits()},
                           {"predicted_variance", adaptive_->predicted_variance()},
                           {"bits", bits}});
}

void Trainer::log_convergence() {
  Json line = tracking_->json();
  if (line.is_null()) return;
  if (progress_ != nullptr) progress_->say(noise_text(line, state_.step));
  if (folder_ == nullptr) return;
  line["type"] = "convergence";
  line["step"] = state_.step;
  folder_->append_metrics(line);
}

void Trainer::log_plan() {
  if (!planner_ || folder_ == nullptr) return;
  Json line = planner_->report();
  line["type"] = "plan";
  line["step"] = state_.step;
  folder_->append_metrics(line);
}

bool Trainer::is_better(const EpochResult& a, const EpochResult& b) const {
  if (config_.train.patience > 0) return a.validation->loss < b.validation->loss;
  return score_of(a, spec_) > score_of(b, spec_);
}

bool Trainer::finish_epoch() {
  const int64_t epoch = train_->state().epoch + 1;
  const bool last = state_.step == steps_;
  const bool judged = last || epoch % config_.train.eval_interval == 0;
  Json line = {{"type", "epoch"},
               {"epoch", epoch},
               {"step", state_.step},
               {"train_loss", state_.epoch.mean_loss()},
               {"train_accuracy", state_.epoch.accuracy()}};
  std::string text = fmt::format("epoch {}/{}  train loss {:.4f}  acc {:.2f}%", epoch, epochs_,
                                 state_.epoch.mean_loss(), 100 * state_.epoch.accuracy());
  if (judged) {
    const auto stop = [] { return signal_received() != 0; };
    std::optional<Evaluation> validation;
    std::optional<optim::Ema::Swap> average;
    if (optim::Ema* const ema = average_of(*optimizer_)) average.emplace(*ema);
    if (validation_ && !(validation = evaluate(*model_, *validation_, spec_, stop))) return false;
    const auto test = evaluate(*model_, *test_, spec_, stop);
    if (!test) return false;
    FRUGAL_CHECK(std::isfinite(test->loss), "[train] step {}: the test loss is {}{}", state_.step,
                 test->loss, "; the last checkpoint is kept");
    state_.last = {epoch, state_.step, state_.epoch.mean_loss(), state_.epoch.accuracy(),
                   *test, validation};
    line["test_loss"] = test->loss;
    line["test_accuracy"] = test->accuracy;
    if (test->metric) line["test_" + spec_.metric] = *test->metric;
    if (test->metric) text += fmt::format("  {} {:.4f}", spec_.metric, *test->metric);
    if (validation) line["validation"] = to_json(*validation);
    if (validation) text += fmt::format("  val acc {:.2f}%", 100 * validation->accuracy);
    text += fmt::format("  test loss {:.4f}  acc {:.2f}%", test->loss, 100 * test->accuracy);
    if (!state_.best || is_better(*state_.last, *state_.best)) {
      state_.best = state_.last;
      if (folder_ != nullptr) folder_->save_best(state_, *model_, average.has_value());
    }
  }
  if (folder_ != nullptr) folder_->append_metrics(line);
  if (progress_ != nullptr) progress_->say(text);
  state_.epoch = {};
  const int64_t patience = config_.train.patience;
  // At epochs with an evaluation alone, so that the last weights are those that `final` judges.
  const bool out_of_patience =
      judged && patience > 0 && state_.best && epoch - state_.best->epoch >= patience;
  if (out_of_patience && !last && progress_ != nullptr)
    progress_->say(fmt::format("stopped: {} epochs without a lower validation loss than epoch {}'s",
                               patience, state_.best->epoch));
  state_.finished = last || out_of_patience;
  if (!state_.finished) train_->next();  // the end of the epoch: moves on to the next
  return true;
}

void Trainer::checkpoint() {
  if (folder_ == nullptr) return;
  state_.loader = train_->state();
  state_.rng = rng_.state();
  if (adaptive_ != nullptr) state_.adaptive = adaptive_->state();
  if (learner_ != nullptr) state_.learned = learner_->learned();
  if (tracking_) state_.tracking = tracking_->state();
  if (planner_) state_.planner = planner_->state();
  if (const auto offload = offload_stats()) state_.offload = *offload;
  folder_->save(config_, state_, *model_, *optimizer_);
  save_average();
  if (options_.saved && !state_.finished) options_.saved(state_.step);
}

void Trainer::save_average() {
  optim::Ema* const ema = average_of(*optimizer_);
  if (ema == nullptr) return;
  const optim::Ema::Swap average(*ema);
  folder_->save_average(state_, *model_);
}

Speed Trainer::speed() const {
  Speed speed;
  const double seconds = times_.seconds();
  speed.samples_per_second = times_.samples_per_second();
  speed.unit = unit_of(spec_);
  speed.units_per_second = times_.units_per_second();
  const double watched = tracking_ ? tracking_->seconds() : 0;
  const double all = seconds + adapt_seconds_ + watched;
  if (all > 0) speed.adaptation_share = adapt_seconds_ / all;
  if (all > 0) speed.tracking_share = watched / all;
  speed.step_ms_median = 1000 * times_.median();
  return speed;
}

}  // namespace frugal::apps

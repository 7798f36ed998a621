#include "train/compression.h"

#include <algorithm>

#include "compress/policies/choice.h"
#include "core/stopwatch.h"
#include "train/compression_state.h"
#include "train/noise/convergence.h"
#include "train/noise/sensitivity.h"
#include "train/policy_parts.h"
#include "train/ranks/ranks.h"
#include "train/run/checkpoint.h"

namespace frugal::train {
Compression::Compression(const Task& task, Module& model, const CompressionOptions& options,
                         uint64_t seed, const Ranks& ranks)
    : task_(task),
      model_(model),
      options_(options),
      seed_(seed),
      ranks_(ranks),
      policy_(compress::make_policy(options.choice, model.device(), seed)),
      parts_(std::make_unique<PolicyParts>(*policy_)),
      planner_(options.planner) {
  make();
}

Compression::~Compression() = default;

double Compression::tracking_seconds() const {
  return tracking_seconds_before_ + (tracking_ ? tracking_->seconds() : 0);
}

void Compression::start_anew(int64_t step) {
  if (const auto stats = offload_stats()) offload_before_ = *stats;
  tracking_seconds_before_ = tracking_seconds();
  adaptation_.reset();
  tracking_.reset();
  kept_.reset();
  policy_ = compress::make_policy(options_.choice, model_.device(), seed_);
  parts_ = std::make_unique<PolicyParts>(*policy_);
  make();
  begun_ = step;
  anew_ = true;
}

// What steers the policy.
void Compression::make() {
  if (planner_ != nullptr) {
    FRUGAL_CHECK(parts_->budget != nullptr,
                 "[compression] expected a budget policy beside a planner, got another policy");
    planner_->adopt(*parts_->budget);
  }
  if (parts_->adaptive != nullptr) {
    SensitivityOptions measuring{options_.choice.measuring};
    if (planner_ != nullptr) {
      measuring.allocate = [this] { planner_->plan_again(*parts_->budget); };
      measuring.most = [this] { return planner_->most_samples(); };
    }
    adaptation_ = std::make_unique<Adaptation>(task_, model_, *parts_, measuring, ranks_);
  }
  if (options_.tracking)
    tracking_ = std::make_unique<Tracking>(task_, model_, *parts_, *options_.tracking, ranks_);
}

void Compression::begin_step(int64_t step) {
  step_ = step;
  const bool is_first = begun_ > 0 && step == begun_ + 1;
  adapts_ = adaptation_ && (is_first || adaptation_->due(step));
  tracks_ = tracking_ && tracking_->due(step);
  tracked_ = learned_ = false;
}

void Compression::before_forward(const Batch& batch, const PassSettings& pass, int64_t step,
                                 bool last) {
  if (tracks_ && !std::exchange(tracked_, true)) tracking_->before(batch, step_);
  // After the tracker, whose passes have samples of their own.
  if (parts_->per_sample != nullptr) parts_->per_sample->set_samples(batch.samples);
  frugal::begin_step(pass.number);
  if (parts_->learner != nullptr) {
    parts_->learner->set_step(static_cast<uint64_t>(std::max<int64_t>(step - begun_, 0)));
    learns_ = parts_->learner->learns_in(pass.number);
  }
  if (!adapts_ || !last) return;
  kept_ = std::make_unique<Measured>(adaptation_->keep(batch));
  pass_ = pass;
}

void Compression::after_backward() {
  if (parts_->learner != nullptr) parts_->learner->set_step({});
  anew_ = anew_ || learns_;
  learned_ = learned_ || learns_;
}

std::vector<Compression::Event> Compression::after_update(const StepMemory& memory, double lr,
                                                          double loss,
                                                          std::optional<double> momentum) {
  std::vector<Event> events;
  if (learned_ && !ranks_.alone())
    parts_->learner->restore_learned(
        parts_->learner->joined(gather(ranks_, parts_->learner->learned())));
  bool decided = learned_;
  if (planner_ != nullptr && planner_->observe(memory, *parts_->budget)) {
    anew_ = decided = true;
    events.emplace_back(planner_->report());
  }
  if (tracking_) tracking_->stepped(lr, loss, momentum);
  if (tracks_) {
    const int64_t before = tracking_->tracker().measurements();
    if (tracking_->after(step_)) anew_ = true;
    decided = true;
    // A step that could not be measured says nothing new.
    if (tracking_->tracker().measurements() > before) events.emplace_back(*tracking_->report());
  }
  if (adapts_) {
    {
      const Stopwatch watch(adaptation_seconds_);
      adaptation_->refresh(*std::exchange(kept_, nullptr), step_, pass_);
    }
    anew_ = true;
    share_decisions();
    Widths widths;
    for (const auto& item : parts_->adaptive->items()) {
      widths.bits.push_back(item.bits);
      widths.seqs.push_back(item.seq);
      widths.sensitivities.push_back(item.sensitivity);
    }
    widths.average_bits = parts_->adaptive->average_bits();
    widths.predicted_variance = parts_->adaptive->predicted_variance();
    events.emplace_back(widths);
    if (planner_ != nullptr) events.emplace_back(planner_->report());
  } else if (decided) {
    share_decisions();
  }
  return events;
}

void Compression::share_decisions() {
  if (ranks_.alone()) return;
  State decided = state();
  const compress::OffloadStats moved = offload_before_;
  share(ranks_, decided);
  restore(decided);
  offload_before_ = moved;  // each rank counts what it moves itself
}

bool Compression::adapt(const Batch& batch, int64_t step, const PassSettings& pass) {
  if (!adaptation_) return false;
  adaptation_->refresh(batch, step, pass);
  return true;
}

Compression::State Compression::state() const {
  State state;
  if (parts_->learner != nullptr) state.learned = parts_->learner->learned();
  if (tracking_) state.tracking = tracking_->state();
  if (planner_ != nullptr) state.planner = planner_->state();
  if (const auto stats = offload_stats()) state.offload = *stats;
  return state;
}

void Compression::restore(const State& state) {
  const auto check = [](bool wanted, bool there, const char* what) {
    FRUGAL_CHECK(wanted == there, "expected {} {}, got {}", wanted ? "the" : "no", what,
                 there ? "some" : "none");
  };
  check(tracking_ != nullptr, !state.tracking.empty(), "numbers of a tracker");
  check(parts_->learner != nullptr, !state.learned.empty(), "numbers of a policy that learns");
  check(planner_ != nullptr, state.planner.has_value(), "state of a planner");
  if (tracking_) tracking_->restore(state.tracking);
  if (parts_->learner != nullptr) parts_->learner->restore_learned(state.learned);
  if (planner_ != nullptr) planner_->resume(*state.planner, *parts_->budget);
  offload_before_ = state.offload;
}

std::optional<compress::OffloadStats> Compression::offload_stats() const {
  const compress::PayloadStore* store = nullptr;
  if (parts_->offload != nullptr) store = &parts_->offload->store();
  if (store == nullptr) return std::nullopt;
  return offload_before_ + store->stats();
}

std::optional<PlanReport> Compression::plan() const {
  return planner_ != nullptr ? std::optional(planner_->report()) : std::nullopt;
}

std::optional<Convergence> Compression::convergence() const {
  return tracking_ ? tracking_->report() : std::nullopt;
}

}  // namespace frugal::train

#include "train/trial_run.h"

#include "train/captured_step.h"
#include "train/ranks/gradient_exchange.h"

namespace frugal::train {
namespace {

CompressionOptions without_tracking(CompressionOptions options) {
  options.tracking.reset();
  return options;
}

}  // namespace

TrialRun::TrialRun(const Task& task, Module& model, Optimizer& optimizer, NextBatch next,
                   const TrialOptions& options, Rng& rng)
    : next_(std::move(next)),
      options_(options.step),
      rng_(rng),
      exchange_(std::make_unique<GradientExchange>(one_rank(), model, optimizer, RanksOptions(),
                                                   options.step.in_backward, options.seed)),
      compression_(task, model, without_tracking(options.compression), options.seed),
      step_({task, model, optimizer, *exchange_}, options.step) {
  if constexpr (kHasCuda)
    if (options.cuda_graphs)
      captured_ = std::make_shared<CapturedStep>(task, model, compression_.policy());
}

TrialRun::~TrialRun() = default;

StepResult TrialRun::step(uint64_t number, double lr) {
  number_ = number;
  return step_.run(*this, {.lr = lr, .rng = &rng_});
}

bool TrialRun::adapt(const Batch& batch, int64_t step) {
  const bool adapted = compression_.adapt(
      batch, step, {0, rng_.state(), options_.label_smoothing, options_.checkpointed_blocks});
  if constexpr (kHasCuda)
    if (captured_ != nullptr) captured_->forget();
  return adapted;
}

StepPart TrialRun::next(int64_t) { return {next_()}; }

SavePolicy* TrialRun::before_forward(const Batch& batch, int64_t, bool last, const Context&) {
  compression_.before_forward(batch,
                              {number_, {}, options_.label_smoothing, options_.checkpointed_blocks},
                              static_cast<int64_t>(number_), last);
  return compression_.policy();
}

StepObserver::Capture TrialRun::capture() {
  if (captured_ == nullptr) return {};
  if (compression_.is_usual()) return {captured_.get(), number_};
  if constexpr (kHasCuda) captured_->forget();
  return {};
}

void TrialRun::after_backward(const BatchResult&) { compression_.after_backward(); }

}  // namespace frugal::train

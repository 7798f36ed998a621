// TrialRun: training steps that are measured and not kept, for profiles and benchmarks. They are
// the trainer's steps (train/step.h) under the compression of a run.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "train/compression.h"
#include "train/step.h"

namespace frugal::train {

struct TrialOptions {
  StepOptions step = {};
  CompressionOptions compression = {};  // tracking is left out: its passes are no part of a step
  uint64_t seed = 0;
  bool cuda_graphs = false;  // steps are captured and rerun (CUDA)
};

// Thread safety: none.
class TrialRun final : private StepObserver {
 public:
  using NextBatch = std::function<Batch()>;  // the next batch, on the host

  // All must outlive it. rng: of dropout. Errors: those of Compression.
  TrialRun(const Task& task, Module& model, Optimizer& optimizer, NextBatch next,
           const TrialOptions& options, Rng& rng);
  ~TrialRun() override;

  // number: of the forward pass, which policies that look at gradients now and then go by.
  StepResult step(uint64_t number, double lr = kTrialRate);
  // Measures all sensitivities with a batch on the host and sets the widths, as after step `step`.
  // Returns false where widths do not depend on sensitivities. REQUIRES: the policy decided step 0.
  bool adapt(const Batch& batch, int64_t step);

  Compression& compression() { return compression_; }
  CapturedStep* captured() { return captured_.get(); }  // null without cuda_graphs

 private:
  StepPart next(int64_t part) override;
  SavePolicy* before_forward(const Batch& batch, int64_t part, bool last,
                             const Context& context) override;
  Capture capture() override;
  void after_backward(const BatchResult& result) override;

  NextBatch next_;
  StepOptions options_;
  Rng& rng_;
  std::unique_ptr<GradientExchange> exchange_;
  Compression compression_;
  std::shared_ptr<CapturedStep> captured_;  // shared: deleted by who made it, in CUDA builds only
  TrainingStep step_;
  uint64_t number_ = 0;
};

}  // namespace frugal::train

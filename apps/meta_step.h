// Training steps on `meta`: the bytes of a run's steps, without its memory and its time.
#pragma once
#include <memory>

#include "apps/config/config.h"
#include "apps/config/make_data.h"
#include "apps/training_step.h"
#include "compress/policies/adaptive_policy.h"

namespace frugal::apps {

// The model, optimizer and loader of a configuration, as far as they take memory. What else is
// alive on `meta` does not count. Thread safety: one thread; not within a step of another graph.
class MetaStep {
 public:
  explicit MetaStep(const Config& config);  // REQUIRES: resolved

  // A step of the trainer that keeps tensors as `policy` says (null: everything raw), with batches
  // of `batch` samples.
  StepMemory step(SavePolicy* policy, int64_t batch, int64_t checkpointed_blocks);
  // The peak of an evaluation with batches of `batch` samples.
  int64_t evaluation(int64_t batch);
  // The peak of measuring sensitivities with `samples` of `batch`. REQUIRES: `policy`, in which
  // `adaptive` is, decided a whole step.
  int64_t measuring(SavePolicy& policy, compress::AdaptivePolicy& adaptive, int64_t samples,
                    int64_t batch, int64_t checkpointed_blocks);
  int64_t blocks();                         // that can be checkpointed
  int64_t largest_parameter() const;        // bytes
  bool convolves() const;                   // has the model convolutions?
  int64_t steps() const { return steps_; }  // so far, with evaluations and measurements

 private:
  Batch batch(int64_t samples) const;
  std::vector<Batch> in_flight(int64_t samples) const;
  int64_t parameter_bytes() const;

  Config config_;
  Device device_;
  BatchSpec spec_;
  std::shared_ptr<Module> model_;
  std::unique_ptr<Optimizer> optimizer_;
  int64_t own_ = 0;  // bytes of model and optimizer
  int64_t steps_ = 0;
};

}  // namespace frugal::apps

// Gradients of single batches, for studies that compare them and for `frugal grad`.
#pragma once
#include <vector>

#include "train/noise/sensitivity.h"
#include "train/step_record.h"
#include "train/training_step.h"

namespace frugal::train {

// Takes the gradient of batches as often as a study wants it. Parameters stay as they are; buffers
// change as in training. Thread safety: none.
class GradientProbe {
 public:
  GradientProbe(const Task& task, Module& model) : task_(task), model_(model) {}  // both outlive it

  // Returns the gradients of all parameters, one after the other: f32, on the host. Parameters
  // without a gradient have 0. The policy decides what is kept; null: all is kept raw.
  std::vector<float> gradient(const Batch& batch, SavePolicy* policy, const PassSettings& pass);
  // What such a pass keeps, with the layers. `optimizer`: of the run.
  std::vector<SavedRecord> saved(const Batch& batch, SavePolicy& policy, Optimizer& optimizer,
                                 const PassSettings& pass);
  const StepMemory& memory() const { return memory_; }  // what the last gradient() took

 private:
  BatchResult run(const Batch& batch, SavePolicy* policy, const PassSettings& pass,
                  const PassOptions& options);
  const Task& task_;
  Module& model_;
  StepMemory memory_;
};

// What one batch gives. All tensors are on the host.
struct SingleGradient {
  Tensor loss;         // a scalar
  NamedTensors terms;  // scalars that make the loss; empty: it is one term
  Tensor output;       // undefined where the task has none
  StepMemory memory;   // what both passes took
};
// Leaves the gradients in the parameters. Without targets the loss is the sum of the output.
// Errors: a loss that is not finite.
SingleGradient single_gradient(const Task& task, Module& model, Batch batch, SavePolicy* policy,
                               const PassSettings& pass);

}  // namespace frugal::train

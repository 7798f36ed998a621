// Training steps on `meta`: the bytes of a run's steps, without its memory and its time.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "compress/policies/adaptive_policy.h"
#include "core/tensor_identity.h"
#include "train/planning/borrowed_model.h"
#include "train/planning/planned_run.h"
#include "train/ranks/gradient_exchange.h"
#include "train/step_record.h"
#include "train/training_step.h"

namespace frugal::train {

class StepRecorder;

// Gives `batch` with extras on `meta` that have the shapes of those on the host. `held` remembers
// them.
Batch with_extras_on_meta(Batch batch, Memo<TensorIdentity, Tensor>& held);

// Steps of one run, whose model and optimizer it makes. Other tensors that are alive on `meta` do
// not count. Thread safety: one thread; not within a step of another graph.
class MetaStep {
 public:
  // Its first batches have `batch` samples. Errors: an optimizer of the run that cannot be had
  // without its state.
  MetaStep(const MetaRun& run, int64_t batch);

  // Runs a step of the trainer that keeps tensors as `policy` says (null: everything raw), with
  // batches of `batch` samples.
  StepMemory step(SavePolicy* policy, int64_t batch, int64_t checkpointed_blocks);
  // The highest of each measure in the steps of a run: the first step, which makes the optimizer's
  // state, differs from later ones where Learner::differs_at_first().
  StepMemory highest(SavePolicy* policy, int64_t batch, int64_t checkpointed_blocks);
  // Runs such a step and gives what it keeps, tensor by tensor.
  StepRecord record(SavePolicy& policy, int64_t batch, int64_t checkpointed_blocks);
  // The peak of an evaluation with batches of `batch` samples.
  int64_t evaluation(int64_t batch, int64_t checkpointed_blocks);
  // The peak of measuring sensitivities with `samples` of `batch`. REQUIRES: `policy`, in which
  // `adaptive` is, decided a whole step.
  int64_t measuring(SavePolicy& policy, compress::AdaptivePolicy& adaptive, int64_t samples,
                    int64_t batch, int64_t checkpointed_blocks);
  // From now on, a task whose whole batches have another number of samples.
  void set_task(TaskPtr task) { run_.task = std::move(task); }
  Module& model() { return *model_; }
  int64_t blocks();                   // how many blocks can be checkpointed
  int64_t largest_parameter() const;  // its bytes
  // By how many bytes the peak of such a step is higher where kernels of this machine's CPU run.
  int64_t kernel_bytes(SavePolicy* policy, int64_t batch, int64_t checkpointed_blocks);
  void count_kernels() { run_.counts_kernels = true; }  // from now on
  bool convolves() const;                               // has the model convolutions?
  int64_t steps() const { return steps_; }  // counts those so far, evaluations and measurements too

 private:
  void start();  // makes the optimizer, without its state
  // What the run has for all of its steps: own_, and the buffer of a policy's file.
  CategoryBytes owned_with(SavePolicy* policy) const;
  StepMemory run(SavePolicy* policy, StepRecorder* recorder, int64_t batch,
                 int64_t checkpointed_blocks, bool counts_kernels);
  Batch batch(int64_t samples, bool evaluated = false) const;
  std::vector<Batch> in_flight(int64_t samples, bool evaluated = false) const;
  int64_t parameter_bytes() const;
  class Borrow;  // while one lives, a network of the run is on meta; they nest
  class Watch;

  MetaRun run_;
  Device device_;
  std::optional<BorrowedModel> borrowed_;
  std::optional<BorrowedModel::Scope> lent_;
  std::shared_ptr<Module> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<GradientExchange> exchange_;
  // Remembers the tensors on `meta` that stand for what lies on the host and is equal in all
  // batches. Graphs are remembered by these tensors.
  mutable Memo<TensorIdentity, Tensor> held_{8};
  // The batch of each step where its source holds it, and the input that lies on the host.
  mutable std::optional<Batch> whole_;
  mutable Tensor source_;
  Tensor data_;          // MetaRun::data_bytes
  CategoryBytes own_{};  // the bytes of model, optimizer and what is held for all batches
  int64_t steps_ = 0;
};

}  // namespace frugal::train

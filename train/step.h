// TrainingStep: the body of a training step. The trainer, plans on meta, profiles and benchmarks
// all run it, so what they measure is what training does.
//
// A step drops the last gradients and takes its batches one after the other: its parts, each with a
// forward and a backward pass. Then the gradients become those of all ranks, are clipped, and the
// optimizer updates the parameters. Where batches come from, what decides how activations are kept
// and what is measured is the observer's.
//
//   TrainingStep step({task, model, optimizer, exchange}, {.gradient_accumulation = 2});
//   const StepResult result = step.run(observer, {.lr = 0.1, .rng = &rng});
#pragma once
#include <functional>
#include <vector>

#include "autograd/variable.h"
#include "models/module.h"
#include "optim/optimizer.h"
#include "train/ranks/ranks.h"
#include "train/training_step.h"

namespace frugal::train {

class CapturedStep;
class GradientExchange;

// The rate of updates in steps that are measured and not kept. Its value does not matter.
constexpr double kTrialRate = 1e-3;
// Measured steps have numbers from here on, because policies look at gradients more often in the
// first steps of a run.
constexpr uint64_t kFirstMeasuredStep = 1'000'001;

// What all steps of a run do alike.
struct StepOptions {
  int64_t gradient_accumulation = 1;  // parts of a step
  double label_smoothing = 0;
  double clip_norm = 0;             // the most that a gradient's norm may be; 0: no limit
  bool in_backward = false;         // parameters are updated in the backward pass
  int64_t checkpointed_blocks = 0;  // blocks that are recomputed, see Context
};

// What a step trains. All of it must outlive the step.
struct StepSubject {
  const Task& task;
  Module& model;
  Optimizer& optimizer;
  GradientExchange& exchange;
  const Ranks& ranks = one_rank();
  distributed::CommunicatorPtr statistics = {};  // batch norms see the batches of all its ranks
};

// One step.
struct StepCall {
  double lr = 0;
  Rng* rng = nullptr;           // drives dropout
  int64_t parts = 0;            // fewer than gradient_accumulation at the end of an epoch; 0: all
  double progress = 0;          // the share of the run that has passed when the step has ended
  bool measures_norms = false;  // StepResult::squares is wanted
};

// The batch of a part, on the host.
struct StepPart {
  Batch batch;
  int copies = 1;      // so many ranks compute this very batch; 1: each has its share
  bool counts = true;  // false: another rank counts the samples of this batch
};

struct StepResult {
  StepMemory memory;                  // what the whole step took
  std::vector<BatchResult> results;   // one for each part
  double loss = 0;                    // the mean over the targets of all parts
  double norm = 0;                    // the gradient's, before clipping; 0 on meta
  int64_t units = 0;                  // see units_of()
  UpdateInBackward::Squares squares;  // sums of squares of gradients that in_backward dropped
};

// Gives a step its batches and watches it. The functions are called in the order in which they
// stand here. Thread safety: called by the thread that runs the step.
class StepObserver {
 public:
  // A step of a run on CUDA that may be captured and rerun. null: it runs as it is.
  struct Capture {
    CapturedStep* step = nullptr;
    uint64_t number = 0;  // for begin_step()
  };
  // Called when the forward pass has ended, with its loss and what it saved.
  using AtBackward = std::function<void(const Variable& loss, const StepMemory& memory)>;

  StepObserver() = default;
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;
  virtual ~StepObserver() = default;

  virtual StepPart next(int64_t part) = 0;
  // Begins the forward pass (begin_step()) and says who decides how its activations are kept.
  // null: all are kept raw.
  virtual SavePolicy* before_forward(const Batch& batch, int64_t part, bool last,
                                     const Context& context) = 0;
  virtual Capture capture() { return {}; }
  virtual AtBackward at_backward(int64_t) { return {}; }
  virtual void after_backward(const BatchResult&) {}
  // The gradients are sums over the ranks.
  virtual void after_parts(StepResult&) {}
  // The gradients are whole, but for those that in_backward dropped. They are not clipped, unless
  // the last pass has clipped them. A pass on CUDA may do so if the step is captured or
  // StepCall::measures_norms is not set. A captured step may have made the update, too.
  virtual void before_clipping(StepResult&) {}
  virtual void before_update(const StepResult&) {}
  virtual void after_update() {}
};

// Thread safety: none.
class TrainingStep {
 public:
  TrainingStep(const StepSubject& subject, const StepOptions& options);

  // On meta a step of many parts runs two of them, since each later one takes what the second
  // takes. It runs all where gradients are sparse (embeddings).
  // Errors: those of the passes, the optimizer and the observer.
  StepResult run(StepObserver& observer, const StepCall& call);

 private:
  struct State;
  void add_part(State& state, int64_t part);
  BatchResult pass(State& state, StepPart part, SavePolicy* policy);
  void update(State& state);

  StepSubject subject_;
  StepOptions options_;
  Device device_;
  std::vector<Variable> parameters_;
};

}  // namespace frugal::train

// Compression: the one owner of the save policy while a network trains, and of all that steers it:
// the planner of a memory budget, the adaptation of widths to measured sensitivities, the tracking
// of the gradient's noise with its guard, and what the policy learns.
//
// A step calls, in this order:
//   begin_step()        once
//   before_forward()    for each batch of the step, before its forward pass under policy()
//   after_backward()    for each batch, after its backward pass
//   after_update()      once, after the optimizer's update
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compress/policies/choice.h"
#include "train/noise/tracking_options.h"
#include "train/planning/budget.h"
#include "train/training_step.h"

namespace frugal::train {

class Adaptation;
class Planner;
class Tracking;
struct CompressionState;  // compression_state.h
struct Measured;
struct PolicyParts;

struct CompressionOptions {
  // How saved activations are kept. The trainer makes the plan of a budget that the choice says
  // (train/planning/own_plan.h), unless there is a planner.
  compress::Choice choice = {};
  std::optional<TrackingOptions> tracking = {};  // how the gradient's noise is measured; the guard
  // Keeps a memory budget. Then the choice must be a budget.
  std::shared_ptr<Planner> planner = {};
};

// With several ranks, each measures with its own share of a batch. The ranks take the mean of what
// they measured before anything is decided. Then all of them take what rank 0 decides, so all ranks
// have the same widths.
//
// Thread safety: none. The task, the model and the ranks must outlive it.
class Compression {
 public:
  // Errors: those of compress::make_policy and of Tracking.
  Compression(const Task& task, Module& model, const CompressionOptions& options, uint64_t seed = 0,
              const Ranks& ranks = one_rank());
  Compression(const Compression&) = delete;
  Compression& operator=(const Compression&) = delete;
  ~Compression();

  SavePolicy* policy() const { return policy_.get(); }

  void begin_step(int64_t step);  // `step` is counted from 1
  // Begins forward pass `number` of the run, with a batch on the host. A policy that knows samples
  // again (compress/policies/per_sample.h) is shown Batch::samples. REQUIRES: no gradients before
  // the first batch of a step. `step`, counted from 0, is the one that the pass belongs to.
  void before_forward(const Batch& batch, const PassSettings& pass, int64_t step, bool last);
  // May this pass be the rerun of a captured one? False: something is measured or learned in it.
  bool is_usual() const { return !adapts_ && !tracks_ && !learns_; }
  void after_backward();

  // What happened in a step, for reports.
  struct Widths {
    std::vector<int> bits;                             // one width for each packed tensor
    std::vector<uint64_t> seqs;                        // the SaveInfo::seq of each packed tensor
    std::vector<std::optional<double>> sensitivities;  // as measured (AdaptivePolicy::Item)
    double average_bits = 0, predicted_variance = 0;
  };
  using Event = std::variant<PlanReport, Convergence, Widths>;
  // memory: what the step took. lr: the rate of its update. loss: the mean over its batches.
  // momentum: what the schedule set, if it sets one.
  std::vector<Event> after_update(const StepMemory& memory, double lr, double loss,
                                  std::optional<double> momentum = {});
  // Did decisions change since this was asked last? Then captured steps are no longer right.
  bool decided_anew() { return std::exchange(anew_, false); }

  // Measures all sensitivities with the batch of a pass and sets the widths, as after step `step`.
  // False: widths do not depend on sensitivities. REQUIRES: the policy decided that pass.
  bool adapt(const Batch& batch, int64_t step, const PassSettings& pass);

  // For checkpoints: all that later decisions depend on.
  using State = CompressionState;
  State state() const;
  void restore(const State& state);  // Errors: a state of other options; values that no run has

  // Forgets the policy and all that was learned, because the network saves other tensors from now
  // on: frozen parameters are trained again. Counts of the run go on. `step`, counted from 0, is
  // the first with the other network: policies learn as at the beginning of a run, and
  // sensitivities are measured in it.
  void start_anew(int64_t step);

  // What the whole run moved to the file; none: nothing is moved to a file.
  std::optional<compress::OffloadStats> offload_stats() const;
  std::optional<PlanReport> plan() const;
  std::optional<Convergence> convergence() const;
  double adaptation_seconds() const { return adaptation_seconds_; }
  double tracking_seconds() const;

 private:
  void make();
  void share_decisions();
  const Task& task_;
  Module& model_;
  CompressionOptions options_;
  uint64_t seed_;
  const Ranks& ranks_;
  std::unique_ptr<SavePolicy> policy_;
  std::unique_ptr<PolicyParts> parts_;
  std::shared_ptr<Planner> planner_;
  std::unique_ptr<Adaptation> adaptation_;
  std::unique_ptr<Tracking> tracking_;
  compress::OffloadStats offload_before_;  // what earlier processes or policies of the run moved

  int64_t step_ = 0;
  int64_t begun_ = 0;  // the first step of this network, counted from 0
  bool adapts_ = false, tracks_ = false, tracked_ = false, learns_ = false, anew_ = false;
  bool learned_ = false;  // a pass of this step taught the policy
  // In a step that adapts: samples of its last batch, to measure with, and how the pass over it was
  // made.
  std::unique_ptr<Measured> kept_;
  PassSettings pass_;
  double adaptation_seconds_ = 0;
  double tracking_seconds_before_ = 0;  // what trackers took that were replaced since
};

}  // namespace frugal::train

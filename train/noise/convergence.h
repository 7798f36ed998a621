// Watches, now and then, how noisy a run's gradients are and what compression adds, and lets a
// guard choose the bits by it. Ref: optim/convergence.h, optim/variance_guard.h.
//
// A measurement takes five passes over `samples` of the batch, four before a step and one after it.
// Subgraphs cannot be cut, so the passes take two whole ones. The passes leave no trace: streams,
// statistics, the policy's state and the weights are as without them. Only a sketch of each
// gradient is kept, and without checkpointing each parameter's gradient is dropped as soon as it is
// complete. Variance is what differs between two roundings. Bias is what both have in common,
// compared with a pass that packs with four times the bits, 8 to 16. A policy that rounds to
// nearest (AC-GC) has no variance: its whole error is bias. With a memory budget, bias is measured
// only if that pass takes no more memory than a step. Each of several ranks measures with its own
// share of the batch, and the mean of what they found counts.
#pragma once
#include <functional>
#include <optional>

#include "core/option.h"
#include "optim/convergence.h"
#include "optim/optimizer.h"
#include "optim/variance_guard.h"
#include "train/noise/tracking_options.h"
#include "train/policy_parts.h"
#include "train/training_step.h"

namespace frugal::train {

class Tracking {
 public:
  // Errors: a guard of a policy that has no fineness to set.
  Tracking(const Task& task, Module& model, PolicyParts policy, const TrackingOptions& options,
           const Ranks& ranks = one_rank());

  // Is there something to measure at step `step`, counted from 1? With a guard also at an eighth, a
  // quarter and half of the first interval.
  bool due(int64_t step) const;
  // Call it before the forward pass of such a step, with its first batch. REQUIRES: no gradients.
  // Nothing is measured with a batch of one sample or a gradient that is not finite.
  void before(const Batch& batch, int64_t step);
  // Call it after the optimizer's update. It drops the gradients. True if bits changed.
  bool after(int64_t step);
  // Call it after every step. momentum: this step's, if a schedule changes it.
  void stepped(double lr, double loss, std::optional<double> momentum = {});

  std::optional<Convergence> report() const;   // empty before the first measurement
  double seconds() const { return seconds_; }  // spent here
  const optim::ConvergenceTracker& tracker() const { return tracker_; }

  std::vector<double> state() const;
  // The width of a policy that keeps a state of its own comes from there. Errors: numbers of
  // another form, or not finite, or bits that the policy cannot have.
  void restore(const std::vector<double>& numbers);

 private:
  enum Draw : uint64_t { kFirst, kSecond, kOther, kLater, kDraws, kFine };
  // The gradient of `part`, n of a batch's `of` samples, rounded anew for each draw. nullopt: not
  // finite.
  std::optional<optim::GradientSketch> gradient(const Batch& part, int64_t n, int64_t of,
                                                int64_t step, Draw draw);
  double bits() const;  // the policy's fineness; 0: it has none that can be set
  // Returns the moments of the gradients sampled around the step, or nothing if none were sampled.
  std::optional<optim::GradientMoments> moments(int64_t step);
  // The mean over the ranks that measured.
  std::optional<optim::GradientMoments> joined(
      const std::optional<optim::GradientMoments>& mine) const;

  const Task& task_;
  Module& model_;
  PolicyParts policy_;
  TrackingOptions options_;
  const Ranks& ranks_;
  std::vector<Variable> parameters_;
  optim::LeafIndex leaves_;
  std::vector<int64_t> offsets_;  // where each parameter begins in the joint gradient
  optim::ConvergenceTracker tracker_;
  std::optional<optim::VarianceGuard> guard_;
  bool limited_ = false;  // at its last choice the guard got fewer bits than it wanted
  struct Pending {
    Batch part;
    int64_t n = 0, of = 0;  // samples of it and of the batch
    optim::GradientSamples samples;
  };
  std::optional<Pending> pending_;  // between before() and after()
  int64_t packed_ = 0;              // bytes that the last pass packed
  double measured_bits_ = 0;        // the fineness at the last measurement
  double seconds_ = 0;
};

}  // namespace frugal::train

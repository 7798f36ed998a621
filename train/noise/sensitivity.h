// Measures how much the rounding of each packed tensor adds to the gradient's variance, and gives
// an adaptive policy its widths. Ref: Liu et al. 2022 (GACT), algorithm 1.
//
// The gradient is taken twice, with all seeds equal but tensor l's: c_l = |g0 - g1|^2 / (2 S_l(b)).
// That costs a forward and a backward pass for each tensor. Here the passes take `samples` of the
// batch: samples add independent terms to a mean, so c_l goes with 1 / batch, and the same number
// costs samples / batch of the price. A refresh takes as many tensors as `share` of the samples of
// an interval allow, those that were measured longest ago first; the first one takes them all. It
// takes more samples where much that is packed would have groups of few rows with fewer samples:
// rounding of these groups is finer than that of the whole batch. A tensor that the policy keeps
// raw has no rounding to measure: its last sensitivity stays. Each of several ranks measures with
// its own share of the batch, and the mean of what they found counts.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "compress/policies/adaptive_policy.h"
#include "compress/policies/choice.h"
#include "train/policy_parts.h"
#include "train/training_step.h"

namespace frugal::train {

struct SensitivityOptions : compress::Measuring {
  // Upper limit on samples when the default number would change how values are grouped. 0 disables
  // measuring. Unset: no limit.
  std::function<int64_t()> most = {};
  // Gives the policy its widths after a refresh; none: its own allocate().
  std::function<void()> allocate = {};
};

// c_l of the tensors `seqs` for the whole batch of `of` samples, measured with `batch`, a part of
// it. Gradients are dropped before and after, and one copy of them lives meanwhile; parameters,
// buffers, the policy's state and random streams stay as they are. REQUIRES: the policy, in which
// an AdaptivePolicy is, decided a whole step of this model. Nothing where a loss or a gradient is
// not finite.
std::optional<std::vector<double>> measure_sensitivity(const Task& task, Module& model,
                                                       PolicyParts policy, const Batch& batch,
                                                       int64_t of, const PassSettings& step,
                                                       const std::vector<uint64_t>& seqs);

// What a refresh takes of a batch.
struct Measured {
  Batch batch;
  int64_t of = 0;  // samples of the whole batch
};

class Adaptation {
 public:
  // REQUIRES: an AdaptivePolicy in `policy`.
  Adaptation(const Task& task, Module& model, PolicyParts policy, const SensitivityOptions& options,
             const Ranks& ranks = one_rank());
  // Is there something to do after step `step`, counted from 1?
  bool due(int64_t step) const;
  // What must be kept of the batch of a step after which there is something to do: all of it or,
  // where the step releases its input, a copy of the samples that will be measured.
  Measured keep(const Batch& batch) const;
  // Refreshes sensitivities, of which the mean with the last is taken, and widths with that step's
  // batch. Both stay where a loss or a gradient of the measurement is not finite.
  void refresh(const Measured& kept, int64_t step, const PassSettings& pass);
  void refresh(const Batch& batch, int64_t step, const PassSettings& pass) {
    refresh(Measured{batch, batch.input.size(0)}, step, pass);
  }

 private:
  std::vector<compress::AdaptivePolicy::Item> packed_items() const;
  int64_t whole_of(int64_t samples) const;  // the samples of a whole batch
  // Samples of a batch that are measured; 0: none.
  int64_t samples_of(const Batch& batch, int64_t of,
                     const std::vector<compress::AdaptivePolicy::Item>& items) const;
  // How many samples of a batch of `of` are measured: at most `most`.
  int64_t samples_for(const std::vector<compress::AdaptivePolicy::Item>& items, int64_t most,
                      int64_t of) const;

  const Task& task_;
  Module& model_;
  PolicyParts policy_;
  compress::AdaptivePolicy& adaptive_;  // in policy_
  SensitivityOptions options_;
  const Ranks& ranks_;
};

}  // namespace frugal::train

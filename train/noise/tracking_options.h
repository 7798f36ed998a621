// How the noise of a run's gradients is watched (train/noise/convergence.h), and what was found.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/option.h"
#include "data/dataset.h"

namespace frugal::train {

struct TrackingOptions {
  int64_t interval = 200;  // steps between measurements
  int64_t samples = 32;    // samples of a batch in a pass; at most half of the batch
  // How many samples of a batch of `of` are kept through a step that is measured, if the batch can
  // be cut.
  int64_t held(int64_t of) const { return std::min(samples, of / 2); }
  // Samples of a whole step; with `other` its batches. 0: `batches` times those of the measured
  // one.
  int64_t batch = 0;
  int64_t batches = 1;  // how many batches a step has; a trainer sets it
  // Batches that cannot be cut are compared with this one, drawn apart from those of the steps.
  std::function<Batch(int64_t step)> other = {};
  bool sgd = true;  // the optimizer is SGD, which the bound is for
  double momentum = 0, label_smoothing = 0;
  int64_t checkpointed_blocks = 0;
  uint64_t seed = 0;      // dropout in the passes draws from it
  double guard = 0;       // the allowed Convergence::added_share; 0: bits stay as they are
  double least_bits = 1;  // the guard chooses no fewer bits

  static std::vector<by_name::Option<TrackingOptions>> list();
};

// What was found up to the last measurement. Fields are those of optim::ConvergenceTracker.
// Only SGD has alpha and the bounds; other optimizers leave them empty.
// The bounds take 0 for the least loss. They are empty where a loss may be below 0
// (Task::has_loss_of_at_least_0()).
struct Convergence {
  double gradient_square = 0, mean_gradient_square = 0;
  double minibatch_variance = 0, added_variance = 0, added_share = 0;
  std::optional<double> squared_bias, bias_share;  // none: it was not measured at these bits
  double smoothness = 0;
  std::optional<double> alpha, bound, bound_uncompressed;
  std::optional<bool> bound_applies;
  // bits: the fineness of the policy at the last measurement. next_bits: what the guard chose by it
  // (compress/policies/adjustable.h). None: the policy has no fineness to set.
  std::optional<double> bits, next_bits;
  std::optional<bool> guard_limited;  // with a guard: more bits were wanted than a budget allows
};

}  // namespace frugal::train

// Convergence tracking: how noisy gradients are, how much of the noise compression adds, and which
// bound on the gradient follows. Pure functions: numbers and gradients come in, estimates come out.
//
// One measurement uses five gradients of parts of a batch. Each part has m samples:
//   first, second: of one part at the weights w0, with independent roundings
//   fine:          of the first part at w0, with an independent rounding so fine that it adds next
//                  to nothing
//   other:         of another part at w0, with a further independent rounding
//   later:         of the first part at the weights w1 of the next step, rounded independently
// Their errors are independent. Let V be the variance that rounding adds, B the square of its bias,
// S the variance from the choice of samples, and d the change of the first part's exact gradient
// from w0 to w1. Then, where B does not count beside S and |grad L|^2,
//   E |first - second|^2 / 2              = V
//   E <first - fine, second - fine>       = B
//   E <first - other, second - other>     = 2 S + V
//   E <first, other>                      = |grad L|^2
//   E <later - first, later - second>     = |d|^2 + V
// For a whole step of n samples, V and S are m / n times these values, because samples add
// independent terms to a mean. B stays: a bias that all samples have in common does not become less
// by a mean. Each estimate is unbiased even from a single batch; running averages only make it less
// noisy.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "optim/gradient_sketch.h"

namespace frugal::optim {

// An exponential average that starts without a bias: the weight of values before the first is
// divided out.
class RunningMean {
 public:
  explicit RunningMean(double decay = 0.8) : decay_(decay) {}
  void add(double value);
  void reset() { sum_ = weight_ = count_ = 0; }
  double value() const { return weight_ > 0 ? sum_ / weight_ : 0; }
  int64_t count() const { return static_cast<int64_t>(count_); }
  void save(std::vector<double>& numbers) const;
  void load(const double* numbers);  // reads kNumbers numbers
  static constexpr int64_t kNumbers = 3;

 private:
  double decay_, sum_ = 0, weight_ = 0, count_ = 0;
};

// The result of one measurement, for a whole step.
struct GradientMoments {
  double gradient_square = 0;     // |grad L|^2. This estimate and the next four are unbiased, so
                                  // they may be negative.
  double minibatch_variance = 0;  // S
  double added_variance = 0;      // V
  std::optional<double> squared_bias = {};  // B; none without `fine`
  double gradient_change = 0;               // |d|^2, of one part of the batch
  double weight_change = 0;                 // |w1 - w0|^2
};

struct GradientSamples {
  GradientSketch first, second, other, later;
  std::optional<GradientSketch> fine = {};
  GradientSketch weights_before, weights_after;
};

// share: m / n of the file comment.
GradientMoments moments_of(const GradientSamples& samples, double share);

// The bound for SGD with steps w -= alpha g. The mean over T steps of E |grad L|^2 is at most
//   2 (L_1 - L_inf) / (alpha T) + alpha beta sigma^2      for alpha <= 1 / beta,
// where sigma^2 is the variance of g, here S + V, and L_inf is taken as 0: the loss must never be
// below it. If the mean of g is
// off by a bias, its square B is added.
// Ref: Chen et al. 2021 (ActNN), theorem 2; Bottou, Curtis, Nocedal 2018, theorem 4.8; with a bias:
// Ajalloeian, Stich 2020, lemma 2.
struct ConvergenceBound {
  double value = 0;
  double uncompressed = 0;  // the bound for V = B = 0
  bool applies = false;     // whether alpha beta <= 1
};
ConvergenceBound convergence_bound(double first_loss, double alpha, double steps, double beta,
                                   double minibatch_variance, double added_variance,
                                   double squared_bias = 0);

// The estimates of a run. Not thread-safe.
class ConvergenceTracker {
 public:
  // Call it after every step. alpha: the total change of the weights for one unit of gradient,
  // which is rate / (1 - m) with momentum m.
  void stepped(double alpha, double loss);
  void measured(const GradientMoments& moments);
  // Call it when widths have changed, because compression then adds another variance and bias.
  void forget_added() {
    added_.reset();
    bias_.reset();
  }

  int64_t measurements() const { return gradient_.count(); }
  int64_t added_measurements() const { return added_.count(); }
  double gradient_square() const { return gradient_.value(); }  // running average
  double mean_gradient_square() const;                          // mean over the run
  double minibatch_variance() const { return minibatch_.value(); }
  double added_variance() const { return added_.value(); }
  double squared_bias() const { return bias_.value(); }  // negative at times; 0 before it is known
  bool knows_bias() const { return bias_.count() > 0; }
  // Added variance and squared bias together, over the minibatch variance, or the squared bias
  // alone; 0 if the minibatch variance is not above 0.
  double added_share() const;
  double bias_share() const;
  // beta along the steps taken: sqrt(mean |d|^2 / mean |w1 - w0|^2). The curvature of the loss may
  // be larger in other directions. The curvature for a part of the batch is larger than for the
  // mean over all.
  double smoothness() const;
  double alpha() const { return steps_ > 0 ? alphas_ / steps_ : 0; }  // mean over the run
  ConvergenceBound bound() const;

  // For checkpoints: a restored tracker continues as if the run had not stopped.
  std::vector<double> state() const;
  // Also takes the numbers of earlier versions, which lack the bias. Errors: another count of
  // numbers.
  void restore(const std::vector<double>& numbers);

 private:
  RunningMean gradient_, minibatch_, added_, gradient_change_, weight_change_, bias_;
  double gradient_sum_ = 0, alphas_ = 0, steps_ = 0, first_loss_ = 0;
};

}  // namespace frugal::optim

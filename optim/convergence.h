// Convergence tracking: how noisy gradients are, how much of that compression adds, and what bound
// on the gradient follows. Pure: numbers and gradients come in, estimates come out.
//
// One measurement takes gradients of parts of a batch, all of m samples:
//   first, second: of one part at weights w0, rounded independently
//   other:         of another part at w0, rounded independently of both
//   later:         of the first part at the next step's weights w1, rounded independently
// Their errors are independent, so with V the variance that rounding adds and S that of the choice
// of samples, and d the change of the first part's exact gradient from w0 to w1,
//   E |first - second|^2 / 2              = V
//   E <first - other, second - other>     = 2 S + V
//   E <first, other>                      = |grad L|^2
//   E <later - first, later - second>     = |d|^2 + V
// V and S of a whole step are m / n of these, n its samples: samples add independent terms to a
// mean. Nothing needs averages over more than one batch to be unbiased; running averages only make
// them less noisy.
#pragma once
#include <cstdint>
#include <vector>

#include "optim/gradient_sketch.h"

namespace frugal::optim {

// Exponential average, with the weight of what was never seen taken away.
class RunningMean {
 public:
  explicit RunningMean(double decay = 0.8) : decay_(decay) {}
  void add(double value);
  void reset() { sum_ = weight_ = count_ = 0; }
  double value() const { return weight_ > 0 ? sum_ / weight_ : 0; }
  int64_t count() const { return static_cast<int64_t>(count_); }
  void save(std::vector<double>& numbers) const;
  void load(const double* numbers);  // kNumbers of them
  static constexpr int64_t kNumbers = 3;

 private:
  double decay_, sum_ = 0, weight_ = 0, count_ = 0;
};

// What one measurement says of a whole step.
struct GradientMoments {
  double gradient_square = 0;     // |grad L|^2; unbiased, so below 0 at times, as the next three
  double minibatch_variance = 0;  // S
  double added_variance = 0;      // V
  double gradient_change = 0;     // |d|^2, of one part of the batch
  double weight_change = 0;       // |w1 - w0|^2
};

struct GradientSamples {
  GradientSketch first, second, other, later;
  GradientSketch weights_before, weights_after;
};

// share: m / n.
GradientMoments moments_of(const GradientSamples& samples, double share);

// The bound of SGD with steps w -= alpha g: the mean over T steps of E |grad L|^2 is at most
//   2 (L_1 - L_inf) / (alpha T) + alpha beta sigma^2      for alpha <= 1 / beta,
// sigma^2 the variance of g, here S + V, and L_inf >= 0, taken as 0.
// Ref: Chen et al. 2021 (ActNN), theorem 2; Bottou, Curtis, Nocedal 2018, theorem 4.8.
struct ConvergenceBound {
  double value = 0;
  double uncompressed = 0;  // with V = 0
  bool applies = false;     // alpha beta <= 1
};
ConvergenceBound convergence_bound(double first_loss, double alpha, double steps, double beta,
                                   double minibatch_variance, double added_variance);

// Estimates of a run. Thread safety: none.
class ConvergenceTracker {
 public:
  // Every step. alpha: what a gradient moves the weights by in the end, with momentum m the rate
  // over 1 - m.
  void stepped(double alpha, double loss);
  void measured(const GradientMoments& moments);
  // Widths changed: what compression adds is another now.
  void forget_added_variance() { added_.reset(); }

  int64_t measurements() const { return gradient_.count(); }
  int64_t added_measurements() const { return added_.count(); }
  double gradient_square() const { return gradient_.value(); }  // recent
  double mean_gradient_square() const;                          // over the run
  double minibatch_variance() const { return minibatch_.value(); }
  double added_variance() const { return added_.value(); }
  double added_share() const;  // added over minibatch variance; 0 while that is not above 0
  // beta along the steps taken: sqrt(mean |d|^2 / mean |w1 - w0|^2). The loss may bend more in
  // other directions; of a part of the batch it bends more than the mean over all.
  double smoothness() const;
  double alpha() const { return steps_ > 0 ? alphas_ / steps_ : 0; }  // mean over the run
  ConvergenceBound bound() const;

  // For checkpoints: it goes on as if there had been no stop.
  std::vector<double> state() const;
  void restore(const std::vector<double>& numbers);  // Errors: another count of numbers

 private:
  RunningMean gradient_, minibatch_, added_, gradient_change_, weight_change_;
  double gradient_sum_ = 0, alphas_ = 0, steps_ = 0, first_loss_ = 0;
};

}  // namespace frugal::optim

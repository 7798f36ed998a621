#include "optim/convergence.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace frugal::optim {

void RunningMean::add(double value) {
  sum_ = decay_ * sum_ + (1 - decay_) * value;
  weight_ = decay_ * weight_ + (1 - decay_);
  ++count_;
}

void RunningMean::save(std::vector<double>& numbers) const {
  numbers.insert(numbers.end(), {sum_, weight_, count_});
}

void RunningMean::load(const double* numbers) {
  sum_ = numbers[0];
  weight_ = numbers[1];
  count_ = numbers[2];
}

GradientMoments moments_of(const GradientSamples& s, double share) {
  FRUGAL_CHECK(share > 0 && share <= 1, "[convergence] expected a share in (0, 1], got {}", share);
  const double added = (s.first - s.second).squared_norm() / 2;
  const double both = (s.first - s.other).dot(s.second - s.other);
  GradientMoments moments;
  moments.gradient_square = (s.first.dot(s.other) + s.second.dot(s.other)) / 2;
  moments.minibatch_variance = share * (both - added) / 2;
  moments.added_variance = share * added;
  if (s.fine) moments.squared_bias = (s.first - *s.fine).dot(s.second - *s.fine);
  moments.gradient_change = (s.later - s.first).dot(s.later - s.second) - added;
  moments.weight_change = (s.weights_after - s.weights_before).squared_norm();
  return moments;
}

ConvergenceBound convergence_bound(double first_loss, double alpha, double steps, double beta,
                                   double minibatch_variance, double added_variance,
                                   double squared_bias) {
  ConvergenceBound bound;
  if (alpha <= 0 || steps <= 0) return bound;
  const double start = 2 * first_loss / (alpha * steps);
  bound.uncompressed = start + alpha * beta * minibatch_variance;
  bound.value = bound.uncompressed + alpha * beta * added_variance + squared_bias;
  bound.applies = alpha * beta <= 1;
  return bound;
}

void ConvergenceTracker::stepped(double alpha, double loss) {
  if (steps_ == 0) first_loss_ = loss;
  alphas_ += alpha;
  ++steps_;
}

void ConvergenceTracker::measured(const GradientMoments& m) {
  gradient_.add(m.gradient_square);
  minibatch_.add(m.minibatch_variance);
  added_.add(m.added_variance);
  if (m.squared_bias) bias_.add(*m.squared_bias);
  gradient_change_.add(m.gradient_change);
  weight_change_.add(m.weight_change);
  gradient_sum_ += m.gradient_square;
}

double ConvergenceTracker::mean_gradient_square() const {
  return measurements() > 0 ? gradient_sum_ / static_cast<double>(measurements()) : 0;
}

double ConvergenceTracker::added_share() const {
  if (minibatch_variance() <= 0) return 0;
  return std::max(added_variance() + squared_bias(), 0.0) / minibatch_variance();
}

double ConvergenceTracker::bias_share() const {
  return minibatch_variance() > 0 ? squared_bias() / minibatch_variance() : 0;
}

double ConvergenceTracker::smoothness() const {
  // A ratio of means: in a single step with a tiny rate, rounding would hide the change.
  if (weight_change_.value() <= 0) return 0;
  return std::sqrt(std::max(gradient_change_.value(), 0.0) / weight_change_.value());
}

ConvergenceBound ConvergenceTracker::bound() const {
  return convergence_bound(first_loss_, alpha(), steps_, smoothness(),
                           std::max(minibatch_variance(), 0.0), added_variance(),
                           std::max(squared_bias(), 0.0));
}

std::vector<double> ConvergenceTracker::state() const {
  std::vector<double> numbers{gradient_sum_, alphas_, steps_, first_loss_};
  for (const auto* mean :
       {&gradient_, &minibatch_, &added_, &gradient_change_, &weight_change_, &bias_})
    mean->save(numbers);
  return numbers;
}

void ConvergenceTracker::restore(const std::vector<double>& numbers) {
  constexpr size_t count = 4 + 6 * RunningMean::kNumbers;
  const bool has_bias = numbers.size() != count - RunningMean::kNumbers;
  FRUGAL_CHECK(numbers.size() == count || !has_bias, "[convergence] expected {} numbers, got {}",
               count, numbers.size());
  gradient_sum_ = numbers[0];
  alphas_ = numbers[1];
  steps_ = numbers[2];
  first_loss_ = numbers[3];
  const double* at = numbers.data() + 4;
  for (auto* mean : {&gradient_, &minibatch_, &added_, &gradient_change_, &weight_change_}) {
    mean->load(at);
    at += RunningMean::kNumbers;
  }
  bias_.reset();
  if (has_bias) bias_.load(at);
}

}  // namespace frugal::optim

#include "train/loss_watch.h"

#include <algorithm>
#include <cmath>

namespace frugal::train {
namespace {

constexpr int64_t kSamples = 32;  // the loss of one sample alone may be large
constexpr int64_t kFirstSteps = 5;

// The loss of equal chances for all classes; 0: outputs are no such chances.
double loss_of_guess(const BatchSpec& spec) {
  if (spec.has_values() || spec.has_boxes() || spec.has_views()) return 0;
  if (spec.has_several_labels()) return std::log(2.0);
  const int64_t classes = spec.target_of_each_token() ? spec.vocabulary : spec.classes;
  return classes > 1 ? std::log(static_cast<double>(classes)) : 0;
}

}  // namespace

std::string advice_against_divergence(double rate) {
  // 0: of an evaluation, which is at no step.
  const std::string now = rate > 0 ? fmt::format(" (this step's rate is {})", rate) : "";
  return fmt::format("Try a lower optim.lr{}, optim.clip_norm, or a longer warm-up", now);
}

LossWatch::LossWatch(const BatchSpec& spec) : guess_(loss_of_guess(spec)) {}

std::string LossWatch::add(int64_t step, double loss, int64_t samples, double rate) {
  const int64_t first_steps = guess_ > 0 ? 1 : kFirstSteps;
  if (steps_++ < first_steps) {
    usual_ = std::max(usual_, loss);
    return "";
  }
  sum_ += loss * static_cast<double>(samples);
  samples_ += samples;
  const double usual = std::max(usual_, guess_), factor = guess_ > 0 ? 10 : 100;
  if (said_ || usual <= 0 || samples_ < kSamples) return "";
  const double mean = sum_ / static_cast<double>(samples_);
  sum_ = 0;
  samples_ = 0;
  if (!(mean > factor * usual)) return "";
  said_ = true;
  return fmt::format(
      "[train] step {}: the loss is {:.3g}, where {} has {:.3g}: training may be about to "
      "diverge. {}",
      step, mean, guess_ > usual_ ? "a guess that knows nothing" : "the beginning of the run",
      usual, advice_against_divergence(rate));
}

}  // namespace frugal::train

#include "train/noise/convergence.h"

#include <algorithm>
#include <cmath>

#include "autograd/checkpoint.h"
#include "compress/policies/wrapping_policy.h"
#include "compress/quantize/quantize.h"
#include "core/random/random_streams.h"
#include "core/stopwatch.h"
#include "ops/dense/copy.h"
#include "ops/image/batch_norm.h"
#include "train/option_error.h"
#include "train/ranks/ranks.h"

namespace frugal::train {
namespace {

constexpr uint64_t kKeysOfPass = 1 << 20;  // more than a pass takes
constexpr int kOwnNumbers = 5;             // state() begins with these; the tracker's follow

// Decides for a part of a batch as the policy decides for the whole batch. Otherwise more tensors
// of a part would be below the size from which tensors are packed. No observer sees the gradients.
class PartPolicy final : public compress::StandInPolicy {
 public:
  PartPolicy(SavePolicy& policy, int64_t samples, int64_t of)
      : StandInPolicy(policy), samples_(samples), of_(of) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    if (value.dim() == 0 || value.size(0) % samples_ != 0) return inner().decide(info, value);
    Shape shape = value.shape();
    shape[0] = shape[0] / samples_ * of_;
    SaveInfo whole = info;
    whole.recipe_elements = info.recipe_elements / samples_ * of_;
    const CategoryScope scope(value.storage()->category());
    return inner().decide(whole, Tensor::empty(shape, value.dtype(), kMeta));
  }

 private:
  int64_t samples_, of_;
};

// Decides as another policy, and packs with a codec of its own.
class FinePolicy final : public compress::StandInPolicy {
 public:
  FinePolicy(SavePolicy& policy, int bits, uint64_t seed)
      : StandInPolicy(policy), codec_({.bits = bits, .seed = streams::other_rounding(seed)}) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    Decision decision = inner().decide(info, value);
    if (decision.codec != nullptr) decision.codec = &codec_;
    return decision;
  }

 private:
  compress::Quantizer codec_;
};

// The bits of a rounding that adds next to nothing beside one of `bits`: at 2 bits, (3 / 255)^2 of
// its variance.
int fine_bits(double bits) {
  const int wanted = bits > 0 ? static_cast<int>(std::ceil(4 * bits)) : compress::kMaxBits;
  return std::clamp(wanted, 8, compress::kMaxBits);
}

}  // namespace

std::vector<by_name::Option<TrackingOptions>> TrackingOptions::list() {
  namespace range = by_name::range;
  using S = TrackingOptions;
  return {{{"guard", range::number(0, 1e3),
            "How large the variance that compression adds to the gradient and its squared bias may "
            "be together, as a share of the minibatch's variance, such as 0.1: bits (of actnn "
            "their average, of acgc the growth, of memory_budget what "
            "it uses of what it may) rise while it adds more and fall where it adds far less; 0: "
            "off."},
           &S::guard},
          {{"guard_min_bits", range::integer(1, 16), "Below which the guard does not go."},
           &S::least_bits},
          {{"track_samples", range::integer(2, int64_t{1} << 40),
            "Samples of the batch that measure what compression adds."},
           &S::samples}};
}

Tracking::Tracking(const Task& task, Module& model, PolicyParts policy,
                   const TrackingOptions& options, const Ranks& ranks)
    : task_(task), model_(model), policy_(policy), options_(options), ranks_(ranks) {
  int64_t offset = 0;
  for (const auto& p : model.parameters()) {
    parameters_.push_back(*p.parameter);
    leaves_.add("convergence", p.name, *p.parameter);
    offsets_.push_back(offset);
    offset += p.parameter->value().numel();
  }
  if (options.guard == 0) return;
  if (bits() == 0)
    throw OptionError("tracking.guard",
                      "expected a policy with a width to set: of a level other than L0, with "
                      "stochastic or dithered rounding");
  if (bits() < options.least_bits)
    throw OptionError("tracking.guard_min_bits",
                      fmt::format("expected at most the {} bits to start with, got {}", bits(),
                                  options.least_bits));
  const compress::Adjustable::Range range = policy_.adjustable->fineness_range();
  guard_.emplace(optim::VarianceGuardOptions{
      options.guard, std::max(options.least_bits, range.least), range.most, range.step});
}

bool Tracking::due(int64_t step) const {
  if (step % options_.interval == 0) return true;
  if (!guard_) return false;
  for (const int64_t part : {8, 4, 2})
    if (step == std::max<int64_t>(options_.interval / part, 1)) return true;
  return false;
}

std::optional<optim::GradientSketch> Tracking::gradient(const Batch& part, int64_t n, int64_t of,
                                                        int64_t step, Draw draw) {
  const RecomputeScope no_trace;
  std::optional<compress::AdaptivePolicy::Probe> probe;
  if (policy_.adaptive != nullptr) probe.emplace(*policy_.adaptive);
  const compress::Learned learned =
      policy_.learner != nullptr ? policy_.learner->learned() : compress::Learned{};
  if (policy_.per_sample != nullptr) policy_.per_sample->set_samples(part.samples);
  // The samples of this measurement are others, so dropout draws from another stream.
  Rng stream;
  stream.restore(streams::kTrackingDropout.key(
      options_.seed, static_cast<uint64_t>(2 * step + (draw == kOther)) * kKeysOfPass));
  const uint64_t pass = draw == kFine ? kFirst : draw;
  Context context;
  context.rng = &stream;
  context.checkpointed_blocks = options_.checkpointed_blocks;
  begin_step(streams::kTrackingSteps.first + static_cast<uint64_t>(step) * kDraws + pass);
  optim::GradientSketch sketch;
  PassOptions how;
  how.label_smoothing = options_.label_smoothing;
  if (options_.checkpointed_blocks == 0)
    how.leaf_done = [&](GradAccumulator& leaf) {
      if (const auto found = leaves_.find(leaf)) sketch.add(leaf.whole(), offsets_[*found]);
      leaf.set({});
    };
  model_.zero_grad();
  PartPolicy policy(*policy_.policy, n, of);
  std::optional<FinePolicy> fine;
  if (draw == kFine) fine.emplace(policy, fine_bits(bits()), options_.seed);
  SavePolicy& used = fine ? static_cast<SavePolicy&>(*fine) : policy;
  std::optional<BatchResult> result;
  try {
    result = forward_backward(task_, model_, part, context, &used, how);
  } catch (const ops::TooFewRows&) {
    // Half of a short batch may have too few rows for a variance. This step is not measured.
  }
  if (result && options_.checkpointed_blocks > 0) sketch = optim::sketch_of_gradients(parameters_);
  model_.zero_grad();
  if (policy_.learner != nullptr) policy_.learner->restore_learned(learned);
  if (!result) return std::nullopt;
  packed_ = result->memory.packed;
  if (!std::isfinite(result->loss) || !std::isfinite(sketch.squared_norm())) return std::nullopt;
  return sketch;
}

void Tracking::before(const Batch& batch, int64_t step) {
  const Stopwatch watch(seconds_);
  const bool whole = options_.other != nullptr;  // then a batch is one sample
  const int64_t of = whole ? 1 : batch.input.size(0);
  const int64_t n = whole ? 1 : options_.held(of);
  if (n == 0) return;
  Pending pending{whole ? batch : copy_of(task_, batch, 0, n), n, of, {}};
  optim::GradientSamples& samples = pending.samples;
  auto draw = [&](optim::GradientSketch& sketch, const Batch& part, Draw which) {
    const auto found = gradient(part, n, of, step, which);
    if (found) sketch = *found;
    return found.has_value();
  };
  if (!draw(samples.first, pending.part, kFirst)) return;
  if (packed_ == 0) {  // rounding changes nothing
    samples.second = samples.first;
    samples.fine = samples.first;
  } else {
    if (!draw(samples.second, pending.part, kSecond)) return;
    const bool fits = policy_.budget == nullptr || static_cast<double>(n) * fine_bits(bits()) <=
                                                       static_cast<double>(of) * bits();
    if (fits && !draw(samples.fine.emplace(), pending.part, kFine)) return;
  }
  if (!draw(samples.other, whole ? options_.other(step) : copy_of(task_, batch, n, 2 * n), kOther))
    return;
  samples.weights_before = optim::sketch_of_values(parameters_);
  pending_ = std::move(pending);
}

std::optional<optim::GradientMoments> Tracking::moments(int64_t step) {
  if (!pending_) return std::nullopt;
  Pending pending = std::move(*pending_);
  pending_.reset();
  const auto later = gradient(pending.part, pending.n, pending.of, step, kLater);
  if (!later) return std::nullopt;
  pending.samples.later = *later;
  pending.samples.weights_after = optim::sketch_of_values(parameters_);
  // If the size of a whole step is not given, the other ranks and the other batches of the step are
  // taken to have as much.
  const int64_t whole =
      options_.batch > 0 ? options_.batch : pending.of * ranks_.size() * options_.batches;
  return optim::moments_of(pending.samples,
                           static_cast<double>(pending.n) / static_cast<double>(whole));
}

std::optional<optim::GradientMoments> Tracking::joined(
    const std::optional<optim::GradientMoments>& mine) const {
  if (ranks_.alone()) return mine;
  std::optional<std::vector<double>> numbers;
  if (mine)
    numbers = {mine->gradient_square,         mine->minibatch_variance,
               mine->added_variance,          mine->gradient_change,
               mine->weight_change,           mine->squared_bias.value_or(0),
               mine->squared_bias ? 1.0 : 0.0};
  const auto mean = ranks_.mean(numbers, "moments of gradients");
  if (!mean) return std::nullopt;
  const std::vector<double>& m = *mean;
  optim::GradientMoments all;
  all.gradient_square = m[0];
  all.minibatch_variance = m[1];
  all.added_variance = m[2];
  all.gradient_change = m[3];
  all.weight_change = m[4];
  if (m[6] == 1) all.squared_bias = m[5];
  return all;
}

bool Tracking::after(int64_t step) {
  const Stopwatch watch(seconds_);
  const std::optional<optim::GradientMoments> found = joined(moments(step));
  if (!found) return false;
  if (measured_bits_ != bits()) tracker_.forget_added();
  tracker_.measured(*found);
  const double now = bits();
  measured_bits_ = now;
  if (!guard_ || tracker_.minibatch_variance() <= 0) return false;
  const double next = guard_->next(now, tracker_.added_share(), tracker_.added_measurements());
  const double got = next == now ? now : policy_.adjustable->set_fineness(next);
  limited_ = got < next;
  return got != now;
}

void Tracking::stepped(double lr, double loss, std::optional<double> momentum) {
  const double of_step = options_.sgd && momentum ? *momentum : options_.momentum;
  tracker_.stepped(lr / (1 - of_step), loss);
}

double Tracking::bits() const {
  return policy_.adjustable != nullptr ? policy_.adjustable->fineness() : 0;
}

std::optional<Convergence> Tracking::report() const {
  if (tracker_.measurements() == 0) return std::nullopt;
  const optim::ConvergenceBound bound = tracker_.bound();
  Convergence found;
  found.gradient_square = tracker_.gradient_square();
  found.mean_gradient_square = tracker_.mean_gradient_square();
  found.minibatch_variance = tracker_.minibatch_variance();
  found.added_variance = tracker_.added_variance();
  found.added_share = tracker_.added_share();
  if (tracker_.knows_bias()) {
    found.squared_bias = tracker_.squared_bias();
    found.bias_share = tracker_.bias_share();
  }
  found.smoothness = tracker_.smoothness();
  if (options_.sgd) {
    found.alpha = tracker_.alpha();
  }
  if (options_.sgd && task_.has_loss_of_at_least_0(model_)) {
    found.bound = bound.value;
    found.bound_uncompressed = bound.uncompressed;
    found.bound_applies = bound.applies;
  }
  if (measured_bits_ > 0) found.bits = measured_bits_;
  if (bits() > 0) found.next_bits = bits();
  if (guard_) found.guard_limited = limited_;
  return found;
}

std::vector<double> Tracking::state() const {
  std::vector<double> numbers{bits(), measured_bits_, limited_ ? 1.0 : 0.0};
  const std::vector<double> guard = guard_ ? guard_->state() : std::vector<double>{0, 0};
  numbers.insert(numbers.end(), guard.begin(), guard.end());
  const std::vector<double> tracked = tracker_.state();
  numbers.insert(numbers.end(), tracked.begin(), tracked.end());
  return numbers;
}

void Tracking::restore(const std::vector<double>& numbers) {
  FRUGAL_CHECK(numbers.size() > kOwnNumbers, "[tracking] expected more than {} numbers, got {}",
               kOwnNumbers, numbers.size());
  const bool finite = std::all_of(numbers.begin(), numbers.end(),
                                  [](double number) { return std::isfinite(number); });
  FRUGAL_CHECK(finite, "[tracking] expected finite numbers, got one that is not");
  FRUGAL_CHECK(numbers[1] >= 0, "[tracking] expected bits of the last measurement, got {}",
               numbers[1]);
  // A policy with a state of its own restores its width from that state.
  const bool set =
      guard_ && policy_.adaptive == nullptr && policy_.learner == nullptr && numbers[0] != bits();
  if (guard_) {
    const compress::Adjustable::Range range = policy_.adjustable->fineness_range();
    FRUGAL_CHECK(!set || (range.least <= numbers[0] && numbers[0] <= range.most),
                 "[guard] expected {} to {} bits, got {}", range.least, range.most, numbers[0]);
    FRUGAL_CHECK(
        numbers[3] >= 0 && numbers[4] >= 0 && numbers[4] <= optim::VarianceGuard::kPatience,
        "[guard] expected bits that were too low and measurements to wait, got {} and {}",
        numbers[3], numbers[4]);
  }
  tracker_.restore({numbers.begin() + kOwnNumbers, numbers.end()});
  measured_bits_ = numbers[1];
  limited_ = numbers[2] != 0;
  if (!guard_) return;
  if (set) policy_.adjustable->set_fineness(numbers[0]);
  guard_->restore({numbers[3], numbers[4]});
}

}  // namespace frugal::train

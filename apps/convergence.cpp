#include "apps/convergence.h"

#include <chrono>
#include <cmath>

#include "apps/config_error.h"
#include "apps/make_policy.h"
#include "autograd/checkpoint.h"
#include "ops/copy.h"

namespace frugal::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kRoundings = uint64_t{1} << 62;  // apart from the steps' numbers
constexpr uint64_t kDropout = uint64_t{1} << 61;    // apart from the run's streams
constexpr double kAdaptiveStep = 0.25;              // bits on average

// Adds the time until its end.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), begin_(Clock::now()) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  Clock::time_point begin_;
};

// Decides for a part of a batch what the policy would for all of it: thresholds of size would keep
// more of a part raw. Nobody is shown the gradients.
class PartPolicy final : public SavePolicy {
 public:
  PartPolicy(SavePolicy& policy, int64_t samples, int64_t of)
      : policy_(policy), samples_(samples), of_(of) {}
  bool rebuilds_signs() const override { return policy_.rebuilds_signs(); }
  int64_t slice_bytes() const override { return policy_.slice_bytes(); }
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    if (value.shape().rank() == 0 || value.size(0) % samples_ != 0)
      return policy_.decide(info, value);
    Shape shape = value.shape();
    shape[0] = shape[0] / samples_ * of_;
    SaveInfo whole = info;
    whole.replay_elements = info.replay_elements / samples_ * of_;
    const CategoryScope scope(value.storage()->category());
    return policy_.decide(whole, Tensor::empty(shape, value.dtype(), kMeta));
  }

 private:
  SavePolicy& policy_;
  int64_t samples_, of_;
};

Batch copy_of(const Batch& batch, int64_t begin, int64_t end) {
  const CategoryScope scope(Category::input);
  return {ops::clone(batch.input.slice(0, begin, end)),
          ops::clone(batch.target.slice(0, begin, end))};
}

}  // namespace

std::optional<TrackingOptions> tracking_options(const Config& config) {
  const CompressionConfig& c = config.compression;
  if (c.track_interval == 0 && c.guard == 0) return std::nullopt;
  TrackingOptions options;
  if (c.track_interval > 0) options.interval = c.track_interval;
  options.samples = c.adapt_samples;
  options.batch = config.data.batch_size * config.train.gradient_accumulation;
  options.momentum = config.optim.momentum;
  options.label_smoothing = config.train.label_smoothing;
  options.checkpointing = config.train.checkpointing;
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.guard = c.guard;
  options.least_bits = c.guard_min_bits;
  return options;
}

Tracking::Tracking(Module& model, SavePolicy& policy, const TrackingOptions& options)
    : model_(model),
      policy_(policy),
      fixed_(find_in<compress::FixedPolicy>(policy)),
      adaptive_(find_in<compress::AdaptivePolicy>(policy)),
      learner_(find_in<compress::Learner>(policy)),
      options_(options) {
  for (const auto& p : model.parameters()) parameters_.push_back(*p.parameter);
  if (options.guard == 0) return;
  if (bits() == 0)
    throw ConfigError("compression.guard",
                      "expected a policy with a width to set: gact at a level other than L0");
  if (bits() < options.least_bits)
    throw ConfigError(
        "compression.guard_min_bits",
        fmt::format("expected at most the {} bits to start with, got {}", bits(),
                    options.least_bits));
  guard_.emplace(optim::VarianceGuardOptions{options.guard, options.least_bits, 16,
                                             adaptive_ != nullptr ? kAdaptiveStep : 1});
}

bool Tracking::due(int64_t step) const {
  if (step % options_.interval == 0) return true;
  if (!guard_) return false;
  for (const int64_t part : {8, 4, 2})
    if (step == std::max<int64_t>(options_.interval / part, 1)) return true;
  return false;
}

std::optional<optim::GradientSketch> Tracking::gradient(const Batch& batch, int64_t step,
                                                        uint64_t draw) {
  const RecomputeScope no_trace;
  std::optional<compress::AdaptivePolicy::Probe> probe;
  if (adaptive_ != nullptr) probe.emplace(*adaptive_);
  Rng stream;
  // Samples that differ have dropout that differs.
  stream.restore({options_.seed, kDropout + static_cast<uint64_t>(step) * (1 << 20) +
                                     (draw == kOther ? 1 << 19 : 0)});
  Context context;
  context.rng = &stream;
  context.checkpointing = options_.checkpointing;
  begin_step(kRoundings + static_cast<uint64_t>(step) * kDraws + draw);
  optim::GradientSketch sketch;
  StepOptions step_options;
  step_options.label_smoothing = options_.label_smoothing;
  if (!options_.checkpointing)
    step_options.leaf_done = [&](GradAccumulator& leaf) {
      sketch.add(leaf.grad, offsets_.at(&leaf));
      leaf.grad = {};
    };
  PartPolicy part(policy_, batch.input.size(0), whole_);
  const BatchResult result = forward_backward(model_, batch, context, &part, step_options);
  if (options_.checkpointing) sketch = optim::sketch_of_gradients(parameters_);
  model_.zero_grad();
  packed_ = result.memory.packed;
  if (!std::isfinite(result.loss) || !std::isfinite(sketch.squared_norm())) return std::nullopt;
  return sketch;
}

}  // namespace frugal::apps

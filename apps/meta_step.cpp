#include "apps/meta_step.h"

#include <algorithm>

#include "apps/config/make_model.h"
#include "apps/config/make_optimizer.h"
#include "apps/convergence.h"
#include "apps/evaluate.h"
#include "autograd/checkpoint.h"
#include "autograd/record.h"

namespace frugal::apps {
namespace {

constexpr double kRate = 1e-3;  // of updates, which compute nothing

int64_t live(Device device) { return allocator(device).report().live_total; }

// The peak of what is done while it lives, without what was alive before beyond `own`.
class Peak {
 public:
  Peak(Device device, int64_t own) : device_(device), foreign_(live(device) - own) {
    begin_peak(device);
  }
  StepMemory end() const {
    StepMemory memory;
    end_peak(device_, memory);
    memory.peak -= foreign_;
    return memory;
  }

 private:
  Device device_;
  int64_t foreign_;
};

}  // namespace

MetaStep::MetaStep(const Config& config) : config_(config), device_(Device::parse("meta")) {
  spec_ = batch_spec(config);
  const int64_t before = live(device_);
  model_ = make_model(config, spec_, device_);
  optimizer_ = make_optimizer(config, *model_);
  own_ = live(device_) - before;
  step(nullptr, config.data.batch_size, 0);  // makes the optimizer's state
  own_ = live(device_) - before;
}

Batch MetaStep::batch(int64_t samples) const { return shape_of_batch(spec_, samples, device_); }

// What is prepared ahead.
std::vector<Batch> MetaStep::in_flight(int64_t samples) const {
  std::vector<Batch> all;
  for (const int64_t ahead : samples_ahead(config_, samples)) all.push_back(batch(ahead));
  return all;
}

int64_t MetaStep::parameter_bytes() const {
  int64_t bytes = 0;
  for (const auto& p : model_->parameters()) bytes += p.parameter->value().nbytes();
  return bytes;
}

int64_t MetaStep::blocks() {
  if (family_of(config_.model.name) == Family::graph) return 0;  // they refuse
  ++steps_;
  NoGrad no_grad;
  Rng rng(0);
  Context context;
  context.rng = &rng;
  context.checkpointed_blocks = kAllBlocks;
  Batch one = batch(1);
  run_forward(*model_, one, context);
  return context.block;
}

int64_t MetaStep::largest_parameter() const {
  int64_t bytes = 0;
  for (const auto& p : model_->parameters()) bytes = std::max(bytes, p.parameter->value().nbytes());
  return bytes;
}

bool MetaStep::convolves() const {
  const auto all = model_->parameters();
  return std::any_of(all.begin(), all.end(),
                     [](const auto& p) { return p.parameter->value().dim() == 4; });
}

StepMemory MetaStep::step(SavePolicy* policy, int64_t samples, int64_t checkpointed_blocks) {
  ++steps_;
  const Peak peak(device_, own_);
  std::vector<Batch> ahead = in_flight(samples);
  if (const auto tracked = tracking_options(config_))
    ahead.push_back(batch(tracked->other != nullptr ? samples : tracked->held(samples)));
  Rng rng(0);
  Context context;
  context.rng = &rng;
  context.checkpointed_blocks = checkpointed_blocks;
  UpdateInBackward update(*optimizer_, kRate);
  StepOptions options;
  options.label_smoothing = config_.train.label_smoothing;
  options.weight = 1.0 / static_cast<double>(config_.train.gradient_accumulation);
  if (config_.optim.in_backward) options.leaf_done = update.leaf_done();
  StepMemory memory;
  // From the second part on, every one finds gradients.
  for (int64_t part = 0; part < std::min<int64_t>(config_.train.gradient_accumulation, 2); ++part) {
    begin_step(0);
    const Batch kept = batch(samples);
    memory.raise(forward_backward(*model_, kept, context, policy, options).memory);
  }
  optimizer_->step(kRate);
  const StepMemory highest = peak.end();
  memory.peak = highest.peak;
  memory.at_peak = highest.at_peak;
  model_->zero_grad();
  return memory;
}

int64_t MetaStep::evaluation(int64_t samples) {
  ++steps_;
  const Peak peak(device_, own_);
  const std::vector<Batch> ahead = in_flight(samples);
  {
    NoGrad no_grad;
    Context context;
    context.training = false;
    Batch now = batch(samples);
    run_forward(*model_, now, context, {}, needs_output(spec_));
  }
  // The last step's gradients are still there.
  return peak.end().peak + (config_.optim.in_backward ? 0 : parameter_bytes());
}

int64_t MetaStep::measuring(SavePolicy& policy, compress::AdaptivePolicy& adaptive, int64_t samples,
                            int64_t whole, int64_t checkpointed_blocks) {
  ++steps_;
  const Peak peak(device_, own_);
  std::vector<Batch> held = in_flight(whole);
  held.push_back(batch(whole));
  {
    const compress::AdaptivePolicy::Probe probe(adaptive);
    RecomputeScope no_trace;
    Rng rng(0);
    Context context;
    context.rng = &rng;
    context.checkpointed_blocks = checkpointed_blocks;
    begin_step(0);
    forward_backward(*model_, batch(samples), context, &policy, {});
  }
  model_->zero_grad();
  return peak.end().peak + parameter_bytes();  // the gradient to compare with
}

}  // namespace frugal::apps

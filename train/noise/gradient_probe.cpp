#include "train/noise/gradient_probe.h"

#include <cmath>

#include "autograd/functions.h"
#include "ops/dense/copy.h"
#include "train/policy_parts.h"
#include "train/step_recorder.h"

namespace frugal::train {

BatchResult GradientProbe::run(const Batch& batch, SavePolicy* policy, const PassSettings& pass,
                               const PassOptions& options) {
  Rng rng;
  rng.restore(pass.rng);
  Context context;
  context.rng = &rng;
  context.checkpointed_blocks = pass.checkpointed_blocks;
  frugal::begin_step(pass.number);
  return forward_backward(task_, model_, batch, context, policy, options);
}

std::vector<float> GradientProbe::gradient(const Batch& batch, SavePolicy* policy,
                                           const PassSettings& pass) {
  model_.zero_grad();
  if (policy != nullptr)
    if (const PolicyParts parts(*policy); parts.per_sample != nullptr)
      parts.per_sample->set_samples(batch.samples);
  memory_ = run(batch, policy, pass, {.label_smoothing = pass.label_smoothing}).memory;
  std::vector<float> all;
  for (const auto& p : model_.parameters()) {
    const Tensor g = p.parameter->grad();
    if (g.defined())
      all.insert(all.end(), g.data<float>(), g.data<float>() + g.numel());
    else  // frozen, or without effect on the loss
      all.insert(all.end(), static_cast<size_t>(p.parameter->value().numel()), 0.0f);
  }
  return all;
}

std::vector<SavedRecord> GradientProbe::saved(const Batch& batch, SavePolicy& policy,
                                              Optimizer& optimizer, const PassSettings& pass) {
  model_.zero_grad();
  begin_peak(model_.device());
  StepRecorder recorder(model_, optimizer, &policy);
  PassOptions options;
  options.label_smoothing = pass.label_smoothing;
  options.before_backward = [&](const Variable& loss, const StepMemory& memory) {
    recorder.before_backward(loss, memory);
  };
  const BatchResult result = run(batch, recorder.policy(), pass, options);
  return recorder.finish(result.memory).tensors;
}

SingleGradient single_gradient(const Task& task, Module& model, Batch batch, SavePolicy* policy,
                               const PassSettings& pass) {
  const Device device = model.device();
  Rng rng;
  rng.restore(pass.rng);
  Context context;
  context.rng = &rng;
  context.checkpointed_blocks = pass.checkpointed_blocks;
  SingleGradient found;
  const auto on_host = [](const Variable& value) {
    const CategoryScope copies(Category::workspace);
    return to_device(ops::clone(value.value()), kCpu);
  };
  Variable loss;
  begin_peak(device);
  frugal::begin_step(pass.number);
  {
    PolicyScope scope(policy);
    Variable output;
    if (batch.target.defined()) {
      ForwardPass forward =
          forward_pass(task, model, batch, context,
                       {.label_smoothing = pass.label_smoothing, .keep_output = true});
      output = std::move(forward.output);
      loss = std::move(forward.loss);
      for (const auto& [name, value] : forward.terms)
        found.terms.emplace_back(name, on_host(Variable(value)));
    } else {
      batch = task.place(std::move(batch), model);
      context.set_model(model);
      output = task.run(model, batch, context);
      loss = sum(output);
    }
    found.loss = on_host(loss);
    FRUGAL_CHECK(std::isfinite(found.loss.item()),
                 "[grad] expected a finite loss, got {}: weights or batch are too large",
                 found.loss.item());
    if (output.defined()) found.output = on_host(output);
  }
  batch = {};
  measure_saved(device, found.memory);
  backward(loss);
  end_peak(device, found.memory);
  return found;
}

}  // namespace frugal::train

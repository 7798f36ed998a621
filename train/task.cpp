#include "train/task.h"

#include "ops/dense/copy.h"
#include "train/metrics/metric_names.h"
#include "train/place_batch.h"

namespace frugal::train {

Batch Task::place(Batch batch, const Module& model) const {
  return place_batch(std::move(batch), model);
}

Variable Task::run(Module& model, Batch& batch, Context& context) const {
  context.extras = std::move(batch.extras);
  Variable output = model.forward(
      batch.held ? Variable::constant(std::move(batch.input)) : Variable(std::move(batch.input)),
      context);
  context.extras.clear();
  return output;
}

Counts Task::count(const ForwardPass& pass) const {
  return pass.counts.counted > 0 ? pass.counts : Counts{pass.samples, 0};
}

double Task::weight(const Batch& batch) const { return static_cast<double>(batch.input.size(0)); }

bool Task::is_divisible(const Batch& batch) const {
  static_cast<void>(batch);
  return true;
}

Batch Task::part(const Batch& batch, int64_t begin, int64_t end) const {
  if (!is_divisible(batch)) return batch;
  Batch part;
  part.input = batch.input.slice(0, begin, end);
  if (batch.target.defined()) part.target = batch.target.slice(0, begin, end);
  if (batch.samples.defined()) part.samples = batch.samples.slice(0, begin, end);
  part.floats = batch.floats;
  for (const auto& [name, tensor] : batch.extras)
    part.extras.emplace_back(name, tensor.slice(0, begin, end));
  return part;
}

Batch Task::shape(int64_t samples, Device device) const {
  return shape_of_batch(spec_, samples, device);
}

bool Task::has_accuracy() const { return train::has_accuracy(spec_.target); }

Tensor Task::predict(const Tensor& output) const {
  const CategoryScope scope(Category::workspace);
  const Tensor found = ops::contiguous(to_device(ops::cast(output, DType::f32), kCpu));
  const int64_t count = found.shape().back();
  return found.view({found.numel() / count, count});
}

Batch copy_of(const Task& task, const Batch& batch, int64_t begin, int64_t end) {
  const CategoryScope scope(Category::input);
  Batch part = task.part(batch, begin, end);
  part.input = ops::clone(part.input);
  if (part.target.defined()) part.target = ops::clone(part.target);
  if (part.samples.defined()) part.samples = ops::clone(part.samples);
  for (auto& [name, tensor] : part.extras) tensor = ops::clone(tensor);
  return part;
}

bool reads_outputs(const Task& task) {
  const auto metric = task.metric();
  return metric != nullptr && metric->reads_outputs();
}

bool higher_is_better(const Task& task) {
  const auto metric = task.metric();
  return !metric || metric->higher_is_better();
}

}  // namespace frugal::train

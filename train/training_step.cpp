#include "train/training_step.h"

#include <cmath>
#include <utility>

#include "autograd/saved_totals.h"
#include "autograd/timeline.h"
#include "core/memory/host_copies.h"
#include "core/memory/memory_trace.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/reduce.h"
#include "ops/optimizer/sgd.h"
#include "train/ranks/ranks.h"

namespace frugal::train {
namespace {

// An undefined tensor is finite, and so is one on meta.
bool all_finite(const Tensor& tensor) { return !tensor.defined() || ops::isfinite_all(tensor); }

// Keeps everything raw and remembers the first tensor with a value that is not finite.
class ScanPolicy final : public SavePolicy {
 public:
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    if (found_.empty() && !all_finite(value))
      found_ = fmt::format("activation {} of the forward pass, saved by {}", info.seq, info.op);
    return {};
  }
  const std::string& found() const { return found_; }

 private:
  std::string found_;
};

}  // namespace

void StepMemory::raise(const StepMemory& other) {
  if (other.saved() > saved()) {
    activation = other.activation;
    packed = other.packed;
    packed_elements = other.packed_elements;
  }
  if (other.peak > peak) {
    peak = other.peak;
    at_peak = other.at_peak;
  }
}

void begin_peak(Device device) { allocator(device).reset_peak(); }

void end_peak(Device device, StepMemory& memory) {
  const MemoryReport report = allocator(device).report();
  memory.peak = report.peak_total;
  memory.at_peak = report.at_peak;
}

void measure_saved(Device device, StepMemory& memory) {
  MemoryTrace::mark("backward");
  const MemoryReport report = allocator(device).report();
  memory.activation = report.of(Category::activation);
  memory.packed = report.of(Category::packed);
  memory.packed_elements = saved_totals().packed_elements;
}

ForwardPass forward_pass(const Task& task, Module& model, Batch& batch, Context& context,
                         const LossOptions& options) {
  batch = task.place(std::move(batch), model);
  const int64_t samples = batch.input.size(0);
  const ReleasedInput released(task.spec().releases_input && !batch.held ? batch.input : Tensor());
  context.set_model(model);
  context.block = 0;
  ForwardPass pass = task.loss(model, batch, context, options);
  pass.samples = samples;
  return pass;
}

BatchResult read(const Task& task, const ForwardPass& pass, const Tensor& beside, double* number) {
  BatchResult result;
  result.samples = pass.samples;
  if (pass.loss.device().type == DeviceType::meta) return result;
  const CategoryScope scope(Category::workspace);
  const std::vector<Tensor> here =
      host_copies({pass.loss.value(), pass.target, pass.answers, beside});
  ForwardPass on_host = pass;
  on_host.target = here[1];
  on_host.answers = here[2];
  const Counts counts = task.count(on_host);
  result.counted = counts.counted;
  result.correct = counts.correct;
  result.weight = counts.weight.value_or(static_cast<double>(counts.counted));
  if (result.counted > 0) result.loss = here[0].item();
  if (beside.defined()) *number = here[3].item();
  return result;
}

Outcome run_forward(const Task& task, Module& model, Batch& batch, Context& context,
                    const LossOptions& options) {
  const ForwardPass pass = forward_pass(task, model, batch, context, options);
  return {pass.output, pass.loss, read(task, pass)};
}

BatchResult forward_backward(const Task& task, Module& model, Batch batch, Context& context,
                             SavePolicy* policy, const PassOptions& options) {
  const Device device = model.device();
  ForwardPass pass;
  {
    const TimeSpan span(Timeline::Kind::phase, "forward pass");
    PolicyScope scope(policy);
    pass = forward_pass(task, model, batch, context,
                        {.label_smoothing = options.label_smoothing, .gather = options.gather});
  }
  batch = {};
  StepMemory memory;
  measure_saved(device, memory);
  if (options.before_backward) options.before_backward(pass.loss, memory);
  // CUDA works while the host prepares the backward pass, so a loss that is not finite is noticed
  // after that pass.
  const bool later = device.type == DeviceType::cuda || options.backward_anyway;
  BatchResult result;
  const auto read_pass = [&](const Tensor& beside = {}) {
    double number = 0;
    result = read(task, pass, beside, &number);
    result.memory = memory;
    if (beside.defined()) result.norm = number;
  };
  if (!later) {
    read_pass();
    pass.target = pass.answers = {};
    if (!std::isfinite(result.loss)) return result;
  }
  Tensor dy;
  if (options.weight != 1) {
    CategoryScope scope(Category::gradient);
    dy = Tensor::full(pass.loss.shape(), options.weight, pass.loss.dtype(), device);
  }
  const Tensor value = pass.loss.value();
  const TimeSpan span(Timeline::Kind::phase, "backward pass");
  backward(std::exchange(pass.loss, Variable(value)), dy, options.leaf_done,
           policy != nullptr ? policy->observer() : nullptr);
  const Tensor norm = options.norm ? options.norm() : Tensor();
  if (later)
    read_pass(norm);
  else if (norm.defined())
    result.norm = device.type == DeviceType::meta ? 0 : norm.item();
  return result;
}

double PartWeights::next(const Batch& batch, int copies) {
  if (parts_ == 1 && ranks_.alone()) return 1;
  const double mine = task_.weight(batch) / copies;
  const double counted = ranks_.sum(mine, "the targets of a batch");
  if (first_ == 0) first_ = counted;
  sum_ += counted;
  return first_ > 0 ? mine / first_ / static_cast<double>(parts_) : 0;
}

double PartWeights::factor() const {
  return sum_ > 0 ? first_ * static_cast<double>(parts_) / sum_ : 1;
}

LeafFn UpdateInBackward::leaf_done() {
  return [this](GradAccumulator& leaf) {
    if (leaf.values().device().type != DeviceType::meta) {
      const double squares = ops::sum_of_squares(leaf.values());
      squares_ += squares;
      (*each_)[&leaf] += squares;
    }
    if (std::isfinite(squares_) && optimizer_.step_leaf(leaf, lr_)) leaf.set({});
  };
}

// Squares are added in the order of the parameters, and not in that of the backward pass.
double UpdateInBackward::norm(const std::vector<Variable>& parameters) const {
  if (!std::isfinite(squares_)) return std::sqrt(squares_);
  double sum = 0;
  for (const Variable& p : parameters)
    if (const auto found = each_->find(p.accumulator().get()); found != each_->end())
      sum += found->second;
  return std::sqrt(sum);
}

std::string find_nonfinite(const Task& task, Module& model, const Batch& batch, Context& context) {
  for (const auto& p : model.parameters())
    if (!all_finite(p.parameter->value())) return "parameter " + p.name;
  for (const auto& p : model.parameters())
    if (p.parameter->has_grad() && !all_finite(p.parameter->accumulator()->values()))
      return "gradient of " + p.name;
  if (!all_finite(batch.input)) return "the batch's input";
  ScanPolicy scan;
  PolicyScope scope(&scan);
  begin_step(0);
  Batch here = task.place(batch, model);
  context.set_model(model);
  const Variable output = task.run(model, here, context);
  if (!scan.found().empty()) return scan.found();
  for (const auto& b : model.buffers())
    if (!all_finite(*b.buffer)) return "buffer " + b.name;
  return all_finite(output.value()) ? "" : "the model's output";
}

}  // namespace frugal::train

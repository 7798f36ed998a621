#include "apps/training_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "apps/metrics.h"
#include "apps/place_batch.h"
#include "autograd/functions.h"
#include "autograd/graph_functions.h"
#include "autograd/record.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/sgd.h"

namespace frugal::apps {
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
  }
  if (other.peak > peak) {
    peak = other.peak;
    at_peak = other.at_peak;
  }
}

Json memory_json(const StepMemory& memory) {
  Json at_peak = Json::object();
  for (size_t i = 0; i < kCategories; ++i)
    at_peak[std::string(name_of(static_cast<Category>(i)))] = memory.at_peak[i];
  return {{"activation_bytes", memory.saved()},
          {"packed_bytes", memory.packed},
          {"peak_bytes", memory.peak},
          {"at_peak", at_peak},
          {"host_peak_rss", host_peak_rss()}};
}

void begin_peak(Device device) { allocator(device).reset_peak(); }

void end_peak(Device device, StepMemory& memory) {
  const MemoryReport report = allocator(device).report();
  memory.peak = report.peak_total;
  memory.at_peak = report.at_peak;
}

void measure_saved(Device device, StepMemory& memory) {
  const MemoryReport report = allocator(device).report();
  memory.activation = report.of(Category::activation);
  memory.packed = report.of(Category::packed);
}

namespace {

int64_t count_targets(const Tensor& target) {
  const auto* all = target.data<int64_t>();
  return target.numel() - std::count(all, all + target.numel(), kIgnored);
}

// The rows whose targets count, of which the first tells.
Tensor counted_rows(const Tensor& target) {
  std::vector<int64_t> rows;
  const int64_t width = target.numel() / std::max<int64_t>(target.size(0), 1);
  for (int64_t row = 0; row < target.size(0); ++row)
    if (has_several_labels(target) ? target.data<float>()[row * width] >= 0
                                   : target.data<int64_t>()[row] != kIgnored)
      rows.push_back(row);
  return Tensor::from(rows, {static_cast<int64_t>(rows.size())});
}

template <class T>
Tensor pick(const Tensor& from, const Tensor& rows) {
  Shape shape = from.shape();
  const int64_t width = from.numel() / std::max<int64_t>(shape[0], 1);
  shape[0] = rows.size(0);
  const Tensor to = Tensor::empty(shape, from.dtype());
  for (int64_t i = 0; i < shape[0]; ++i)
    std::copy_n(from.data<T>() + rows.data<int64_t>()[i] * width, width, to.mut<T>() + i * width);
  return to;
}

// What a loss is made of. Of a graph's nodes, those that count alone, where the others are most:
// then nothing is kept of those.
struct Judged {
  Variable output;
  Tensor target, weights;
};

Judged counted_nodes(Judged all) {
  const Device device = all.target.device();
  const bool several = has_several_labels(all.target);
  const Tensor target = to_device(all.target, kCpu);
  const Tensor rows = counted_rows(target);
  if (!several && (rows.size(0) == 0 || 2 * rows.size(0) > all.target.size(0))) return all;
  const CategoryScope scope(Category::input);
  const Tensor picked = several ? pick<float>(target, rows) : pick<int64_t>(target, rows);
  Tensor weights;
  if (all.weights.defined())
    weights = to_device(pick<float>(to_device(all.weights, kCpu), rows), device);
  return {gather_rows(all.output, to_device(rows, device)), to_device(picked, device), weights};
}

Variable loss_of(const Judged& judged, CrossEntropyOptions options) {
  const bool weighted = judged.weights.defined();
  if (!has_several_labels(judged.target)) {
    options.sum = weighted;
    return cross_entropy(judged.output, judged.target, options, judged.weights);
  }
  BinaryCrossEntropyOptions answers;
  answers.sum = weighted;
  const CategoryScope scope(Category::workspace);
  const auto labels = static_cast<double>(judged.target.size(1));
  const Tensor weights =
      weighted ? ops::affine(judged.weights, 1 / labels, 0) : Tensor();  // the mean over labels
  return binary_cross_entropy(judged.output, judged.target, answers, weights);
}

}  // namespace

bool has_several_labels(const Tensor& target) { return is_floating(target.dtype()); }

// The input leaves the batch, so that its bytes go as soon as no layer needs them.
ForwardPass forward_pass(Module& model, Batch& batch, Context& context,
                         const CrossEntropyOptions& options) {
  batch = placed(std::move(batch), model);
  ForwardPass pass;
  pass.result.samples = batch.input.size(0);
  context.device = model.device();
  context.dtype = model.activations();
  context.extras = std::move(batch.extras);
  const bool graph = context.extra("edge_index").defined();
  const Tensor weights = context.extra("node_weight");
  // Of a graph always: saved tensors are numbered as in the planner's steps, whose graph is whole.
  Variable input = batch.held || graph ? Variable::constant(std::move(batch.input))
                                       : Variable(std::move(batch.input));
  pass.output = model.forward(std::move(input), context);
  context.extras.clear();
  const Tensor& target = batch.target;
  const bool meta = target.device().type == DeviceType::meta;
  Judged judged{pass.output, target, weights};
  if (graph && !meta) judged = counted_nodes(std::move(judged));
  pass.loss = loss_of(judged, options);
  if (meta) return pass;
  if (has_several_labels(target)) {
    MultiLabelCounts answers;
    answers.add(pass.output.value(), target);
    pass.result.counted = answers.total();
    pass.result.correct = answers.correct();
    return pass;
  }
  const CategoryScope scope(Category::workspace);
  pass.target = judged.target;
  pass.top = ops::argmax(judged.output.value(), -1);
  return pass;
}

BatchResult read(const ForwardPass& pass) {
  BatchResult result = pass.result;
  if (pass.loss.device().type == DeviceType::meta) return result;
  if (pass.target.defined()) {
    const CategoryScope scope(Category::workspace);
    const Tensor target = to_device(pass.target, kCpu), top = to_device(pass.top, kCpu);
    result.counted = count_targets(target);
    for (int64_t i = 0; i < target.numel(); ++i)
      result.correct += top.data<int64_t>()[i] == target.data<int64_t>()[i] ? 1 : 0;
  }
  // A batch without targets that count has no loss, and no gradient.
  if (result.counted > 0) result.loss = pass.loss.value().item();
  return result;
}

Outcome run_forward(Module& model, Batch& batch, Context& context,
                    const CrossEntropyOptions& options) {
  const ForwardPass pass = forward_pass(model, batch, context, options);
  return {pass.output, pass.loss, read(pass)};
}

BatchResult forward_backward(Module& model, Batch batch, Context& context, SavePolicy* policy,
                             const StepOptions& options) {
  const Device device = model.device();
  ForwardPass pass;
  {
    PolicyScope scope(policy);
    CrossEntropyOptions loss_options;
    loss_options.label_smoothing = options.label_smoothing;
    pass = forward_pass(model, batch, context, loss_options);
  }
  batch = {};
  pass.output = {};
  measure_saved(device, pass.result.memory);
  // CUDA goes on while the host prepares the backward pass; a loss that is not finite is seen
  // behind it.
  const bool later = device.type == DeviceType::cuda;
  if (!later) {
    pass.result = read(pass);
    pass.target = pass.top = {};
    if (!std::isfinite(pass.result.loss)) return pass.result;
  }
  Tensor dy;
  if (options.weight != 1) {
    CategoryScope scope(Category::gradient);
    dy = Tensor::full(pass.loss.shape(), options.weight, pass.loss.dtype(), device);
  }
  const Tensor value = pass.loss.value();
  backward(std::exchange(pass.loss, Variable(value)), dy, options.leaf_done,
           policy != nullptr ? policy->observer() : nullptr);
  return later ? read(pass) : pass.result;
}

LeafFn UpdateInBackward::leaf_done() {
  return [this](GradAccumulator& leaf) {
    if (leaf.values().device().type != DeviceType::meta)
      squares_ += ops::sum_of_squares(leaf.values());
    if (std::isfinite(squares_) && optimizer_.step_leaf(leaf, lr_)) leaf.set({});
  };
}

double UpdateInBackward::norm() const { return std::sqrt(squares_); }

std::string find_nonfinite(Module& model, const Batch& batch, Context& context) {
  for (const auto& p : model.parameters())
    if (!all_finite(p.parameter->value())) return "parameter " + p.name;
  for (const auto& p : model.parameters())
    if (p.parameter->has_grad() && !all_finite(p.parameter->accumulator()->values()))
      return "gradient of " + p.name;
  if (!all_finite(batch.input)) return "the batch's input";
  ScanPolicy scan;
  PolicyScope scope(&scan);
  begin_step(0);
  Batch here = placed(batch, model);
  context.device = model.device();
  context.dtype = model.activations();
  context.extras = std::move(here.extras);
  const Variable output = model.forward(Variable(std::move(here.input)), context);
  context.extras.clear();
  if (!scan.found().empty()) return scan.found();
  for (const auto& b : model.buffers())
    if (!all_finite(*b.buffer)) return "buffer " + b.name;
  return all_finite(output.value()) ? "" : "the model's output";
}

}  // namespace frugal::apps

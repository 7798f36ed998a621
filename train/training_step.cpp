#include "train/training_step.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "autograd/functions.h"
#include "autograd/graph_functions.h"
#include "autograd/record.h"
#include "autograd/saved_totals.h"
#include "autograd/timeline.h"
#include "core/integers.h"
#include "core/memory_trace.h"
#include "core/tensor_identity.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/reduce.h"
#include "ops/graph/segment.h"
#include "ops/graph/spmm.h"
#include "ops/loss/cross_entropy.h"
#include "ops/optimizer/sgd.h"
#include "train/metrics.h"
#include "train/place_batch.h"

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

namespace {

// Counts the targets that count, and those of them that equal the class in `top`.
void count_classes(const Tensor& target, const Tensor& top, BatchResult& result) {
  const auto *wanted = target.data<int64_t>(), *given = top.data<int64_t>();
  result.counted = counted_targets(target);
  for (int64_t i = 0; i < target.numel(); ++i) result.correct += given[i] == wanted[i] ? 1 : 0;
}

// The tensors that a loss is computed from. If most nodes of a graph have no target, these are the
// rows of the nodes with a target alone, and nothing is saved for the others.
struct Judged {
  Variable output;
  Tensor target, weights;
  FloatTargets floats = FloatTargets::answers;
};

// How many samples count, and for how many of them the class `top` has the largest share.
void count_shares(const Tensor& target, const Tensor& top, BatchResult& result) {
  const int64_t classes = target.size(-1);
  const float* shares = target.data<float>();
  for (int64_t row = 0; row < target.size(0); ++row, shares += classes) {
    if (shares[0] < 0) continue;
    ++result.counted;
    result.correct +=
        top.data<int64_t>()[row] == std::max_element(shares, shares + classes) - shares ? 1 : 0;
  }
}

// Counts the yes-or-no questions that count, and those of them that `yes` answers right. `yes`
// holds bits in the layout of ops/dense/bitmask.h.
void count_answers(const Tensor& target, const Tensor& yes, BatchResult& result) {
  const int64_t cols = ops::bitmask_layout(target.shape()).cols;
  for (int64_t i = 0; i < target.numel(); ++i) {
    const float wanted = target.data<float>()[i];
    if (wanted < 0) continue;
    const int64_t row = i / cols;
    const bool answer = (yes.data<uint8_t>()[row / 8 * cols + i % cols] >> (row % 8) & 1) != 0;
    ++result.counted;
    result.correct += answer == (wanted > 0.5f) ? 1 : 0;
  }
}

// The positions of `rows` grouped by node. They are made once for tensors that a source holds, on
// the host.
std::shared_ptr<const ops::Csr> groups_of(const Tensor& rows, int64_t nodes) {
  // The memo is static, because the model is the only object that forward passes of training and of
  // evaluation share.
  static Memo<std::tuple<TensorIdentity>, std::shared_ptr<const ops::Csr>> kept(2);
  forget_gone(kept);
  const auto groups = kept.find_or_make({TensorIdentity(rows)}, [&] {
    const CategoryScope scope(Category::input);
    return std::make_shared<const ops::Csr>(ops::group_by("rows", rows, nodes));
  });
  FRUGAL_ASSERT(groups->rows == nodes);
  return groups;
}

// gather_rows() with a backward pass that does not wait until the host has grouped the rows.
Variable gather_grouped(const Variable& x, const Tensor& rows,
                        const std::shared_ptr<const ops::Csr>& groups) {
  return record("gather_rows", {x}, ops::gather_rows(x.value(), rows), {},
                [groups](const Backward& b) { return Grads{ops::spmm(*groups, b.dy())}; });
}

Variable loss_of(Judged judged, CrossEntropyOptions options) {
  const bool weighted = judged.weights.defined();
  if (!has_several_labels(judged.target)) {
    options.sum = weighted;
    return cross_entropy(std::move(judged.output), judged.target, options, judged.weights);
  }
  // Floating targets have the dtype that the loss computes with.
  const auto in_dtype = [&](DType dtype) {
    const CategoryScope input(Category::input);
    return ops::cast(judged.target, dtype);
  };
  const DType dtype = judged.output.value().dtype();
  if (judged.floats == FloatTargets::shares)
    return soft_cross_entropy(judged.output, in_dtype(dtype == DType::bf16 ? DType::f32 : dtype),
                              options.label_smoothing);
  if (judged.floats == FloatTargets::values)
    return mse_loss(judged.output, Variable::constant(in_dtype(dtype)));
  BinaryCrossEntropyOptions answers;
  answers.sum = weighted;
  const CategoryScope scope(Category::workspace);
  const auto labels = static_cast<double>(judged.target.size(1));
  const Tensor weights =
      weighted ? ops::affine(judged.weights, 1 / labels, 0) : Tensor();  // the mean over labels
  return binary_cross_entropy(judged.output, in_dtype(dtype), answers, weights);
}

// Logits of more than kLogitBytes are made in parts. Each part reads the whole weight, so it has at
// least kLeastRows rows.
constexpr int64_t kLogitBytes = int64_t{64} << 20, kLeastRows = 512;

// The number of rows of a head to make at once: all of them, or parts of equal size.
int64_t rows_at_once(const HeadedModule::Head& head, int64_t rows) {
  const auto row_bytes = head.weight.size(0) * static_cast<int64_t>(size_of(head.x.dtype()));
  const int64_t most = std::max(kLeastRows, kLogitBytes / row_bytes);
  return ceil_div(rows, std::max<int64_t>(ceil_div(rows, most), 1));
}

// Computes what read() needs, before the loss may write over the output.
void judge(const Judged& judged, ForwardPass& pass) {
  const CategoryScope scope(Category::workspace);
  const Tensor& output = judged.output.value();
  pass.floats = judged.floats;
  const bool classes = !has_several_labels(judged.target) || judged.floats == FloatTargets::shares;
  if (classes || judged.floats == FloatTargets::values) {
    pass.target = judged.target;
    if (classes) pass.top = ops::argmax(output, -1);
  } else if (output.device().type == DeviceType::cuda) {
    pass.target = judged.target;
    pass.top = ops::rectify(output, 0, true).mask;
  } else {
    MultiLabelCounts answers;
    answers.add(output, judged.target);
    pass.result.counted = answers.total();
    pass.result.correct = answers.correct();
  }
}

}  // namespace

// The input is moved out of the batch, so that its bytes are freed as soon as no layer needs them.
ForwardPass forward_pass(Module& model, Batch& batch, Context& context,
                         const CrossEntropyOptions& options, bool keep_output) {
  batch = placed(std::move(batch), model);
  ForwardPass pass;
  pass.result.samples = batch.input.size(0);
  context.device = model.device();
  context.dtype = model.activations();
  context.keeps_frozen_statistics = model.keeps_frozen_statistics();
  context.block = 0;
  context.extras = std::move(batch.extras);
  const bool graph = context.extra("edge_index").defined();
  const Tensor weights = context.extra("node_weight");
  const Tensor counted = context.extra("counted_target"), rows = context.extra("counted_rows"),
               counted_weights = context.extra("counted_weight");
  // The features of a graph are always constant. So saved tensors have the same numbers as in the
  // planner's steps, whose graph is whole.
  Variable input = batch.held || graph ? Variable::constant(std::move(batch.input))
                                       : Variable(std::move(batch.input));
  Variable output;
  auto* const headed = dynamic_cast<HeadedModule*>(&model);
  if (headed != nullptr && !keep_output && !has_several_labels(batch.target)) {
    HeadedModule::Head head = headed->before_output(std::move(input), context);
    const int64_t rows_here = batch.target.numel();
    if (const int64_t part = rows_at_once(head, rows_here); part < rows_here) {
      context.extras.clear();
      LinearCrossEntropy judged =
          linear_cross_entropy(head.x, head.weight, head.bias, batch.target, options, part);
      pass.loss = std::move(judged.loss);
      pass.target = batch.target;
      pass.top = std::move(judged.top);
      return pass;
    }
    output = head.output();
  } else {
    output = model.forward(std::move(input), context);
  }
  context.extras.clear();
  if (keep_output) pass.output = output;
  Judged judged{std::move(output), batch.target, weights, batch.floats};
  if (rows.defined()) {
    const Variable all = std::move(judged.output);
    if (batch.held && grad_enabled() && model.device().type == DeviceType::cuda)
      pass.groups = groups_of(rows, all.size(0));
    judged = {
        pass.groups != nullptr ? gather_grouped(all, rows, pass.groups) : gather_rows(all, rows),
        counted, counted_weights, batch.floats};
  }
  if (model.device().type != DeviceType::meta) judge(judged, pass);
  pass.loss = loss_of(std::move(judged), options);
  return pass;
}

BatchResult read(const ForwardPass& pass) {
  BatchResult result = pass.result;
  if (pass.loss.device().type == DeviceType::meta) return result;
  if (pass.target.defined()) {
    const CategoryScope scope(Category::workspace);
    const Tensor target = to_device(pass.target, kCpu);
    const Tensor top = pass.top.defined() ? to_device(pass.top, kCpu) : pass.top;
    if (!has_several_labels(target))
      count_classes(target, top, result);
    else if (pass.floats == FloatTargets::shares)
      count_shares(target, top, result);
    else if (pass.floats == FloatTargets::values)
      result.counted = target.numel();
    else
      count_answers(target, top, result);
  }
  // A batch without targets that count has no loss, and no gradient.
  if (result.counted > 0) result.loss = pass.loss.value().item();
  return result;
}

Outcome run_forward(Module& model, Batch& batch, Context& context,
                    const CrossEntropyOptions& options, bool keep_output) {
  const ForwardPass pass = forward_pass(model, batch, context, options, keep_output);
  return {pass.output, pass.loss, read(pass)};
}

BatchResult forward_backward(Module& model, Batch batch, Context& context, SavePolicy* policy,
                             const StepOptions& options) {
  const Device device = model.device();
  ForwardPass pass;
  {
    const TimeSpan span(Timeline::Kind::phase, "forward pass");
    PolicyScope scope(policy);
    CrossEntropyOptions loss_options;
    loss_options.label_smoothing = options.label_smoothing;
    pass = forward_pass(model, batch, context, loss_options, false);
  }
  batch = {};
  measure_saved(device, pass.result.memory);
  if (options.before_backward) options.before_backward(pass.loss, pass.result.memory);
  // CUDA works while the host prepares the backward pass, so a loss that is not finite is noticed
  // after that pass.
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
  const TimeSpan span(Timeline::Kind::phase, "backward pass");
  backward(std::exchange(pass.loss, Variable(value)), dy, options.leaf_done,
           policy != nullptr ? policy->observer() : nullptr);
  return later ? read(pass) : pass.result;
}

int64_t counted_targets(const Tensor& target, FloatTargets floats) {
  const int64_t all = target.numel();
  if (has_several_labels(target) && floats == FloatTargets::values) return all;
  if (has_several_labels(target) && floats == FloatTargets::shares) {
    const int64_t classes = target.size(-1);
    int64_t counted = 0;
    for (int64_t at = 0; at < all; at += classes) counted += target.data<float>()[at] >= 0 ? 1 : 0;
    return counted;
  }
  if (!has_several_labels(target)) {
    const auto* wanted = target.data<int64_t>();
    return all - std::count(wanted, wanted + all, kIgnored);
  }
  const auto* wanted = target.data<float>();
  return std::count_if(wanted, wanted + all, [](float answer) { return answer >= 0; });
}

double PartWeights::next(const Batch& batch) {
  if (parts_ == 1) return 1;
  const bool weighted = find_tensor(batch.extras, "node_weight").defined();
  const double counted =
      weighted ? 1 : static_cast<double>(counted_targets(batch.target, batch.floats));
  if (first_ == 0) first_ = counted;
  sum_ += counted;
  return first_ > 0 ? counted / first_ / static_cast<double>(parts_) : 0;
}

double PartWeights::factor() const {
  return sum_ > 0 ? first_ * static_cast<double>(parts_) / sum_ : 1;
}

LeafFn UpdateInBackward::leaf_done() {
  return [this](GradAccumulator& leaf) {
    if (leaf.values().device().type != DeviceType::meta) {
      const double squares = ops::sum_of_squares(leaf.values());
      squares_ += squares;
      if (each_ != nullptr) (*each_)[&leaf] += squares;
    }
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
  context.keeps_frozen_statistics = model.keeps_frozen_statistics();
  context.extras = std::move(here.extras);
  const Variable output = model.forward(Variable(std::move(here.input)), context);
  context.extras.clear();
  if (!scan.found().empty()) return scan.found();
  for (const auto& b : model.buffers())
    if (!all_finite(*b.buffer)) return "buffer " + b.name;
  return all_finite(output.value()) ? "" : "the model's output";
}

}  // namespace frugal::train

#include "train/tasks/several_labels.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "train/metrics/metrics.h"
#include "train/metrics/named_metrics.h"
#include "train/tasks/counted_rows.h"

namespace frugal::train {
namespace {

bool some_are_ignored(const Tensor& target) {
  if (target.device() != kCpu || target.dtype() != DType::f32) return false;
  const float* const all = target.data<float>();
  return std::any_of(all, all + target.numel(), [](float answer) { return answer < 0; });
}

}  // namespace

Batch SeveralLabels::place(Batch batch, const Module& model) const {
  if (batch.target.defined() && some_are_ignored(batch.target))
    add_counted_rows(batch, model.device());
  return Task::place(std::move(batch), model);
}

void SeveralLabels::judge(const Judged& judged, ForwardPass& pass) const {
  const CategoryScope scope(Category::workspace);
  const Tensor& output = judged.output.value();
  if (output.device().type == DeviceType::cuda) {
    pass.target = judged.target;
    pass.answers = ops::rectify(output, 0, true).mask;  // the layout of ops/dense/bitmask.h
    return;
  }
  MultiLabelCounts answers;
  answers.add(output, judged.target);
  pass.counts = {answers.total(), answers.correct()};
}

SeveralLabels::SeveralLabels(BatchSpec spec, ClassOptions options)
    : SupervisedTask(std::move(spec)), options_(std::move(options)) {
  check_class_weights(options_, spec_.classes);
}

// The share of each answer in the loss, [rows * C].
Tensor SeveralLabels::label_weights(int64_t rows, DType dtype, Device device) const {
  const auto classes = static_cast<int64_t>(options_.class_weights.size());
  const DType wanted = dtype == DType::bf16 ? DType::f32 : dtype;
  const bool once = device.type == DeviceType::cuda;
  if (once && weights_.defined() && weights_.numel() == rows * classes &&
      weights_.dtype() == wanted && weights_.device() == device)
    return weights_;
  std::vector<double> all;
  all.reserve(static_cast<size_t>(rows * classes));
  for (int64_t row = 0; row < rows; ++row)
    for (const double weight : options_.class_weights)
      all.push_back(weight / static_cast<double>(rows * classes));
  const CategoryScope scope(Category::input);
  const Tensor weights = to_device(ops::cast(Tensor::from(all, {rows * classes}), wanted), device);
  if (once) weights_ = weights;
  return weights;
}

Variable SeveralLabels::loss_of(Judged judged, const LossOptions&) const {
  Tensor target;
  {
    const CategoryScope input(Category::input);
    target = ops::cast(judged.target, judged.output.value().dtype());
  }
  BinaryCrossEntropyOptions how;
  // Rows with answers that are not known have a weight for each answer.
  const bool each = judged.weights.defined() && judged.weights.dim() == 2;
  const bool classes = judged.trains && !options_.class_weights.empty();
  if (each || classes) {
    FRUGAL_CHECK(each || !judged.weights.defined(),
                 "[task] expected rows without weights of their own beside weights of classes");
    how.sum = true;
    const int64_t rows = target.size(0), all = target.numel();
    const DType dtype = judged.output.value().dtype();
    Tensor weights = classes ? label_weights(rows, dtype, judged.output.device()) : Tensor();
    if (each) {
      const CategoryScope scope(Category::workspace);
      const Tensor shares = judged.weights.view({all});
      weights =
          classes ? ops::affine(ops::mul(weights, shares), static_cast<double>(all), 0) : shares;
      target = ops::rectify(target, 0, false).y;  // kIgnored has weight 0, and 0 is a target
    }
    return binary_cross_entropy(reshape(judged.output, {all, 1}), target.view({all, 1}), how,
                                weights);
  }
  how.sum = judged.weights.defined();
  const CategoryScope scope(Category::workspace);
  const auto labels = static_cast<double>(judged.target.size(1));
  const Tensor weights =
      how.sum ? ops::affine(judged.weights, 1 / labels, 0) : Tensor();  // the mean over labels
  return binary_cross_entropy(judged.output, target, how, weights);
}

int64_t SeveralLabels::counted(const Tensor& target, FloatTargets) const {
  const auto* wanted = target.data<float>();
  return std::count_if(wanted, wanted + target.numel(), [](float answer) { return answer >= 0; });
}

Counts SeveralLabels::count(const ForwardPass& pass) const {
  if (!pass.target.defined()) return pass.counts;
  const CategoryScope scope(Category::workspace);
  const Tensor target = to_device(pass.target, kCpu), yes = to_device(pass.answers, kCpu);
  const int64_t cols = ops::bitmask_layout(target.shape()).cols;
  Counts counts;
  for (int64_t i = 0; i < target.numel(); ++i) {
    const float wanted = target.data<float>()[i];
    if (wanted < 0) continue;
    const int64_t row = i / cols;
    const bool answer = (yes.data<uint8_t>()[row / 8 * cols + i % cols] >> (row % 8) & 1) != 0;
    ++counts.counted;
    counts.correct += answer == (wanted > 0.5f) ? 1 : 0;
  }
  return counts;
}

std::unique_ptr<Metric> SeveralLabels::metric() const { return make_metric(spec()); }

Tensor SeveralLabels::predict(const Tensor& output) const {
  const Tensor logits = Task::predict(output);
  const CategoryScope scope(Category::workspace);
  Tensor out = Tensor::empty(logits.shape());
  for (int64_t i = 0; i < out.numel(); ++i)
    out.mut<float>()[i] =
        static_cast<float>(1 / (1 + std::exp(-static_cast<double>(logits.data<float>()[i]))));
  return out;
}

}  // namespace frugal::train

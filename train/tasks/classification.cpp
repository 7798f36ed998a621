#include "train/tasks/classification.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions.h"
#include "autograd/segmentation_functions.h"
#include "ops/dense/copy.h"
#include "ops/dense/reduce.h"
#include "train/metrics/named_metrics.h"

namespace frugal::train {
namespace {

bool are_shares(const Tensor& target) { return is_floating(target.dtype()); }

}  // namespace

void check_class_weights(const ClassOptions& options, int64_t classes) {
  const std::vector<double>& weights = options.class_weights;
  FRUGAL_CHECK(weights.empty() || static_cast<int64_t>(weights.size()) == classes,
               "[task] expected a weight for each of {} classes, got {}", classes, weights.size());
  for (size_t i = 0; i < weights.size(); ++i)
    FRUGAL_CHECK(weights[i] >= kLeastClassWeight && weights[i] <= kLargestClassWeight,
                 "[task] expected weights of classes from {} to {}, got {} for class {}",
                 kLeastClassWeight, kLargestClassWeight, weights[i], i);
}

Classification::Classification(BatchSpec spec, ClassOptions options)
    : SupervisedTask(std::move(spec)), options_(std::move(options)) {
  check_class_weights(options_, spec_.classes);
}

Tensor Classification::class_weights(const Tensor& logits) const {
  if (options_.class_weights.empty()) return {};
  const DType dtype = logits.dtype() == DType::bf16 ? DType::f32 : logits.dtype();
  const int64_t outputs = logits.size(-1);
  const bool once = logits.device().type == DeviceType::cuda;
  if (once && weights_.defined() && weights_.dtype() == dtype &&
      weights_.device() == logits.device() && weights_.numel() == outputs)
    return weights_;
  std::vector<double> all = options_.class_weights;
  all.resize(std::max(all.size(), static_cast<size_t>(outputs)), 1.0);
  const CategoryScope scope(Category::input);
  const Tensor made = Tensor::from(all, {static_cast<int64_t>(all.size())});
  const Tensor weights = to_device(ops::cast(made, dtype), logits.device());
  if (once) weights_ = weights;
  return weights;
}

double Classification::weight(const Batch& batch) const {
  const bool plain = !divides_by_weights() || are_shares(batch.target);
  return plain ? SupervisedTask::weight(batch) : weight_of(batch.target);
}

double Classification::weight_of(const Tensor& target) const {
  const std::vector<double>& weights = options_.class_weights;
  double sum = 0;
  const auto* wanted = target.data<int64_t>();
  for (int64_t i = 0; i < target.numel(); ++i) {
    if (wanted[i] == kIgnored) continue;
    FRUGAL_CHECK(wanted[i] >= 0 && wanted[i] < static_cast<int64_t>(weights.size()),
                 "[task] expected targets in [0, {}) or the ignored {}, got {} in row {}",
                 weights.size(), kIgnored, wanted[i], i);
    sum += weights[static_cast<size_t>(wanted[i])];
  }
  return sum;
}

void Classification::judge(const Judged& judged, ForwardPass& pass) const {
  const CategoryScope scope(Category::workspace);
  pass.target = judged.target;
  pass.answers = ops::argmax(judged.output.value(), -1);
  pass.weighs_classes = judged.trains && divides_by_weights();
}

Variable Classification::loss_of(Judged judged, const LossOptions& options) const {
  CrossEntropyOptions how;
  how.label_smoothing = options.label_smoothing;
  if (!are_shares(judged.target)) {
    how.sum = judged.weights.defined();
    const Tensor weights = class_weights(judged.output.value());
    if (judged.trains && weights.defined()) {
      FRUGAL_CHECK(!how.sum,
                   "[task] expected rows without weights of their own beside weights of "
                   "classes");
      return weighted_cross_entropy(std::move(judged.output), judged.target, weights, how);
    }
    return cross_entropy(std::move(judged.output), judged.target, how, judged.weights);
  }
  const DType dtype = judged.output.value().dtype();
  Tensor shares;
  {
    const CategoryScope input(Category::input);
    shares = ops::cast(judged.target, dtype == DType::bf16 ? DType::f32 : dtype);
  }
  return soft_cross_entropy(judged.output, shares, options.label_smoothing);
}

int64_t Classification::counted(const Tensor& target, FloatTargets) const {
  const int64_t all = target.numel();
  if (!are_shares(target)) {
    const auto* wanted = target.data<int64_t>();
    return all - std::count(wanted, wanted + all, kIgnored);
  }
  const int64_t classes = target.size(-1);
  int64_t rows = 0;
  for (int64_t at = 0; at < all; at += classes) rows += target.data<float>()[at] >= 0 ? 1 : 0;
  return rows;
}

Counts Classification::count(const ForwardPass& pass) const {
  const CategoryScope scope(Category::workspace);
  const Tensor target = to_device(pass.target, kCpu), answers = to_device(pass.answers, kCpu);
  const auto* given = answers.data<int64_t>();
  Counts counts{counted(target, pass.floats), 0};
  if (!are_shares(target)) {
    const auto* wanted = target.data<int64_t>();
    for (int64_t i = 0; i < target.numel(); ++i) counts.correct += given[i] == wanted[i] ? 1 : 0;
    if (pass.weighs_classes) counts.weight = weight_of(target);
    return counts;
  }
  const int64_t classes = target.size(-1);
  const float* shares = target.data<float>();
  for (int64_t row = 0; row < target.size(0); ++row, shares += classes)
    if (shares[0] >= 0 && given[row] == std::max_element(shares, shares + classes) - shares)
      ++counts.correct;
  return counts;
}

std::unique_ptr<Metric> Classification::metric() const { return make_metric(spec()); }

Tensor Classification::predict(const Tensor& output) const {
  const Tensor logits = Task::predict(output);
  const CategoryScope scope(Category::workspace);
  const int64_t rows = logits.size(0), classes = logits.size(1);
  Tensor out = Tensor::empty({rows, classes});
  const float* in = logits.data<float>();
  float* to = out.mut<float>();
  for (int64_t row = 0; row < rows; ++row, in += classes, to += classes) {
    const double highest = *std::max_element(in, in + classes);
    double sum = 0;
    for (int64_t i = 0; i < classes; ++i) sum += std::exp(in[i] - highest);
    for (int64_t i = 0; i < classes; ++i)
      to[i] = static_cast<float>(std::exp(in[i] - highest) / sum);
  }
  return out;
}

}  // namespace frugal::train

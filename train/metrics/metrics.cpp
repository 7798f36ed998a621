#include "train/metrics/metrics.h"

#include <cmath>
#include <limits>
#include <span>

#include "core/dtype_switch.h"
#include "core/error.h"
#include "ops/dense/copy.h"
#include "ops/dense/reduce.h"

namespace frugal::train {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void add_counts(distributed::Communicator& ranks, std::vector<int64_t>& counts) {
  const CategoryScope scope(Category::workspace);
  const Tensor all = Tensor::from(counts, {static_cast<int64_t>(counts.size())});
  ranks.all_reduce(all, distributed::Reduction::sum, "counts of a metric");
  counts = all.to_vector<int64_t>();
}

double ratio(double over, double under, double otherwise) {
  return under == 0 ? otherwise : over / under;
}

double as_double(int64_t value) { return static_cast<double>(value); }

void check_values(const char* what, const Tensor& tensor) {
  FRUGAL_CHECK(tensor.defined() && tensor.device().type != DeviceType::meta,
               "[metrics] expected {} with values", what);
}

void check_logits(const Tensor& logits) {
  check_values("logits", logits);
  FRUGAL_CHECK(is_floating(logits.dtype()), "[metrics] expected logits of a floating dtype, got {}",
               describe(logits));
}

// For each element: is it above `limit`?
std::vector<bool> above(const Tensor& tensor, double limit) {
  const Tensor dense = to_device(ops::contiguous(tensor), kCpu);
  std::vector<bool> yes(static_cast<size_t>(tensor.numel()));
  with_dtype(dense.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* values = dense.data<T>();
    for (size_t i = 0; i < yes.size(); ++i) {
      if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
        yes[i] = static_cast<double>(static_cast<float>(values[i])) > limit;
      else
        yes[i] = static_cast<double>(values[i]) > limit;
    }
  });
  return yes;
}

}  // namespace

Confusion::Confusion(int64_t classes) : classes_(classes) {
  FRUGAL_CHECK(classes >= 1, "[metrics] expected at least one class, got {}", classes);
  counts_.resize(static_cast<size_t>(classes * classes));
}

void Confusion::add(const Tensor& logits, const Tensor& target, int64_t ignore_index) {
  check_logits(logits);
  check_values("target", target);
  FRUGAL_CHECK(logits.dim() >= 1 && logits.size(-1) == classes_,
               "[metrics] expected logits of {} classes, got {}", classes_, describe(logits));
  const Shape rows(std::span(logits.shape().begin(), static_cast<size_t>(logits.dim() - 1)));
  FRUGAL_CHECK(target.dtype() == DType::i64 && target.shape() == rows,
               "[metrics] expected target {} i64, got {}", rows, describe(target));
  const CategoryScope scope(Category::workspace);
  const Tensor matrix = ops::contiguous(logits).view({rows.numel(), classes_});
  const Tensor top = to_device(ops::argmax(matrix, 1), kCpu);
  const Tensor at = to_device(ops::contiguous(target), kCpu);
  for (int64_t row = 0; row < rows.numel(); ++row)
    if (at.data<int64_t>()[row] != ignore_index)
      add(top.data<int64_t>()[row], at.data<int64_t>()[row]);
}

void Confusion::add(int64_t predicted, int64_t target) {
  for (const int64_t value : {predicted, target})
    FRUGAL_CHECK(value >= 0 && value < classes_, "[metrics] expected a class in [0, {}), got {}",
                 classes_, value);
  ++counts_[static_cast<size_t>(target * classes_ + predicted)];
}

Confusion& Confusion::operator+=(const Confusion& other) {
  FRUGAL_CHECK(classes_ == other.classes_, "[metrics] expected counts of {} classes, got {}",
               classes_, other.classes_);
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  return *this;
}

void Confusion::add_ranks(distributed::Communicator& ranks) { add_counts(ranks, counts_); }

int64_t Confusion::count(int64_t target, int64_t predicted) const {
  return counts_[static_cast<size_t>(target * classes_ + predicted)];
}

int64_t Confusion::total() const {
  int64_t sum = 0;
  for (const int64_t count : counts_) sum += count;
  return sum;
}

int64_t Confusion::correct() const {
  int64_t sum = 0;
  for (int64_t c = 0; c < classes_; ++c) sum += count(c, c);
  return sum;
}

double Confusion::accuracy() const { return ratio(as_double(correct()), as_double(total()), kNan); }

double Confusion::f1(int64_t positive) const {
  FRUGAL_CHECK(positive >= 0 && positive < classes_,
               "[metrics] expected a class in [0, {}), got {}", classes_, positive);
  int64_t targets = 0, predictions = 0;
  for (int64_t c = 0; c < classes_; ++c) {
    targets += count(positive, c);
    predictions += count(c, positive);
  }
  return ratio(2 * as_double(count(positive, positive)), as_double(targets + predictions), 0);
}

double Confusion::macro_f1() const {
  double sum = 0;
  for (int64_t c = 0; c < classes_; ++c) sum += f1(c);
  return sum / as_double(classes_);
}

double Confusion::iou(int64_t positive) const {
  int64_t either = -count(positive, positive);
  for (int64_t c = 0; c < classes_; ++c) either += count(positive, c) + count(c, positive);
  return ratio(as_double(count(positive, positive)), as_double(either), kNan);
}

double Confusion::mean_iou() const {
  double sum = 0, present = 0;
  for (int64_t k = 0; k < classes_; ++k) {
    const double each = iou(k);
    if (std::isnan(each)) continue;
    sum += each;
    present += 1;
  }
  return ratio(sum, present, kNan);
}

double Confusion::mean_dice() const {
  double sum = 0, present = 0;
  for (int64_t k = 0; k < classes_; ++k) {
    if (std::isnan(iou(k))) continue;
    sum += f1(k);
    present += 1;
  }
  return ratio(sum, present, kNan);
}

double Confusion::matthews() const {
  const double all = as_double(total());
  double product = 0, of_targets = 0, of_predictions = 0;
  for (int64_t k = 0; k < classes_; ++k) {
    double targets = 0, predictions = 0;
    for (int64_t c = 0; c < classes_; ++c) {
      targets += as_double(count(k, c));
      predictions += as_double(count(c, k));
    }
    product += targets * predictions;
    of_targets += targets * targets;
    of_predictions += predictions * predictions;
  }
  const double covariance = as_double(correct()) * all - product;
  // Two square roots, because the product of both numbers could overflow.
  return ratio(covariance,
               std::sqrt(all * all - of_targets) * std::sqrt(all * all - of_predictions), 0);
}

void MultiLabelCounts::add(const Tensor& logits, const Tensor& target, const Tensor& mask) {
  check_logits(logits);
  check_values("target", target);
  FRUGAL_CHECK(logits.dim() == 2, "[metrics] expected logits [N, C], got {}", describe(logits));
  FRUGAL_CHECK(target.shape() == logits.shape(), "[metrics] expected target of shape {}, got {}",
               logits.shape(), describe(target));
  std::vector<bool> counted(static_cast<size_t>(logits.size(0)), true);
  if (mask.defined()) {
    check_values("mask", mask);
    FRUGAL_CHECK(mask.shape() == Shape{logits.size(0)},
                 "[metrics] expected a mask of shape [{}], got {}", logits.size(0), describe(mask));
    counted = above(mask, 0);
  }
  const CategoryScope scope(Category::workspace);
  const std::vector<bool> predicted = above(logits, 0), wanted = above(target, 0.5);
  const std::vector<bool> asked = above(target, -0.5);
  const auto width = static_cast<size_t>(logits.size(1));
  for (size_t i = 0; i < predicted.size(); ++i) {
    if (!counted[i / width] || !asked[i]) continue;
    int64_t& count = wanted[i] ? (predicted[i] ? true_positives : false_negatives)
                               : (predicted[i] ? false_positives : true_negatives);
    ++count;
  }
}

MultiLabelCounts& MultiLabelCounts::operator+=(const MultiLabelCounts& other) {
  true_positives += other.true_positives;
  false_positives += other.false_positives;
  false_negatives += other.false_negatives;
  true_negatives += other.true_negatives;
  return *this;
}

void MultiLabelCounts::add_ranks(distributed::Communicator& ranks) {
  std::vector<int64_t> counts = {true_positives, false_positives, false_negatives, true_negatives};
  add_counts(ranks, counts);
  true_positives = counts[0];
  false_positives = counts[1];
  false_negatives = counts[2];
  true_negatives = counts[3];
}

void FitOfValues::add(const Tensor& output, const Tensor& target) {
  check_logits(output);
  check_values("target", target);
  FRUGAL_CHECK(output.dim() == 2 && target.shape() == output.shape(),
               "[metrics] expected outputs and targets of one shape [N, C], got {} and {}",
               describe(output), describe(target));
  const CategoryScope scope(Category::workspace);
  const auto numbers = [](const Tensor& tensor) {
    return ops::cast(to_device(ops::contiguous(tensor), kCpu), DType::f64);
  };
  const Tensor given = numbers(output), wanted = numbers(target);
  const int64_t width = output.size(1);
  columns_.resize(static_cast<size_t>(width));
  for (int64_t i = 0; i < output.numel(); ++i) {
    Column& column = columns_[static_cast<size_t>(i % width)];
    const double y = wanted.data<double>()[i], off = y - given.data<double>()[i];
    const double from_mean = y - column.mean;
    column.count += 1;
    column.mean += from_mean / column.count;
    column.spread += from_mean * (y - column.mean);
    column.error += off * off;
    column.distance += std::abs(off);
  }
}

double FitOfValues::r2() const {
  double sum = 0;
  for (const Column& column : columns_)
    sum += column.spread > 0 ? 1 - column.error / column.spread : column.error == 0 ? 1 : 0;
  return columns_.empty() ? kNan : sum / as_double(static_cast<int64_t>(columns_.size()));
}

double FitOfValues::mse() const {
  double sum = 0, count = 0;
  for (const Column& column : columns_) {
    sum += column.error;
    count += column.count;
  }
  return ratio(sum, count, kNan);
}

double FitOfValues::mae() const {
  double sum = 0, count = 0;
  for (const Column& column : columns_) {
    sum += column.distance;
    count += column.count;
  }
  return ratio(sum, count, kNan);
}

double MultiLabelCounts::micro_f1() const {
  const int64_t twice = 2 * true_positives;
  return ratio(as_double(twice), as_double(twice + false_positives + false_negatives), 0);
}

double MultiLabelCounts::accuracy() const {
  return ratio(as_double(correct()), as_double(total()), kNan);
}

}  // namespace frugal::train

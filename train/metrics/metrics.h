// Measures of the outputs of a network, from numbers that add up over batches: the result does not
// depend on how samples were cut into batches. Tensors lie on any device but `meta`.
#pragma once
#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "distributed/communicator.h"

namespace frugal::train {

// Counts how often each class was taken for each class. It is meant for up to some thousand
// classes.
class Confusion {
 public:
  explicit Confusion(int64_t classes);  // Errors: classes < 1

  // logits [..., C] f32 or f64, target [...] i64; the largest logit is the prediction, the first of
  // equals. Targets that are `ignore_index` do not count.  Errors: shapes that do not fit, targets
  // outside [0, C).
  void add(const Tensor& logits, const Tensor& target, int64_t ignore_index = -100);
  void add(int64_t predicted, int64_t target);       // Errors: outside [0, C)
  Confusion& operator+=(const Confusion& other);     // Errors: another number of classes
  void add_ranks(distributed::Communicator& ranks);  // the counts of all ranks; all call it

  int64_t classes() const { return classes_; }
  int64_t count(int64_t target, int64_t predicted) const;
  int64_t total() const;
  int64_t correct() const;

  double accuracy() const;  // NaN without counts
  // 2 tp / (2 tp + fp + fn) of one class; 0 if the class is neither a target nor a prediction.
  double f1(int64_t positive = 1) const;
  double macro_f1() const;  // the mean over all classes
  // tp / (tp + fp + fn): the intersection over the union of the positions that a class has as
  // target and as prediction. NaN where the class is neither.
  double iou(int64_t positive) const;
  // The mean of iou() over the classes that are a target or a prediction; NaN without counts.
  double mean_iou() const;
  // Dice's coefficient: the mean of f1() over the classes that are a target or a prediction. NaN
  // without counts.
  double mean_dice() const;
  // Matthews' correlation; for more than two classes Gorodkin's R_K. 0 where predictions or targets
  // are all of one class.  Ref: Matthews 1975; Gorodkin 2004.
  double matthews() const;

 private:
  int64_t classes_;
  std::vector<int64_t> counts_;  // [target, predicted]
};

// Counts the answers of multi-label networks: each of C questions of a sample has its own answer.
class MultiLabelCounts {
 public:
  // logits [N, C] f32 or f64, target [N, C] of any dtype, in which above 0.5 is yes and below 0
  // does not count; a logit above 0 says yes. mask [N] of any dtype: rows of 0 do not count;
  // undefined: all count. Errors: shapes that do not fit.
  void add(const Tensor& logits, const Tensor& target, const Tensor& mask = {});
  MultiLabelCounts& operator+=(const MultiLabelCounts& other);
  void add_ranks(distributed::Communicator& ranks);  // the counts of all ranks; all call it

  int64_t true_positives = 0, false_positives = 0, false_negatives = 0, true_negatives = 0;
  int64_t correct() const { return true_positives + true_negatives; }
  int64_t total() const { return correct() + false_positives + false_negatives; }
  // 2 tp / (2 tp + fp + fn) over all questions; 0 where there is no yes. GraphSAINT reports this
  // measure.
  double micro_f1() const;
  double accuracy() const;  // the share of single answers that are right; NaN without counts
};

// Measures of regression: the share of the values' variance that the outputs explain, and the
// errors of the outputs.
class FitOfValues {
 public:
  // output and target [N, C] of any floating dtypes. Errors: shapes that do not fit.
  void add(const Tensor& output, const Tensor& target);
  // 1 - sum (y - output)^2 / sum (y - mean y)^2, the mean over the columns. 1: every output is
  // right; 0: no better than the mean. A column whose values are all equal counts as 1 where the
  // outputs are right, else as 0. NaN without values.
  double r2() const;
  // The mean squared and the mean absolute error over all values; NaN without values.
  double mse() const;
  double mae() const;

 private:
  // What is known of a column: the number of its rows so far, their mean, the sum of squares around
  // the mean (Welford 1962), and the sums of squared and of absolute errors.
  struct Column {
    double count = 0, mean = 0, spread = 0, error = 0, distance = 0;
  };
  std::vector<Column> columns_;
};

}  // namespace frugal::train

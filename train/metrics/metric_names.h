// The metrics that evaluations may have beside the loss: which targets each of them measures, and
// which direction is better.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "train/batch_spec.h"

namespace frugal::train {

struct MetricName {
  std::string_view name;
  std::vector<BatchSpec::Target> targets;  // the targets that it measures
  bool higher_is_better = true;
  // For classes: is each pair of a right class and a prediction counted? Then the network needs one
  // output for each class of the data, and memory grows as the square of their number.
  bool counts_pairs = false;

  bool measures(BatchSpec::Target target) const;
  // Do evaluations with this metric have an accuracy, too?
  bool has_accuracy() const;
};
// All of them, in the order of reports. BatchSpec::metric is the name of one of these, or empty, or
// that of a metric of one's own.
//   f1          2 tp / (2 tp + fp + fn) of class 1
//   macro_f1    the mean of that over all classes
//   micro_f1    that of all answers together; where a target is one class, it equals the accuracy
//   matthews    Matthews' correlation
//   perplexity  e to the loss
//   miou        the mean of the classes' intersections over unions
//   dice        the mean of f1 over the classes that occur
//   r2          the share of the variance that outputs explain
//   mse, mae    the mean squared and the mean absolute error of the values that are trained with
//   map         COCO's mean average precision, over overlaps of 0.5 to 0.95
//   map_50      that for the overlap 0.5
//   knn         the share of samples whose class their nearest neighbours have
const std::vector<MetricName>& known_metrics();
const MetricName* find_metric(std::string_view name);  // null: there is none
// "f1, matthews and perplexity", in the order of known_metrics().
std::string names_of_metrics(BatchSpec::Target target);

// What is measured where nobody says otherwise; empty: loss and accuracy are enough.
std::string usual_metric(BatchSpec::Target target);
// Can an output for such a target be counted as right? Then evaluations have an accuracy.
bool has_accuracy(BatchSpec::Target target);
// The target whose usual metric this is, else a class of a sample. Earlier versions told a target
// by its metric.
BatchSpec::Target target_of_usual_metric(std::string_view metric);

}  // namespace frugal::train

// The task of some data.
#pragma once
#include <vector>

#include "train/tasks/language_model.h"
#include "train/tasks/segmentation.h"
#include "train/tasks/self_supervised.h"

namespace frugal::train {

// What tasks are made with, beside the data. Each of them reads what concerns it.
struct TaskOptions {
  // The weight of each class, or of each of several labels, in training; empty: all are 1.
  std::vector<double> class_weights = {};
  // A class for each token: LanguageModel's part_bytes.
  int64_t logit_bytes = LanguageModel::kLogitBytes;
  // A class for each pixel: what is trained with.
  SegmentationOptions::Loss pixel_loss = SegmentationOptions().loss;
  double focal_gamma = SegmentationOptions().focal_gamma;
  // Views: what the metric knn compares with. Without `samples` evaluations have no metric.
  KnnOptions knn = {};
  SelfSupervision::MakeSamples samples = {};
};

// By spec.target and spec.kind. Errors: a metric that does not measure the target; weights of
// classes for data without; those of the task.
TaskPtr make_task(BatchSpec spec, const TaskOptions& options = {});

}  // namespace frugal::train

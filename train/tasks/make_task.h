// The task of some data.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "core/option.h"
#include "data/batch_source.h"
#include "train/task.h"

namespace frugal::train {

// The loss of a class for each pixel. cross_entropy_dice is the sum of both.
enum class PixelLoss : uint8_t { cross_entropy, focal, dice, cross_entropy_dice };

// Logits of more bytes, in training those of a whole batch, are made in parts.
constexpr int64_t kLogitBytes = int64_t{64} << 20;

// How the metric knn judges features (train/metrics/knn.h).
struct KnnOptions {
  int64_t k = 200;  // neighbours that vote; no more than there are
  double temperature = 0.1;

  static std::vector<by_name::Option<KnnOptions>> list() {
    return {{{"neighbours", by_name::range::integer(1, 1 << 20),
              "simsiam, byol, moco_v2: training samples that vote for the class of a test sample "
              "in the metric knn."},
             &KnnOptions::k}};
  }
};

// What tasks are made with, beside the data. Each of them reads what concerns it.
struct TaskOptions {
  // The weight of each class, or of each of several labels, in training; empty: all are 1.
  std::vector<double> class_weights = {};
  // A class for each token: LanguageModel's part_bytes.
  int64_t logit_bytes = kLogitBytes;
  // A class for each pixel: what is trained with.
  PixelLoss pixel_loss = PixelLoss::cross_entropy;
  double focal_gamma = 2;
  // Views: what the metric knn compares with. Without `samples` evaluations have no metric.
  KnnOptions knn = {};
  std::function<std::unique_ptr<data::BatchSource>()> samples = {};

  static std::vector<by_name::Option<TaskOptions>> list();
};

// By spec.target and spec.kind. Errors: a metric that does not measure the target; weights of
// classes for data without; those of the task.
TaskPtr make_task(BatchSpec spec, const TaskOptions& options = {});

}  // namespace frugal::train

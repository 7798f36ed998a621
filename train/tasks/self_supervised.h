// Self-supervision: a network learns from two views of each picture, and labels only judge it.
#pragma once
#include <functional>
#include <memory>

#include "data/batch_source.h"
#include "train/metrics/knn.h"
#include "train/task.h"
#include "train/tasks/make_task.h"

namespace frugal::train {

// The network is a models::SelfSupervised. Training batches have an extra `second_view`, shaped
// as the input; the loss is SelfSupervised::loss(). With moco_v2, a sample counts as right that
// is more like its own key than like any of the queue's; with other methods none does. A pass in
// evaluation mode gives the trunk's features, and its loss is 0.
//
// The metric knn: the share of the evaluated samples whose class is that of their nearest
// neighbours (train/metrics/knn.h) among the features of the training samples.
class SelfSupervision final : public Task {
 public:
  // Makes the training samples as evaluations see them, with their classes.
  using MakeSamples = std::function<std::unique_ptr<data::BatchSource>()>;
  // spec: of images, whose target is views. Without `samples` there is no metric.
  SelfSupervision(BatchSpec spec, KnnOptions knn, MakeSamples samples)
      : Task(std::move(spec)), knn_(knn), samples_(std::move(samples)) {}

  Batch place(Batch batch, const Module& model) const override;
  // Errors: another network; in training a batch without a second view.
  ForwardPass loss(Module& model, Batch& batch, Context& context,
                   const LossOptions& options) const override;
  Counts count(const ForwardPass& pass) const override;
  bool has_loss_of_at_least_0(Module& model) const override;  // simsiam has minus a cosine
  void after_update(Module& model, double progress) const override;
  Batch shape(int64_t samples, Device device) const override;
  std::unique_ptr<Metric> metric() const override;

 private:
  KnnOptions knn_;
  MakeSamples samples_;
};

}  // namespace frugal::train

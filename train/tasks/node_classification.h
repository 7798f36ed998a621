// NodeClassification: classes of the nodes of a graph, of one or of several labels.
#pragma once
#include <memory>

#include "train/tasks/supervised.h"

namespace frugal::train {

// The batch is a graph; nodes are its rows. The loss is that of another task over the nodes whose
// targets count; nothing is saved for the others where they are most. With an extra `node_weight`
// [V] f32 of a sampled graph it is the weighted sum, which estimates the loss of the whole graph.
class NodeClassification final : public SupervisedTask {
 public:
  // `nodes`: Classification or SeveralLabels.
  NodeClassification(BatchSpec spec, std::shared_ptr<const SupervisedTask> nodes)
      : SupervisedTask(std::move(spec)), nodes_(std::move(nodes)) {}

  Batch place(Batch batch, const Module& model) const override;
  // The features of a graph are constant, whether a source holds them or not: saved tensors then
  // have the same numbers as in the planner's steps, whose graph is whole.
  Variable run(Module& model, Batch& batch, Context& context) const override;
  // Graphs with weights estimate the loss of the whole graph each; they weigh the same.
  double weight(const Batch& batch) const override;
  bool is_divisible(const Batch&) const override { return false; }

  void judge(const Judged& judged, ForwardPass& pass) const override {
    nodes_->judge(judged, pass);
  }
  Variable loss_of(Judged judged, const LossOptions& options) const override {
    return nodes_->loss_of(std::move(judged), options);
  }
  int64_t counted(const Tensor& target, FloatTargets floats) const override {
    return nodes_->counted(target, floats);
  }
  Counts count(const ForwardPass& pass) const override { return nodes_->count(pass); }
  std::unique_ptr<Metric> metric() const override { return nodes_->metric(); }
  Tensor predict(const Tensor& output) const override { return nodes_->predict(output); }

 private:
  std::shared_ptr<const SupervisedTask> nodes_;
};

}  // namespace frugal::train

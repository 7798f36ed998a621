// Tasks for tests of single batches.
#pragma once
#include "train/tasks/make_task.h"

namespace frugal::train {

// The task of one class for each sample.
inline const Task& classification() {
  static const TaskPtr task = make_task({});
  return *task;
}

// The task that a batch's own tensors show.
inline const Task& task_of(const Batch& batch) {
  using Kind = BatchSpec::Kind;
  using Target = BatchSpec::Target;
  static const auto made = [](Kind kind, Target target) {
    BatchSpec spec;
    spec.kind = kind;
    spec.target = target;
    return make_task(spec);
  };
  static const TaskPtr nodes = made(Kind::graph, Target::class_of_sample),
                       labels_of_nodes = made(Kind::graph, Target::labels),
                       labels = made(Kind::rows, Target::labels),
                       values = made(Kind::rows, Target::values),
                       words = made(Kind::sequences, Target::class_of_token);
  const bool graph = find_tensor(batch.extras, "edge_index").defined();
  if (is_floating(batch.target.dtype()) && batch.floats != FloatTargets::shares)
    return graph ? *labels_of_nodes : batch.floats == FloatTargets::values ? *values : *labels;
  if (graph) return *nodes;
  return batch.target.dim() == 2 && batch.target.shape() == batch.input.shape() ? *words
                                                                                : classification();
}

}  // namespace frugal::train

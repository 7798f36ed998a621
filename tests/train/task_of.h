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
  static const auto made = [](BatchSpec::Kind kind, const char* metric, bool tokens) {
    BatchSpec spec;
    spec.kind = kind;
    spec.metric = metric;
    spec.target_of_each_token = tokens;
    return make_task(spec);
  };
  using Kind = BatchSpec::Kind;
  static const TaskPtr nodes = made(Kind::graph, "", false),
                       labels_of_nodes = made(Kind::graph, "micro_f1", false),
                       labels = made(Kind::rows, "micro_f1", false),
                       values = made(Kind::rows, "r2", false),
                       words = made(Kind::sequences, "", true);
  const bool graph = find_tensor(batch.extras, "edge_index").defined();
  if (is_floating(batch.target.dtype()) && batch.floats != FloatTargets::shares)
    return graph ? *labels_of_nodes : batch.floats == FloatTargets::values ? *values : *labels;
  if (graph) return *nodes;
  return batch.target.dim() == 2 && batch.target.shape() == batch.input.shape() ? *words
                                                                                : classification();
}

}  // namespace frugal::train

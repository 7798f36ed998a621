#include "train/tasks/node_classification.h"

#include "train/tasks/counted_rows.h"

namespace frugal::train {

Batch NodeClassification::place(Batch batch, const Module& model) const {
  add_counted_rows(batch, model.device());
  return SupervisedTask::place(std::move(batch), model);
}

Variable NodeClassification::run(Module& model, Batch& batch, Context& context) const {
  const bool held = std::exchange(batch.held, true);
  Variable output = SupervisedTask::run(model, batch, context);
  batch.held = held;
  return output;
}

double NodeClassification::weight(const Batch& batch) const {
  return find_tensor(batch.extras, "node_weight").defined() ? 1 : nodes_->weight(batch);
}

}  // namespace frugal::train

#include "train/tasks/supervised.h"

#include "autograd/record.h"
#include "train/tasks/counted_rows.h"

namespace frugal::train {

ForwardPass SupervisedTask::loss(Module& model, Batch& batch, Context& context,
                                 const LossOptions& options) const {
  const CountedRows counted = take_counted_rows(batch);
  const Tensor weights = find_tensor(batch.extras, "node_weight");
  const bool trains = context.training;
  Variable output = run(model, batch, context);
  if (!counted.rows.defined())
    return pass_of({std::move(output), batch.target, batch.floats, weights, trains}, options);
  const Variable whole = std::move(output);
  // The host groups the rows before the backward pass, which would wait for it on CUDA.
  const bool ahead = batch.held && grad_enabled() && model.device().type == DeviceType::cuda;
  const auto groups = ahead ? groups_of(counted.rows, whole.size(0)) : nullptr;
  ForwardPass pass = pass_of(
      {rows_of(whole, counted.rows, groups), counted.target, batch.floats, counted.weights, trains},
      options);
  pass.kept = groups;
  if (options.keep_output) pass.output = whole;
  return pass;
}

ForwardPass SupervisedTask::pass_of(Judged judged, const LossOptions& options) const {
  ForwardPass pass;
  pass.floats = judged.floats;
  if (options.keep_output) pass.output = judged.output;
  if (judged.output.device().type != DeviceType::meta) judge(judged, pass);
  pass.loss = loss_of(std::move(judged), options);
  return pass;
}

double SupervisedTask::weight(const Batch& batch) const {
  return static_cast<double>(counted(batch.target, batch.floats));
}

}  // namespace frugal::train

#include "train/evaluate.h"

#include <cmath>

#include "autograd/record.h"

namespace frugal::train {

std::optional<Evaluation> evaluate(const Task& task, Module& model, data::BatchSource& batches,
                                   const std::function<bool()>& stop) {
  NoGrad no_grad;
  Context context;
  context.training = false;
  Totals totals;
  const std::unique_ptr<Metric> metric = task.metric();
  const bool keep_output = metric != nullptr && metric->reads_outputs();
  if (metric != nullptr) metric->begin(model, stop);
  batches.seek({0, 0});
  while (std::optional<Batch> batch = batches.next()) {
    if (stop && stop()) return std::nullopt;
    Batch judged;
    if (keep_output) judged = {{}, batch->target, batch->extras, batch->held, batch->floats};
    const Outcome outcome = run_forward(task, model, *batch, context, {.keep_output = keep_output});
    // JSON has no such number, so neither the metrics nor a checkpoint could hold the loss.
    FRUGAL_CHECK(
        std::isfinite(outcome.result.loss),
        "[evaluate] expected a finite loss, got {} behind {} samples: are the weights those "
        "of a run that diverged, or the data broken?",
        outcome.result.loss, totals.samples);
    totals.add(outcome.result);
    if (keep_output) metric->add(outcome.output.value(), judged);
  }
  Evaluation result{totals.mean_loss(), totals.accuracy(), totals.samples};
  if (metric != nullptr) {
    result.metric = metric->value(result.loss);
    result.details = metric->details();
  }
  return result;
}

double score_of(const EpochResult& result, const BatchSpec& spec) {
  const Evaluation& judged = result.validation ? *result.validation : result.test;
  return judged.metric && spec.metric != "perplexity" ? *judged.metric : judged.accuracy;
}

}  // namespace frugal::train

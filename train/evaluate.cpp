#include "train/evaluate.h"

#include <algorithm>
#include <cmath>

#include "autograd/record.h"
#include "train/metrics.h"

namespace frugal::train {

std::optional<Evaluation> evaluate(Module& model, data::BatchSource& batches, const BatchSpec& spec,
                                   const std::function<bool()>& stop) {
  NoGrad no_grad;
  Context context;
  context.training = false;
  Totals totals;
  const bool counts = spec.metric == "f1" || spec.metric == "matthews" || spec.metric == "miou";
  // The table has classes * classes numbers, so it is made only if the metric needs it. A
  // vocabulary would be too large.
  Confusion confusion(counts ? std::max<int64_t>(spec.classes, 1) : 1);
  MultiLabelCounts answers;
  FitOfValues fit;
  const bool keep_output = needs_output(spec);
  batches.seek({0, 0});
  while (std::optional<Batch> batch = batches.next()) {
    if (stop && stop()) return std::nullopt;
    const Outcome outcome = run_forward(model, *batch, context, {}, keep_output);
    // JSON has no such number, so neither the metrics nor a checkpoint could hold the loss.
    FRUGAL_CHECK(
        std::isfinite(outcome.result.loss),
        "[evaluate] expected a finite loss, got {} behind {} samples: are the weights those "
        "of a run that diverged, or the data broken?",
        outcome.result.loss, totals.samples);
    totals.add(outcome.result);
    if (counts) confusion.add(outcome.output.value(), batch->target);
    if (spec.metric == "micro_f1") answers.add(outcome.output.value(), batch->target);
    if (spec.metric == "r2") fit.add(outcome.output.value(), batch->target);
  }
  Evaluation result{totals.mean_loss(), totals.accuracy(), totals.samples};
  if (spec.metric == "f1") result.metric = confusion.f1();
  if (spec.metric == "matthews") result.metric = confusion.matthews();
  if (spec.metric == "miou") result.metric = confusion.mean_iou();
  if (spec.metric == "micro_f1") result.metric = answers.micro_f1();
  if (spec.metric == "r2") result.metric = fit.r2();
  if (spec.metric == "perplexity") result.metric = std::exp(result.loss);
  return result;
}

bool needs_output(const BatchSpec& spec) {
  return !spec.metric.empty() && spec.metric != "perplexity";
}

double score_of(const EpochResult& result, const BatchSpec& spec) {
  const Evaluation& judged = result.validation ? *result.validation : result.test;
  return judged.metric && spec.metric != "perplexity" ? *judged.metric : judged.accuracy;
}

}  // namespace frugal::train

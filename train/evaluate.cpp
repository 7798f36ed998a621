#include "train/evaluate.h"

#include <cmath>

#include "autograd/record.h"

namespace frugal::train {
namespace {

constexpr const char* kOutput = "output";
constexpr const char* kTarget = "target";

// Outputs of all ranks for their shares of one batch, in the batch's order.
void add_of_all_ranks(Metric& metric, const Tensor& output, const Batch& judged,
                      const Ranks& ranks) {
  NamedTensors mine;
  if (output.defined()) {
    mine = judged.extras;
    mine.emplace_back(kOutput, output);
    mine.emplace_back(kTarget, judged.target);
  }
  for (const std::string& bytes :
       ranks.communicator().all_gather(bytes_of(mine), "outputs of an evaluation")) {
    if (bytes.empty()) continue;
    NamedTensors theirs = tensors_from(bytes);
    Batch batch;
    batch.target = theirs.back().second;
    batch.floats = judged.floats;
    theirs.pop_back();
    const Tensor found = theirs.back().second;
    theirs.pop_back();
    batch.extras = std::move(theirs);
    metric.add(found, batch);
  }
}

Totals sum(const Ranks& ranks, const Totals& mine) {
  if (ranks.alone()) return mine;
  Totals all;
  all.loss = ranks.sum(mine.loss, "the loss of an evaluation");
  all.weight = ranks.sum(mine.weight, "the weights of an evaluation");
  all.correct = static_cast<int64_t>(
      ranks.sum(static_cast<double>(mine.correct), "right targets of an evaluation"));
  all.samples = static_cast<int64_t>(
      ranks.sum(static_cast<double>(mine.samples), "targets of an evaluation"));
  return all;
}

}  // namespace

std::optional<Evaluation> evaluate(const Task& task, Module& model, data::BatchSource& batches,
                                   const std::function<bool()>& stop, const Ranks& ranks) {
  NoGrad no_grad;
  Context context;
  context.training = false;
  Totals totals;
  const std::unique_ptr<Metric> metric = task.metric();
  const bool keep_output = metric != nullptr && metric->reads_outputs();
  const bool sends_outputs = keep_output && !ranks.alone() && !metric->adds_up();
  if (metric != nullptr) metric->begin(model, stop);
  batches.seek({0, 0});
  bool stopped = false;
  while (std::optional<Batch> batch = batches.next()) {
    stopped = stopped || (stop && stop());
    if (stopped && !sends_outputs) break;
    Batch judged;
    judged.floats = batch->floats;  // also of an empty share, for what other ranks send
    Tensor output;
    // A share may be empty. After a stop a rank still answers those that send outputs.
    if (!stopped && batch->input.size(0) > 0) {
      if (keep_output) judged = {{}, batch->target, batch->extras, batch->held, batch->floats};
      const Outcome outcome =
          run_forward(task, model, *batch, context, {.keep_output = keep_output});
      // JSON has no such number, so neither the metrics nor a checkpoint could hold the loss.
      FRUGAL_CHECK(
          std::isfinite(outcome.result.loss),
          "[evaluate] expected a finite loss, got {} behind {} samples: are the weights those "
          "of a run that diverged, or the data broken?",
          outcome.result.loss, totals.samples);
      totals.add(outcome.result);
      if (keep_output) output = outcome.output.value();
    }
    if (sends_outputs)
      add_of_all_ranks(*metric, output, judged, ranks);
    else if (output.defined())
      metric->add(output, judged);
  }
  if (ranks.any(stopped, "the end of an evaluation")) return std::nullopt;
  totals = sum(ranks, totals);
  if (metric != nullptr && !ranks.alone() && metric->adds_up())
    metric->add_ranks(ranks.communicator());
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

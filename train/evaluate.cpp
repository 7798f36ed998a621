#include "train/evaluate.h"

#include <algorithm>
#include <cmath>

#include "autograd/record.h"
#include "core/integers.h"
#include "train/early_stop.h"
#include "train/loss_watch.h"

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

// Pixels and tokens are parts of a sample, and so are several answers or values of one.
int64_t counted_samples(const BatchSpec& spec, const BatchResult& result) {
  if (result.counted == 0) return 0;
  if (spec.target_of_each_pixel() || spec.target_of_each_token()) return result.samples;
  const bool several = spec.has_several_labels() || spec.has_values();
  const int64_t each = several ? std::max<int64_t>(spec.classes, 1) : 1;
  return std::min(result.samples, ceil_div(result.counted, each));
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
  int64_t samples = 0, read = 0;  // that count, and all
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
      if (keep_output)
        judged = {{}, batch->target, batch->extras, batch->held, batch->floats, batch->samples};
      const Outcome outcome =
          run_forward(task, model, *batch, context, {.keep_output = keep_output});
      // JSON has no such number, so neither the metrics nor a checkpoint could hold the loss.
      if (!std::isfinite(outcome.result.loss))
        throw NotFinite(fmt::format(
            "[evaluate] expected a finite loss, got {} behind {} samples: are the weights those "
            "of a run that diverged, or the data broken? {}",
            outcome.result.loss, totals.samples, advice_against_divergence(0)));
      totals.add(outcome.result);
      samples += counted_samples(task.spec(), outcome.result);
      read += outcome.result.samples;
      if (keep_output) output = outcome.output.value();
    }
    if (sends_outputs)
      add_of_all_ranks(*metric, output, judged, ranks);
    else if (output.defined())
      metric->add(output, judged);
  }
  if (ranks.any(stopped, "the end of an evaluation")) return std::nullopt;
  totals = sum(ranks, totals);
  if (!ranks.alone()) {
    samples = static_cast<int64_t>(
        ranks.sum(static_cast<double>(samples), "the samples of an evaluation"));
    read =
        static_cast<int64_t>(ranks.sum(static_cast<double>(read), "all samples of an evaluation"));
  }
  FRUGAL_CHECK(totals.samples > 0,
               "[evaluate] expected targets that count, got none in {} samples: are the values of "
               "the labels those of the training data?",
               read);
  if (metric != nullptr && !ranks.alone() && metric->adds_up())
    metric->add_ranks(ranks.communicator());
  Evaluation result{totals.mean_loss(), totals.accuracy(), samples};
  if (metric != nullptr) {
    result.metric = metric->value(result.loss);
    result.details = metric->details();
  }
  return result;
}

double score_of(const EpochResult& result, const Task& task) {
  return measure_of(result, "metric", task);
}

}  // namespace frugal::train

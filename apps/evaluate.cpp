#include "apps/evaluate.h"

#include "autograd/functions.h"
#include "autograd/record.h"
#include "ops/cross_entropy.h"

namespace frugal::apps {

std::optional<Evaluation> evaluate(Module& model, data::Loader& loader,
                                   const std::function<bool()>& stop) {
  NoGrad no_grad;
  Context context;
  context.training = false;
  Totals totals;
  loader.seek({0, 0});
  while (std::optional<Batch> batch = loader.next()) {
    if (stop && stop()) return std::nullopt;
    const Variable output = model.forward(Variable(std::move(batch->input)), context);
    BatchResult result;
    result.loss = cross_entropy(output, batch->target).value().item();
    result.correct = ops::count_correct(output.value(), batch->target);
    result.samples = batch->target.size(0);
    totals.add(result);
  }
  return Evaluation{totals.mean_loss(), totals.accuracy(), totals.samples};
}

Json to_json(const Evaluation& evaluation) {
  return {{"loss", evaluation.loss},
          {"accuracy", evaluation.accuracy},
          {"samples", evaluation.samples}};
}

}  // namespace frugal::apps

#include "apps/evaluate.h"

#include "autograd/record.h"

namespace frugal::apps {

std::optional<Evaluation> evaluate(Module& model, data::BatchSource& batches,
                                   const std::function<bool()>& stop) {
  NoGrad no_grad;
  Context context;
  context.training = false;
  Totals totals;
  batches.seek({0, 0});
  while (std::optional<Batch> batch = batches.next()) {
    if (stop && stop()) return std::nullopt;
    totals.add(run_forward(model, *batch, context).result);
  }
  return Evaluation{totals.mean_loss(), totals.accuracy(), totals.samples};
}

}  // namespace frugal::apps

// LanguageModel: a word for each token.
#pragma once
#include "train/tasks/classification.h"

namespace frugal::train {

// Targets [N, T] i64: the next word of each position, or the word behind a mask and kIgnored
// elsewhere. The logits of a HeadedModule are made in parts where they are large, unless they are
// kept. Metric: perplexity.
class LanguageModel : public Classification {
 public:
  using Classification::Classification;
  ForwardPass loss(Module& model, Batch& batch, Context& context,
                   const LossOptions& options) const override;
  std::unique_ptr<Metric> metric() const override;
};

}  // namespace frugal::train

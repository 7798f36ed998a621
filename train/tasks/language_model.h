// LanguageModel: a word for each token.
#pragma once
#include "train/tasks/classification.h"
#include "train/tasks/make_task.h"

namespace frugal::train {

// Targets [N, T] i64: the next word of each position, or the word behind a mask and kIgnored
// elsewhere. The logits of a HeadedModule are made in parts where they take more than kLogitBytes,
// in training those of a whole batch (BatchSpec::whole_batch), unless they are kept. Metrics:
// perplexity and, where there are few words, f1, macro_f1 and matthews, which count each pair.
class LanguageModel : public Classification {
 public:
  // part_bytes: the most bytes of logits that exist at a time. The size of parts decides the order
  // in which gradients are added.
  explicit LanguageModel(BatchSpec spec, int64_t part_bytes = kLogitBytes)
      : Classification(std::move(spec)), part_bytes_(part_bytes) {}
  ForwardPass loss(Module& model, Batch& batch, Context& context,
                   const LossOptions& options) const override;

 private:
  int64_t part_bytes_;
};

// What the logits of a placed batch are made of. Moves input and extras out of the batch.
HeadedModule::Head head_of(HeadedModule& model, Batch& batch, Context& context);
// How many rows of logits are made at a time, so that they take about `bytes`; not below 512, since
// each part reads the whole weight.
int64_t rows_in(int64_t bytes, const HeadedModule::Head& head);

// The part_bytes for a GPU whose tensors may take `memory` bytes. A GPU needs large products to be
// busy, so it gets parts of a 128th of the memory, rounded down to a power of 2, from 64 MiB to
// 512 MiB.
int64_t part_bytes_on_gpu(int64_t memory);

}  // namespace frugal::train

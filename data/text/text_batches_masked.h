// MaskedBatches: any batches of token ids, made into a task of guessing hidden ones.
// Ref: Devlin et al. 2018, 3.1 (masked LM).
#pragma once
#include <memory>

#include "data/batch_source.h"
#include "data/text/tokenizer.h"

namespace frugal::data {

struct MaskOptions {
  int64_t mask = 0;        // the id of [MASK]
  int64_t vocabulary = 0;  // ids to replace tokens with are in [0, vocabulary)
  TokenIds special = {};   // never hidden, such as [CLS], [SEP] and [PAD]
  double share = 0.15;     // of the other tokens
  uint64_t seed = 0;
};

// Each token is a target with probability `share`; of the targets, 80 % become [MASK], 10 % any
// token, 10 % stay. What attention_mask hides is never one. Every batch that can has a target.
// Batches: input [N, T] i64, target [N, T] i64, kIgnored but for the targets; extras as before.
// Thread safety: one consumer.
class MaskedBatches : public BatchSource {
 public:
  // Errors: no source; a share outside (0, 1]; [MASK] outside the vocabulary; while batches come:
  // an input that is not [N, T] i64.
  MaskedBatches(std::unique_ptr<BatchSource> source, const MaskOptions& options);

  std::optional<Batch> next() override;
  int64_t batches() const override { return source_->batches(); }
  int64_t samples() const override { return source_->samples(); }
  LoaderState state() const override { return source_->state(); }
  void seek(const LoaderState& state) override { source_->seek(state); }

 private:
  std::unique_ptr<BatchSource> source_;
  MaskOptions options_;
};

}  // namespace frugal::data

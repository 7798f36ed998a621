// MaskedBatches: hides some tokens of another source's batches, so that a model learns to guess
// them. Ref: Devlin et al. 2018, 3.1 (masked LM).
#pragma once
#include <memory>

#include "data/batch_source.h"
#include "data/text/tokenizer.h"

namespace frugal::data {

struct MaskOptions {
  int64_t mask = 0;        // the id of [MASK]
  int64_t vocabulary = 0;  // ids to replace tokens with are in [0, vocabulary)
  TokenIds special = {};   // never hidden, such as [CLS], [SEP] and [PAD]
  double share = 0.15;     // share of the other tokens that become targets
  uint64_t seed = 0;
};

// Each token is a target with probability `share`. 80 % of the targets become [MASK], 10 % become a
// random token and 10 % stay. Tokens that attention_mask hides are no targets. If chance chooses
// none in a batch, the token with the lowest draw becomes one.
// Batches: input [N, T] i64; target [N, T] i64, kIgnored except at the targets; extras of the
// source. A share (set_share) is the rows that one process has: the source gives whole batches, a
// token's draw comes from its place in the whole batch, and the lowest draw is that of the whole
// batch. Only the share's rows are kept. Thread safety: one consumer.
class MaskedBatches : public BatchSource {
 public:
  // Errors: no source; a share outside (0, 1]; [MASK] outside the vocabulary. Errors of next(): an
  // input that is not [N, T] i64; with a share of several, an extra that has not N rows.
  MaskedBatches(std::unique_ptr<BatchSource> source, const MaskOptions& options);

  std::optional<Batch> next() override;
  int64_t batches() const override { return source_->batches(); }
  int64_t samples() const override { return source_->samples(); }
  LoaderState state() const override { return source_->state(); }
  void seek(const LoaderState& state) override { source_->seek(state); }
  void set_share(const Share& share) override;
  int64_t smallest_batch() const override { return source_->smallest_batch(); }

 private:
  std::unique_ptr<BatchSource> source_;
  MaskOptions options_;
  Share share_;
};

}  // namespace frugal::data

// TextBatches: windows of a stream of tokens for language models.
#pragma once
#include <memory>
#include <utility>

#include "data/batch_source.h"
#include "data/text/tokenizer.h"

namespace frugal::data {

struct TextRange {
  int64_t begin = 0, end = 0;  // places of tokens
};

// The tokens to train on and those to validate on: the share `validation` at the end, rounded up.
// Errors: a share outside [0, 1).
std::pair<TextRange, TextRange> split_text(int64_t tokens, double validation);

struct TextBatchOptions {
  int64_t batch_size = 32;
  int64_t length = 128;  // T
  bool random = true;    // windows begin anywhere; false: one window follows the other
  // Not random: tokens behind the last whole window are a shorter one; false: they are left out.
  bool rest = false;
  int64_t batches = 0;  // per epoch, if random; 0: as many as hold as many tokens as the range
  uint64_t seed = 0;
};

// Batches: input [N, T] i64; target [N, T] i64, the token that follows each token of the input. If
// windows are not random, the last batch may have fewer. A shorter window has the ids 0 behind its
// end, with targets that do not count. Thread safety: one consumer.
class TextBatches : public BatchSource {
 public:
  using Tokens = std::shared_ptr<const TokenIds>;

  // Errors: batch_size or length < 1; batches < 0; a range outside the tokens or of fewer than
  // length + 1 tokens.
  TextBatches(Tokens tokens, const TextRange& range, const TextBatchOptions& options = {});

  std::optional<Batch> next() override;
  int64_t batches() const override { return batches_; }
  int64_t samples() const override { return samples_; }  // windows
  LoaderState state() const override { return state_; }
  void seek(const LoaderState& state) override;
  void set_share(const Share& share) override;
  int64_t smallest_batch() const override { return smallest_of(samples_, options_.batch_size); }

 private:
  Tokens tokens_;
  TextRange range_;
  TextBatchOptions options_;
  int64_t batches_ = 0, samples_ = 0;
  LoaderState state_;
  Share share_;
};

}  // namespace frugal::data

// SequenceBatches: token sequences of different lengths, padded in groups of like length.
#pragma once
#include <vector>

#include "core/random_streams.h"
#include "data/batch_source.h"
#include "data/text/tokenizer.h"

namespace frugal::data {

// One sample: its tokens, where its second segment begins (ids.size(): there is none), its label.
struct Sequence {
  TokenIds ids;
  int32_t second = 0;
  int64_t label = 0;
};

struct SequenceBatchOptions {
  int64_t batch_size = 32;
  bool shuffle = true;
  bool group_by_length = true;  // batches of like length; otherwise as they come
  bool drop_last = false;       // leaves out samples that do not fill a batch
  uint64_t seed = 0;
  int64_t padding = 0;  // token id
  int64_t pad_to = 0;   // T of every batch; 0: the longest of the batch
};

// Batches: input [N, T] i64, target [N] i64 (labels), extras attention_mask [N, T] i64 (1 on
// tokens) and token_type_ids [N, T] i64 (1 from the second segment on); all host tensors.
// Shuffled, an epoch's samples fall into pools of 64 batches, which are sorted by length and cut;
// the batches then come in random order. So padding is small and neighbours still vary.
// Thread safety: one consumer.
class SequenceBatches : public BatchSource {
 public:
  // Errors: no samples, an empty one, a negative token, `second` outside [0, length], a batch_size
  // < 1, a negative padding, pad_to below a length, drop_last leaving nothing.
  SequenceBatches(std::vector<Sequence> sequences, const SequenceBatchOptions& options = {});

  std::optional<Batch> next() override;
  int64_t batches() const override { return batches_; }
  int64_t samples() const override { return samples_; }
  LoaderState state() const override { return state_; }
  void seek(const LoaderState& state) override;

  // Indices of the next batch's samples, in its order; empty at the end of an epoch.
  std::vector<int64_t> next_indices();
  // Padded positions over all, in the epoch that state() is in.
  double padding_share();

 private:
  struct Span {
    int64_t begin, end;  // in order_
  };
  void begin_epoch();
  int64_t length(int64_t index) const;
  int64_t padded_length(const Span& span) const;

  std::vector<Sequence> sequences_;
  SequenceBatchOptions options_;
  int64_t batches_ = 0, samples_ = 0;
  LoaderState state_;
  bool epoch_ready_ = false;  // of state_.epoch: order_ and spans_
  std::vector<int64_t> order_;
  std::vector<Span> spans_;
};

// The key of an epoch of `stream`.
RngKey epoch_key(uint64_t seed, const RandomStream& stream, int64_t epoch);

}  // namespace frugal::data

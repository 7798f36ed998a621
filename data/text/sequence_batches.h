// SequenceBatches: batches of token sequences of similar length, padded to one length.
#pragma once
#include <vector>

#include "core/random/random_streams.h"
#include "data/batch_source.h"
#include "data/text/tokenizer.h"

namespace frugal::data {

// One sample.
struct Sequence {
  TokenIds ids;
  int32_t second = 0;  // where the second segment begins; ids.size() if there is none
  int64_t label = 0;
  // With next_tokens: the places of the ids that count as targets; empty: all do. The first id is
  // never a target.
  struct Range {
    int32_t begin, end;
  };
  std::vector<Range> counted = {};
};

struct SequenceBatchOptions {
  int64_t batch_size = 32;
  bool shuffle = true;
  bool group_by_length = true;  // puts samples of similar length into one batch
  bool drop_last = false;       // leaves out the samples that do not fill a batch
  uint64_t seed = 0;
  int64_t padding = 0;  // token id
  int64_t pad_to = 0;   // T of every batch; 0: the longest of the batch
  // Each id is predicted from those before it, as causal networks do: inputs are all ids but the
  // last, and targets [N, T] all but the first.
  bool next_tokens = false;
  // With next_tokens: samples are joined to rows of at most so many inputs, so that little padding
  // is left. 0: a row holds one sample. The samples of a row count as one in batch_size, drop_last,
  // shares and samples().
  int64_t join_to = 0;
  // With shuffle and group_by_length: so many of the largest batches of the first epoch come first,
  // the largest of them last. So it is in the second step, which has the state that the optimizer
  // made in the first one, and which shows the most that a step takes.
  int64_t largest_first = 2;
};

// `lengths` has the columns of each row, ascending. SequenceBatches groups rows by length. This is
// the number of columns of the batch with the most elements that it makes in any epoch.
// REQUIRES: lengths is not empty and ascends; batch_size is at least 1.
int64_t columns_of_largest(const std::vector<int64_t>& lengths, int64_t batch_size);

// Batches: input [N, T] i64, target [N] i64 (labels), extras attention_mask [N, T] i64 (1 for
// tokens, 0 for padding) and token_type_ids [N, T] i64 (1 from the second segment on), and samples.
// All are host tensors. With next_tokens there are input, target [N, T] i64 (kIgnored where the
// target does not count, as padding) and samples. Padding is behind the ids, where no causal
// network looks. With join_to there are input, target and the extra position_ids [N, T] i64, which
// counts from 0 in each sample of a row, so that a network keeps them apart; padding counts from 0,
// too. Longest samples come first, and each goes where it leaves the least room, so the lengths
// that share a row are those of every epoch; with shuffle, samples of one length change places.
// With shuffle and group_by_length, random pools of 64 batches are sorted by length and cut into
// batches, which come in random order. So there is little padding, and each epoch has other
// batches. The largest batches of the first epoch come first. What does not fit into memory then
// fails at once, and later steps take no more.
// A share (set_share) is padded to T of the whole batch. So its tensors are rows of those that one
// process has, and sums over T add in the same order. No process has longer sequences than the
// others, so none waits. Batches of similar lengths have little padding anyway.
// Thread safety: one consumer.
class SequenceBatches : public BatchSource {
 public:
  // Errors: no samples; an empty sample (with next_tokens: fewer than two ids); a negative token;
  // `second` outside [0, length]; batch_size < 1; a negative padding; pad_to or join_to below a
  // sample's length; join_to without next_tokens; drop_last that leaves no batch.
  SequenceBatches(std::vector<Sequence> sequences, const SequenceBatchOptions& options = {});

  std::optional<Batch> next() override;
  int64_t batches() const override { return batches_; }
  int64_t samples() const override { return samples_; }
  LoaderState state() const override { return state_; }
  void seek(const LoaderState& state) override;
  void set_share(const Share& share) override;
  int64_t smallest_batch() const override { return smallest_of(samples_, options_.batch_size); }
  std::vector<int64_t> row_lengths() const override;

 private:
  struct Span {
    int64_t begin, end;  // places in order_
  };
  void make_rows();
  std::vector<int64_t> in_order(size_t size, const RandomStream& stream) const;
  void begin_epoch();
  Span share_of(const Span& whole) const;
  int64_t length(int64_t index) const;
  int64_t row_length(int64_t row) const;
  int64_t padded_length(const Span& span) const;
  Batch next_tokens(const Span& span, int64_t columns);

  std::vector<Sequence> sequences_;
  SequenceBatchOptions options_;
  int64_t batches_ = 0, samples_ = 0;
  LoaderState state_;
  Share share_;
  // With join_to. Place i belongs to the sample that is the i-th of all in the order of their
  // lengths, longest first.
  struct Row {
    std::vector<int64_t> places;
    int64_t length = 0;
  };
  std::vector<Row> rows_;
  bool epoch_ready_ = false;        // order_, spans_ and by_length_ are those of state_.epoch
  std::vector<int64_t> by_length_;  // with join_to: the sample at each place
  std::vector<int64_t> order_;      // samples, or rows
  std::vector<Span> spans_;
};

// The key of `stream` for one epoch.
RngKey epoch_key(uint64_t seed, const RandomStream& stream, int64_t epoch);

}  // namespace frugal::data

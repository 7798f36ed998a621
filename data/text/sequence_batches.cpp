#include "data/text/sequence_batches.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/random_streams.h"
#include "data/loader.h"

namespace frugal::data {
namespace {

constexpr int64_t kPoolBatches = 64;

}  // namespace

RngKey epoch_key(uint64_t seed, const RandomStream& stream, int64_t epoch) {
  const auto words = philox(stream.key(seed), 0);
  return {words[0] | static_cast<uint64_t>(words[1]) << 32, static_cast<uint64_t>(epoch)};
}

SequenceBatches::SequenceBatches(std::vector<Sequence> sequences,
                                 const SequenceBatchOptions& options)
    : sequences_(std::move(sequences)), options_(options) {
  FRUGAL_CHECK(!sequences_.empty(), "[sequence_batches] expected samples, got none");
  FRUGAL_CHECK(options.batch_size >= 1,
               "[sequence_batches] expected a batch_size of at least 1, got {}",
               options.batch_size);
  FRUGAL_CHECK(options.padding >= 0, "[sequence_batches] expected a token id as padding, got {}",
               options.padding);
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& sequence = sequences_[i];
    const auto tokens = static_cast<int64_t>(sequence.ids.size());
    FRUGAL_CHECK(tokens > 0, "[sequence_batches] expected tokens in sample {}, got none", i);
    FRUGAL_CHECK(!options.next_tokens || tokens > 1,
                 "[sequence_batches] expected at least two tokens in sample {}, got one", i);
    const int32_t least = *std::min_element(sequence.ids.begin(), sequence.ids.end());
    FRUGAL_CHECK(least >= 0, "[sequence_batches] expected token ids in sample {}, got {}", i,
                 least);
    FRUGAL_CHECK(sequence.second >= 0 && sequence.second <= tokens,
                 "[sequence_batches] expected the second segment of sample {} in [0, {}], got {}",
                 i, tokens, sequence.second);
    for (const Sequence::Range& range : sequence.counted)
      FRUGAL_CHECK(range.begin >= 0 && range.begin <= range.end && range.end <= tokens,
                   "[sequence_batches] expected targets of sample {} in [0, {}], got {} to {}", i,
                   tokens, range.begin, range.end);
    FRUGAL_CHECK(options.pad_to == 0 || length(static_cast<int64_t>(i)) <= options.pad_to,
                 "[sequence_batches] expected at most pad_to = {} tokens in sample {}, got {}",
                 options.pad_to, i, length(static_cast<int64_t>(i)));
  }
  const auto size = static_cast<int64_t>(sequences_.size());
  const int64_t full = size / options.batch_size;
  batches_ = options.drop_last || size % options.batch_size == 0 ? full : full + 1;
  FRUGAL_CHECK(batches_ > 0,
               "[sequence_batches] expected a batch_size of at most {} samples with drop_last, "
               "got {}",
               size, options.batch_size);
  samples_ = std::min(size, batches_ * options.batch_size);
}

int64_t SequenceBatches::length(int64_t index) const {
  const auto ids = static_cast<int64_t>(sequences_[static_cast<size_t>(index)].ids.size());
  return options_.next_tokens ? ids - 1 : ids;
}

SequenceBatches::Span SequenceBatches::share_of(const Span& whole) const {
  const int64_t count = whole.end - whole.begin;
  return {whole.begin + share_.begin(count), whole.begin + share_.end(count)};
}

int64_t SequenceBatches::padded_length(const Span& span) const {
  if (options_.pad_to > 0) return options_.pad_to;
  int64_t longest = 0;
  for (int64_t i = span.begin; i < span.end; ++i)
    longest = std::max(longest, length(order_[static_cast<size_t>(i)]));
  return longest;
}

void SequenceBatches::begin_epoch() {
  const auto size = static_cast<int64_t>(sequences_.size());
  if (options_.shuffle) {
    order_ = shuffled(size, epoch_key(options_.seed, streams::kSequenceOrder, state_.epoch));
  } else {
    order_.resize(sequences_.size());
    std::iota(order_.begin(), order_.end(), int64_t{0});
  }
  order_.resize(static_cast<size_t>(samples_));
  if (options_.group_by_length) {
    const int64_t pool = options_.shuffle ? kPoolBatches * options_.batch_size : samples_;
    for (int64_t begin = 0; begin < samples_; begin += pool)
      std::stable_sort(order_.begin() + begin, order_.begin() + std::min(samples_, begin + pool),
                       [&](int64_t a, int64_t b) { return length(a) < length(b); });
  }
  spans_.clear();
  for (int64_t begin = 0; begin < samples_; begin += options_.batch_size)
    spans_.push_back({begin, std::min(samples_, begin + options_.batch_size)});
  if (options_.shuffle && options_.group_by_length) {
    const auto positions =
        shuffled(batches_, epoch_key(options_.seed, streams::kSequenceBatchOrder, state_.epoch));
    std::vector<Span> moved;
    for (int64_t position : positions) moved.push_back(spans_[static_cast<size_t>(position)]);
    spans_ = std::move(moved);
  }
  epoch_ready_ = true;
}

std::optional<Batch> SequenceBatches::next() {
  if (state_.next_batch == batches_) {
    state_ = {state_.epoch + 1, 0};
    epoch_ready_ = false;
    return std::nullopt;
  }
  if (!epoch_ready_) begin_epoch();
  const Span whole = spans_[static_cast<size_t>(state_.next_batch)], span = share_of(whole);
  const int64_t rows = span.end - span.begin, columns = padded_length(whole);
  if (options_.next_tokens) return next_tokens(span, columns);
  const CategoryScope category(Category::input);
  const Tensor input =
      Tensor::full({rows, columns}, static_cast<double>(options_.padding), DType::i64);
  const Tensor mask = Tensor::zeros({rows, columns}, DType::i64);
  const Tensor types = Tensor::zeros({rows, columns}, DType::i64);
  const Tensor target = Tensor::empty({rows}, DType::i64);
  const Tensor samples = Tensor::empty({rows}, DType::i64);
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t index = order_[static_cast<size_t>(span.begin + n)];
    const Sequence& sequence = sequences_[static_cast<size_t>(index)];
    const int64_t tokens = length(index), row = n * columns;
    std::copy(sequence.ids.begin(), sequence.ids.end(), input.mut<int64_t>() + row);
    std::fill_n(mask.mut<int64_t>() + row, tokens, 1);
    std::fill_n(types.mut<int64_t>() + row + sequence.second, tokens - sequence.second, 1);
    target.mut<int64_t>()[n] = sequence.label;
    samples.mut<int64_t>()[n] = index;
  }
  ++state_.next_batch;
  Batch batch;
  batch.input = input;
  batch.target = target;
  batch.samples = samples;
  batch.extras = {{"attention_mask", mask}, {"token_type_ids", types}};
  return batch;
}

Batch SequenceBatches::next_tokens(const Span& span, int64_t columns) {
  const int64_t rows = span.end - span.begin;
  const CategoryScope category(Category::input);
  Batch batch;
  batch.input = Tensor::full({rows, columns}, static_cast<double>(options_.padding), DType::i64);
  batch.target = Tensor::full({rows, columns}, static_cast<double>(kIgnored), DType::i64);
  batch.samples = Tensor::empty({rows}, DType::i64);
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t index = order_[static_cast<size_t>(span.begin + n)];
    const Sequence& sequence = sequences_[static_cast<size_t>(index)];
    std::copy(sequence.ids.begin(), sequence.ids.end() - 1,
              batch.input.mut<int64_t>() + n * columns);
    int64_t* const target = batch.target.mut<int64_t>() + n * columns;
    const auto all = static_cast<int32_t>(sequence.ids.size());
    const auto count = [&](const Sequence::Range& range) {
      for (int32_t at = std::max(range.begin, 1); at < range.end; ++at)
        target[at - 1] = sequence.ids[static_cast<size_t>(at)];
    };
    if (sequence.counted.empty()) count({0, all});
    for (const Sequence::Range& range : sequence.counted) count(range);
    batch.samples.mut<int64_t>()[n] = index;
  }
  ++state_.next_batch;
  return batch;
}

void SequenceBatches::seek(const LoaderState& state) {
  FRUGAL_CHECK(state.epoch >= 0 && state.next_batch >= 0 && state.next_batch <= batches_,
               "[sequence_batches] expected an epoch of at least 0 and a batch in [0, {}], got {} "
               "and {}",
               batches_, state.epoch, state.next_batch);
  if (state.epoch != state_.epoch) epoch_ready_ = false;
  state_ = state;
}

void SequenceBatches::set_share(const Share& share) {
  check_share(share);
  share_ = share;
}

}  // namespace frugal::data

#include "data/text/sequence_batches.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/random/random_streams.h"
#include "data/loader.h"

namespace frugal::data {
namespace {

constexpr int64_t kPoolBatches = 64;

}  // namespace

RngKey epoch_key(uint64_t seed, const RandomStream& stream, int64_t epoch) {
  const auto words = philox(stream.key(seed), 0);
  return {words[0] | static_cast<uint64_t>(words[1]) << 32, static_cast<uint64_t>(epoch)};
}

int64_t columns_of_largest(const std::vector<int64_t>& lengths, int64_t batch_size) {
  const auto rows = static_cast<int64_t>(lengths.size());
  // Any of several pools may have the longest row, and then it is in a full batch.
  if (rows > kPoolBatches * batch_size) return lengths.back();
  int64_t columns = 0, most = 0;
  for (int64_t begin = 0; begin < rows; begin += batch_size) {
    const int64_t end = std::min(rows, begin + batch_size),
                  longest = lengths[static_cast<size_t>(end - 1)];
    if ((end - begin) * longest < most) continue;
    most = (end - begin) * longest;
    columns = longest;
  }
  return columns;
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
  const int64_t join_to = options.join_to;
  FRUGAL_CHECK(join_to == 0 || (join_to > 0 && options.next_tokens),
               "[sequence_batches] expected join_to of 0, or above 0 with next_tokens, got {}",
               join_to);
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
    for (const auto& [name, most] : {std::pair{"pad_to", options.pad_to}, {"join_to", join_to}})
      FRUGAL_CHECK(most == 0 || length(static_cast<int64_t>(i)) <= most,
                   "[sequence_batches] expected at most {} = {} tokens in sample {}, got {}", name,
                   most, i, length(static_cast<int64_t>(i)));
  }
  if (join_to > 0) make_rows();
  const auto size = static_cast<int64_t>(join_to > 0 ? rows_.size() : sequences_.size());
  const int64_t full = size / options.batch_size;
  batches_ = options.drop_last || size % options.batch_size == 0 ? full : full + 1;
  if (batches_ == 0)
    throw OptionError("batch_size", fmt::format("expected at most {} samples with drop_last, "
                                                "got {}",
                                                size, options.batch_size));
  samples_ = std::min(size, batches_ * options.batch_size);
}

int64_t SequenceBatches::length(int64_t index) const {
  const auto ids = static_cast<int64_t>(sequences_[static_cast<size_t>(index)].ids.size());
  return options_.next_tokens ? ids - 1 : ids;
}

int64_t SequenceBatches::row_length(int64_t row) const {
  return options_.join_to > 0 ? rows_[static_cast<size_t>(row)].length : length(row);
}

std::vector<int64_t> SequenceBatches::row_lengths() const {
  if (options_.pad_to > 0) return {};
  std::vector<int64_t> lengths;
  const size_t rows = options_.join_to > 0 ? rows_.size() : sequences_.size();
  for (size_t row = 0; row < rows; ++row) lengths.push_back(row_length(static_cast<int64_t>(row)));
  return lengths;
}

// Fills rows_ by best fit, longest first.
void SequenceBatches::make_rows() {
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < sequences_.size(); ++i) lengths.push_back(length(static_cast<int64_t>(i)));
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  std::multimap<int64_t, size_t> rooms;  // the room that is left in rows
  for (size_t place = 0; place < lengths.size(); ++place) {
    auto found = rooms.lower_bound(lengths[place]);
    if (found == rooms.end()) {
      found = rooms.emplace(options_.join_to, rows_.size());
      rows_.emplace_back();
    }
    const auto [room, at] = *found;
    rooms.erase(found);
    rows_[at].places.push_back(static_cast<int64_t>(place));
    rows_[at].length += lengths[place];
    rooms.emplace(room - lengths[place], at);
  }
}

SequenceBatches::Span SequenceBatches::share_of(const Span& whole) const {
  const int64_t count = whole.end - whole.begin;
  return {whole.begin + share_.begin(count), whole.begin + share_.end(count)};
}

int64_t SequenceBatches::padded_length(const Span& span) const {
  if (options_.pad_to > 0) return options_.pad_to;
  int64_t longest = 0;
  for (int64_t i = span.begin; i < span.end; ++i)
    longest = std::max(longest, row_length(order_[static_cast<size_t>(i)]));
  return longest;
}

// 0 to size - 1, shuffled by `stream` if asked for.
std::vector<int64_t> SequenceBatches::in_order(size_t size, const RandomStream& stream) const {
  if (options_.shuffle)
    return shuffled(static_cast<int64_t>(size), epoch_key(options_.seed, stream, state_.epoch));
  std::vector<int64_t> all(size);
  std::iota(all.begin(), all.end(), int64_t{0});
  return all;
}

void SequenceBatches::begin_epoch() {
  const bool joins = options_.join_to > 0;
  order_ = in_order(joins ? rows_.size() : sequences_.size(), streams::kSequenceOrder);
  if (joins) {
    by_length_ = in_order(sequences_.size(), streams::kJoinedSequences);
    std::stable_sort(by_length_.begin(), by_length_.end(),
                     [&](int64_t a, int64_t b) { return length(a) > length(b); });
  }
  order_.resize(static_cast<size_t>(samples_));
  if (options_.group_by_length) {
    const int64_t pool = options_.shuffle ? kPoolBatches * options_.batch_size : samples_;
    for (int64_t begin = 0; begin < samples_; begin += pool)
      std::stable_sort(order_.begin() + begin, order_.begin() + std::min(samples_, begin + pool),
                       [&](int64_t a, int64_t b) { return row_length(a) < row_length(b); });
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
    const auto tokens = [&](const Span& span) {
      return (span.end - span.begin) * padded_length(span);
    };
    const auto first = spans_.begin() + std::min(options_.largest_first, batches_);
    if (state_.epoch == 0)
      for (auto at = spans_.begin(); at != first; ++at)
        std::iter_swap(at, std::max_element(at, spans_.end(), [&](const Span& a, const Span& b) {
                         return tokens(a) < tokens(b);
                       }));
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
  Tensor positions;
  if (options_.join_to > 0)
    positions = Tensor::empty({rows, columns}, DType::i64);
  else
    batch.samples = Tensor::empty({rows}, DType::i64);
  // Writes a sample from an element of the batch on.
  const auto write = [&](const Sequence& sequence, int64_t first) {
    std::copy(sequence.ids.begin(), sequence.ids.end() - 1, batch.input.mut<int64_t>() + first);
    int64_t* const target = batch.target.mut<int64_t>() + first;
    const auto all = static_cast<int32_t>(sequence.ids.size());
    const auto count = [&](const Sequence::Range& range) {
      for (int32_t at = std::max(range.begin, 1); at < range.end; ++at)
        target[at - 1] = sequence.ids[static_cast<size_t>(at)];
    };
    if (sequence.counted.empty()) count({0, all});
    for (const Sequence::Range& range : sequence.counted) count(range);
  };
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t row = order_[static_cast<size_t>(span.begin + n)];
    int64_t at = n * columns;
    if (!positions.defined()) {
      write(sequences_[static_cast<size_t>(row)], at);
      batch.samples.mut<int64_t>()[n] = row;
      continue;
    }
    const auto count_from_0 = [&](int64_t end) {
      std::iota(positions.mut<int64_t>() + at, positions.mut<int64_t>() + end, int64_t{0});
      at = end;
    };
    for (const int64_t place : rows_[static_cast<size_t>(row)].places) {
      const int64_t index = by_length_[static_cast<size_t>(place)];
      write(sequences_[static_cast<size_t>(index)], at);
      count_from_0(at + length(index));
    }
    count_from_0((n + 1) * columns);
  }
  if (positions.defined()) batch.extras = {{"position_ids", positions}};
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

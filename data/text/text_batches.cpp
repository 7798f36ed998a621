#include "data/text/text_batches.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random/random_streams.h"
#include "data/text/sequence_batches.h"

namespace frugal::data {

std::pair<TextRange, TextRange> split_text(int64_t tokens, double validation) {
  FRUGAL_CHECK(validation >= 0 && validation < 1,
               "[text_batches] expected a validation share in [0, 1), got {}", validation);
  const auto middle =
      static_cast<int64_t>(std::floor(static_cast<double>(tokens) * (1 - validation)));
  return {{0, middle}, {middle, tokens}};
}

TextBatches::TextBatches(Tokens tokens, const TextRange& range, const TextBatchOptions& options)
    : tokens_(std::move(tokens)), range_(range), options_(options) {
  const auto all = tokens_ == nullptr ? 0 : static_cast<int64_t>(tokens_->size());
  FRUGAL_CHECK(options.batch_size >= 1,
               "[text_batches] expected a batch_size of at least 1, got {}", options.batch_size);
  FRUGAL_CHECK(options.length >= 1, "[text_batches] expected a length of at least 1, got {}",
               options.length);
  FRUGAL_CHECK(options.batches >= 0, "[text_batches] expected batches of at least 0, got {}",
               options.batches);
  FRUGAL_CHECK(range.begin >= 0 && range.begin <= range.end && range.end <= all,
               "[text_batches] expected a range in [0, {}], got {} to {}", all, range.begin,
               range.end);
  FRUGAL_CHECK(range.end - range.begin > options.length,
               "[text_batches] expected at least {} tokens for windows of {}, got {}",
               options.length + 1, options.length, range.end - range.begin);
  const int64_t targets = range.end - range.begin - 1;
  int64_t windows = targets / options.length;
  if (options.random && options.batches > 0) {
    batches_ = options.batches;
    samples_ = batches_ * options.batch_size;
  } else {
    if (!options.random && options.rest && targets % options.length > 0) ++windows;
    batches_ = (windows + options.batch_size - 1) / options.batch_size;
    samples_ = options.random ? batches_ * options.batch_size : windows;
  }
}

std::optional<Batch> TextBatches::next() {
  if (state_.next_batch == batches_) {
    state_ = {state_.epoch + 1, 0};
    return std::nullopt;
  }
  const int64_t columns = options_.length, begin = state_.next_batch * options_.batch_size;
  const int64_t whole = std::min(options_.batch_size, samples_ - begin);
  const int64_t first = begin + share_.begin(whole), rows = begin + share_.end(whole) - first;
  const auto starts = static_cast<uint64_t>(range_.end - range_.begin - columns);
  const RngKey key = epoch_key(options_.seed, streams::kTextWindows, state_.epoch);
  const CategoryScope category(Category::input);
  Batch batch;
  batch.input = Tensor::empty({rows, columns}, DType::i64);
  batch.target = Tensor::empty({rows, columns}, DType::i64);
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t window =
        options_.random
            ? static_cast<int64_t>(uniform_int(key, static_cast<uint64_t>(first + n), starts))
            : (first + n) * columns;
    const int64_t length = std::min(columns, range_.end - range_.begin - 1 - window);
    const int32_t* from = tokens_->data() + range_.begin + window;
    int64_t* const input = batch.input.mut<int64_t>() + n * columns;
    int64_t* const target = batch.target.mut<int64_t>() + n * columns;
    std::fill_n(std::copy_n(from, length, input), columns - length, 0);
    std::fill_n(std::copy_n(from + 1, length, target), columns - length, kIgnored);
  }
  ++state_.next_batch;
  return batch;
}

void TextBatches::seek(const LoaderState& state) {
  FRUGAL_CHECK(state.epoch >= 0 && state.next_batch >= 0 && state.next_batch <= batches_,
               "[text_batches] expected an epoch of at least 0 and a batch in [0, {}], got {} and "
               "{}",
               batches_, state.epoch, state.next_batch);
  state_ = state;
}

void TextBatches::set_share(const Share& share) {
  check_share(share);
  share_ = share;
}

}  // namespace frugal::data

#include "data/text/masked_batches.h"

#include <algorithm>

#include "core/error.h"
#include "core/random/random_streams.h"
#include "data/text/sequence_batches.h"

namespace frugal::data {
namespace {

double unit(uint32_t word) { return static_cast<double>(word) / 4294967296.0; }

// A copy, so that the other rows are freed.
Tensor copy_of_rows(const Tensor& tensor, int64_t begin, int64_t end) {
  Shape shape = tensor.shape();
  shape[0] = end - begin;
  const Tensor rows = Tensor::empty(shape, tensor.dtype());
  const auto from = static_cast<const uint8_t*>(tensor.raw());
  const int64_t row = tensor.size(0) == 0 ? 0 : tensor.nbytes() / tensor.size(0);
  std::copy_n(from + begin * row, (end - begin) * row, static_cast<uint8_t*>(rows.raw()));
  return rows;
}

}  // namespace

MaskedBatches::MaskedBatches(std::unique_ptr<BatchSource> source, const MaskOptions& options)
    : source_(std::move(source)), options_(options) {
  FRUGAL_CHECK(source_ != nullptr, "[masked_batches] expected batches, got none");
  FRUGAL_CHECK(options.share > 0 && options.share <= 1,
               "[masked_batches] expected a share in (0, 1], got {}", options.share);
  FRUGAL_CHECK(options.mask >= 0 && options.mask < options.vocabulary,
               "[masked_batches] expected [MASK] in a vocabulary of {}, got {}", options.vocabulary,
               options.mask);
}

std::optional<Batch> MaskedBatches::next() {
  const LoaderState at = source_->state();
  std::optional<Batch> batch = source_->next();
  if (!batch) return batch;
  FRUGAL_CHECK(batch->input.dim() == 2 && batch->input.dtype() == DType::i64,
               "[masked_batches] expected token ids [N, T] i64, got {}", describe(batch->input));
  RngKey key = epoch_key(options_.seed, streams::kMaskedTokens, at.epoch);
  key.offset = key.offset << 32 | static_cast<uint64_t>(at.next_batch);
  const Tensor shown = find_tensor(batch->extras, "attention_mask");
  const int64_t count = batch->input.numel(), rows = batch->input.size(0);
  const int64_t columns = batch->input.size(1);
  const int64_t first_row = share_.begin(rows), end_row = share_.end(rows);
  const CategoryScope category(Category::input);
  const Shape shape{end_row - first_row, columns};
  const Tensor input = Tensor::empty(shape, DType::i64);
  const Tensor target = Tensor::full(shape, static_cast<double>(kIgnored), DType::i64);
  // Tokens are counted in the whole batch. Those of this share are [first, end).
  const int64_t first = first_row * columns, end = end_row * columns;
  const int64_t* from = batch->input.data<int64_t>();
  int64_t *in = input.mut<int64_t>(), *out = target.mut<int64_t>();
  std::copy(from + first, from + end, in);
  const auto hide = [&](int64_t i) {
    if (i < first || i >= end) return;
    const auto words = philox(key, static_cast<uint64_t>(i));
    out[i - first] = from[i];
    const double kind = unit(words[1]);
    if (kind < 0.8) in[i - first] = options_.mask;
    if (kind >= 0.9)
      in[i - first] = static_cast<int64_t>((words[2] | static_cast<uint64_t>(words[3]) << 32) %
                                           static_cast<uint64_t>(options_.vocabulary));
  };
  int64_t targets = 0, nearest = -1;
  double least = 2;  // the lowest draw, for a batch in which chance chooses none
  for (int64_t i = 0; i < count; ++i) {
    const bool fixed = std::find(options_.special.begin(), options_.special.end(), from[i]) !=
                       options_.special.end();
    if (fixed || (shown.defined() && shown.data<int64_t>()[i] == 0)) continue;
    const double draw = unit(philox(key, static_cast<uint64_t>(i))[0]);
    if (draw < least) least = draw, nearest = i;
    if (draw >= options_.share) continue;
    hide(i);
    ++targets;
  }
  if (targets == 0 && nearest >= 0) hide(nearest);
  batch->input = input;
  batch->target = target;
  if (share_.is_whole()) return batch;
  if (batch->samples.defined()) batch->samples = copy_of_rows(batch->samples, first_row, end_row);
  for (auto& [name, tensor] : batch->extras) {
    FRUGAL_CHECK(tensor.dim() > 0 && tensor.size(0) == rows && tensor.is_contiguous(),
                 "[masked_batches] expected an extra {} of {} rows to share, got {}", name, rows,
                 describe(tensor));
    tensor = copy_of_rows(tensor, first_row, end_row);
  }
  return batch;
}

void MaskedBatches::set_share(const Share& share) {
  check_share(share);
  share_ = share;
}

}  // namespace frugal::data

#include "data/text/sequence_batches.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/error.h"
#include "data/text/masked_batches.h"
#include "data/text/text_batches.h"
#include "tests/data/shares.h"

namespace frugal::data {
namespace {

std::vector<Sequence> sequences(int64_t count, uint64_t seed = 3) {
  std::vector<Sequence> out;
  for (int64_t i = 0; i < count; ++i) {
    const auto length = 3 + uniform_int({seed, 1}, static_cast<uint64_t>(i), 60);
    Sequence sequence;
    for (uint64_t t = 0; t < length; ++t)
      sequence.ids.push_back(static_cast<int32_t>(10 + (static_cast<uint64_t>(i) + t) % 50));
    sequence.second = static_cast<int32_t>(length / 2);
    sequence.label = i;
    out.push_back(sequence);
  }
  return out;
}

std::vector<int64_t> labels(const Batch& batch) {
  const auto* from = batch.target.data<int64_t>();
  return {from, from + batch.target.numel()};
}

std::vector<std::vector<int64_t>> epoch(BatchSource& source) {
  std::vector<std::vector<int64_t>> out;
  while (const auto batch = source.next()) out.push_back(labels(*batch));
  return out;
}

// The share of padding among all positions of the next epoch.
double padding_share(BatchSource& source) {
  double tokens = 0, all = 0;
  while (const auto batch = source.next()) {
    const Tensor mask = find_tensor(batch->extras, "attention_mask");
    for (const double kept : mask.to_vector()) tokens += kept;
    all += static_cast<double>(mask.numel());
  }
  return 1 - tokens / all;
}

TEST_CASE("sequences are padded to the longest of their batch") {
  SequenceBatches batches(
      {{{5, 6, 7}, 2, 4}, {{8}, 1, 9}},
      {.batch_size = 2, .shuffle = false, .group_by_length = false, .padding = 3});
  CHECK(batches.batches() == 1);
  CHECK(batches.samples() == 2);
  const Batch batch = *batches.next();
  CHECK(batch.input.shape() == Shape{2, 3});
  CHECK(batch.input.to_vector() == std::vector<double>{5, 6, 7, 8, 3, 3});
  CHECK(labels(batch) == std::vector<int64_t>{4, 9});
  CHECK(batch.samples.to_vector() == std::vector<double>{0, 1});
  const Tensor mask = find_tensor(batch.extras, "attention_mask");
  const Tensor types = find_tensor(batch.extras, "token_type_ids");
  CHECK(mask.to_vector() == std::vector<double>{1, 1, 1, 1, 0, 0});
  CHECK(types.to_vector() == std::vector<double>{0, 0, 1, 0, 0, 0});
  for (const Tensor& tensor : {batch.input, batch.target, mask, types}) {
    CHECK(tensor.dtype() == DType::i64);
    CHECK(tensor.storage()->category() == Category::input);
  }
  CHECK_FALSE(batches.next().has_value());
  CHECK(batches.state() == LoaderState{1, 0});
  CHECK(padding_share(batches) == doctest::Approx(2.0 / 6));
  SequenceBatches fixed({{{5, 6, 7}, 2, 4}}, {.batch_size = 2, .pad_to = 5});
  CHECK(fixed.next()->input.shape() == Shape{1, 5});
}

TEST_CASE("next tokens: each id but the first is a target, where it counts") {
  Sequence counted{{5, 6, 7, 8}, 4, 0}, whole{{9, 4}, 2, 0};
  counted.counted = {{0, 2}, {3, 4}};
  SequenceBatches batches({counted, whole}, {.batch_size = 2,
                                             .shuffle = false,
                                             .group_by_length = false,
                                             .padding = 3,
                                             .next_tokens = true});
  const Batch batch = *batches.next();
  CHECK(batch.input.to_vector() == std::vector<double>{5, 6, 7, 9, 3, 3});
  CHECK(batch.target.to_vector() == std::vector<double>{6, -100, 8, 4, -100, -100});
  CHECK(batch.samples.to_vector() == std::vector<double>{0, 1});
  CHECK(batch.extras.empty());
  CHECK_FALSE(batches.next().has_value());
  CHECK_THROWS_WITH_AS(SequenceBatches({{{5}, 1, 0}}, {.next_tokens = true}),
                       doctest::Contains("at least two tokens in sample 0"), Error);
  counted.counted = {{3, 5}};
  CHECK_THROWS_WITH_AS(SequenceBatches({counted}, {.next_tokens = true}),
                       doctest::Contains("targets of sample 0 in [0, 4], got 3 to 5"), Error);
  // Shares of a batch are rows of it.
  const auto made = [] {
    return std::make_unique<SequenceBatches>(
        sequences(50), SequenceBatchOptions{.batch_size = 8, .next_tokens = true});
  };
  frugal_test::check_shares(made);
}

TEST_CASE("samples that are joined share rows, and their positions count anew") {
  std::vector<Sequence> all = {{{1, 2, 3}, 3, 0},
                               {{4, 5, 6, 7, 8, 9}, 6, 0},
                               {{10, 11}, 2, 0},
                               {{12, 13, 14, 15}, 4, 0}};  // 2, 5, 1, 3 inputs
  all[3].counted = {{0, 2}, {3, 4}};
  const SequenceBatchOptions plain{
      .batch_size = 2, .shuffle = false, .padding = 99, .next_tokens = true, .join_to = 6};
  SequenceBatches batches(all, plain);
  CHECK(batches.samples() == 2);  // rows
  CHECK(batches.batches() == 1);
  const Batch batch = *batches.next();
  CHECK(batch.input.to_vector() == std::vector<double>{12, 13, 14, 1, 2, 99, 4, 5, 6, 7, 8, 10});
  CHECK(batch.target.to_vector() ==
        std::vector<double>{13, -100, 15, 2, 3, -100, 5, 6, 7, 8, 9, 11});
  CHECK_FALSE(batch.samples.defined());
  REQUIRE(batch.extras.size() == 1);
  CHECK(find_tensor(batch.extras, "position_ids").to_vector() ==
        std::vector<double>{0, 1, 2, 0, 1, 0, 0, 1, 2, 3, 4, 0});
  CHECK(find_tensor(batch.extras, "position_ids").storage()->category() == Category::input);
  CHECK_FALSE(batches.next().has_value());

  // Every target of every sample once an epoch, and little padding.
  const SequenceBatchOptions random{.batch_size = 4, .seed = 3, .next_tokens = true, .join_to = 64};
  SequenceBatches a(sequences(300), random), b(sequences(300), random);
  std::vector<std::vector<double>> epochs[2];
  double used = 0, places = 0;
  for (auto& epoch : epochs)
    while (const auto made = a.next()) {
      CHECK(made->input.size(1) <= 64);
      epoch.push_back(made->input.to_vector());
      for (const double target : made->target.to_vector()) used += target != kIgnored;
      places += static_cast<double>(made->input.numel());
    }
  double targets = 0;
  for (const Sequence& each : sequences(300)) targets += static_cast<double>(each.ids.size()) - 1;
  CHECK(used == 2 * targets);
  CHECK(used > 0.97 * places);
  CHECK(epochs[0] != epochs[1]);
  b.seek({1, 5});
  CHECK(b.next()->input.to_vector() == epochs[1][5]);

  const auto made = [&] { return std::make_unique<SequenceBatches>(sequences(300), random); };
  frugal_test::check_shares(made);
  SequenceBatchOptions wrong = plain;
  wrong.join_to = 4;
  CHECK_THROWS_WITH_AS(SequenceBatches(all, wrong),
                       doctest::Contains("at most join_to = 4 tokens in sample 1, got 5"), Error);
  wrong.next_tokens = false;
  CHECK_THROWS_WITH_AS(SequenceBatches(all, wrong),
                       doctest::Contains("join_to of 0, or above 0 with next_tokens, got 4"),
                       Error);
}

TEST_CASE("every sample once an epoch, in an order of seed and epoch alone") {
  const SequenceBatchOptions options{.batch_size = 16, .seed = 5};
  SequenceBatches a(sequences(2100), options), b(sequences(2100), options);
  const auto first = epoch(a), second = epoch(a);
  CHECK(static_cast<int64_t>(first.size()) == a.batches());
  std::set<int64_t> seen;
  for (const auto& batch : first) seen.insert(batch.begin(), batch.end());
  CHECK(seen.size() == 2100);
  CHECK(first != second);
  CHECK(epoch(b) == first);
  // Anywhere in an epoch, also backwards.
  b.seek({1, 7});
  CHECK(labels(*b.next()) == second[7]);
  b.seek({0, 3});
  CHECK(labels(*b.next()) == first[3]);
  CHECK(labels(*b.next()) == first[4]);
  b.seek({0, b.batches()});
  CHECK_FALSE(b.next().has_value());
  CHECK(labels(*b.next()) == second[0]);
  SequenceBatches other(sequences(2100), {.batch_size = 16, .seed = 6});
  CHECK(epoch(other) != first);
  CHECK_THROWS_WITH_AS(b.seek({0, 133}), doctest::Contains("a batch in [0, 132]"), Error);
  CHECK_THROWS_AS(b.seek({-1, 0}), Error);
}

TEST_CASE("a batch names its samples, also where tokens are masked") {
  const SequenceBatchOptions options{.batch_size = 8};
  const auto check = [](BatchSource& source) {
    int64_t samples = 0;
    for (int epoch = 0; epoch < 2; ++epoch)
      while (const auto batch = source.next()) {
        samples += batch->samples.numel();
        CHECK(batch->samples.device() == kCpu);
        if (batch->target.dim() == 1)  // labels are indices here
          CHECK(batch->samples.to_vector() == batch->target.to_vector());
      }
    CHECK(samples == 2 * 50);
  };
  SequenceBatches batches(sequences(50), options);
  check(batches);
  MaskedBatches masked(std::make_unique<SequenceBatches>(sequences(50), options),
                       {.mask = 4, .vocabulary = 100});
  check(masked);
}

TEST_CASE("groups of like length need little padding and keep batches random") {
  SequenceBatches plain(sequences(2100), {.batch_size = 16, .group_by_length = false});
  SequenceBatches grouped(sequences(2100), {.batch_size = 16});
  SequenceBatches sorted(sequences(2100), {.batch_size = 16, .shuffle = false});
  CHECK(padding_share(plain) > 0.3);
  CHECK(padding_share(grouped) < 0.03);
  CHECK(padding_share(sorted) < 0.03);
  grouped.seek({0, 0});
  // Lengths of neighbouring batches are not in order.
  int rises = 0, steps = 0;
  int64_t before = 0;
  while (const auto batch = grouped.next()) {
    rises += batch->input.size(1) > before;
    before = batch->input.size(1);
    ++steps;
  }
  CHECK(rises > steps / 4);
  CHECK(rises < steps * 3 / 4);
}

TEST_CASE("the largest batches of all come first, the largest of them last") {
  for (const int64_t first : {1, 3}) {
    SequenceBatches grouped(sequences(2100), {.batch_size = 16, .seed = 3, .largest_first = first});
    std::vector<int64_t> tokens;
    while (const auto batch = grouped.next()) tokens.push_back(batch->input.numel());
    std::vector<int64_t> sorted = tokens;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const auto n = static_cast<size_t>(first);
    CHECK(tokens[n] < sorted[n]);  // chance does not do it
    std::reverse(tokens.begin(), tokens.begin() + first);
    CHECK(std::equal(sorted.begin(), sorted.begin() + first, tokens.begin()));
  }
  // There are fewer batches than that.
  SequenceBatches few(sequences(40), {.batch_size = 16, .largest_first = 9});
  CHECK(few.batches() == 3);
  while (few.next()) continue;
}

TEST_CASE("the columns of the largest batch follow from the lengths of all rows") {
  // A last batch that is not full has the longest rows and is smaller than the one before it.
  CHECK(columns_of_largest({1, 2, 3, 4, 5, 6, 7}, 3) == 6);
  CHECK(columns_of_largest({1, 2, 3, 4, 5, 6, 20}, 3) == 20);
  CHECK(columns_of_largest({1, 2, 3}, 8) == 3);
  // Whatever an epoch draws, no batch is larger, and some batch of some epoch is as large.
  for (const int count : {7, 30, 150, 300}) {
    CAPTURE(count);
    SequenceBatchOptions options;
    options.batch_size = 2;
    SequenceBatches source(sequences(count), options);
    std::vector<int64_t> lengths = source.row_lengths();
    std::sort(lengths.begin(), lengths.end());
    std::pair<int64_t, int64_t> largest{0, 0};  // elements and columns
    for (int epoch = 0; epoch < 6; ++epoch)
      while (const auto batch = source.next())
        largest = std::max(largest, std::pair(batch->input.numel(), batch->input.size(1)));
    CHECK(columns_of_largest(lengths, options.batch_size) == largest.second);
  }
}

TEST_CASE("the last batch") {
  SequenceBatches kept(sequences(10), {.batch_size = 4}),
      dropped(sequences(10), {.batch_size = 4, .drop_last = true});
  CHECK(kept.batches() == 3);
  CHECK(kept.samples() == 10);
  CHECK(dropped.batches() == 2);
  CHECK(dropped.samples() == 8);
  for (const auto& batch : epoch(dropped)) CHECK(batch.size() == 4);
  CHECK_THROWS_WITH_AS(SequenceBatches(sequences(3), {.batch_size = 4, .drop_last = true}),
                       doctest::Contains("at most 3 samples"), Error);
}

TEST_CASE("sequences that cannot be") {
  const auto rejects = [](std::vector<Sequence> samples, const SequenceBatchOptions& options,
                          const char* why) {
    CHECK_THROWS_WITH_AS(SequenceBatches(samples, options), doctest::Contains(why), Error);
  };
  rejects({}, {}, "expected samples");
  rejects({{{1}, 1, 0}, {{}, 0, 0}}, {}, "tokens in sample 1");
  rejects({{{1, -2}, 1, 0}}, {}, "got -2");
  rejects({{{1}, 2, 0}}, {}, "second segment of sample 0 in [0, 1], got 2");
  rejects({{{1}, -1, 0}}, {}, "got -1");
  rejects({{{1, 2}, 2, 0}}, {.pad_to = 1}, "at most pad_to = 1 tokens in sample 0, got 2");
  rejects({{{1}, 1, 0}}, {.batch_size = 0}, "batch_size of at least 1");
  rejects({{{1}, 1, 0}}, {.padding = -1}, "a token id as padding");
}

TextBatches::Tokens stream(int64_t count) {
  TokenIds ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return std::make_shared<const TokenIds>(std::move(ids));
}

TEST_CASE("windows of a text, one after the other") {
  TextBatches text(stream(100), {10, 33}, {.batch_size = 3, .length = 5, .random = false});
  CHECK(text.samples() == 4);  // 22 targets: four windows and a rest
  CHECK(text.batches() == 2);
  const Batch first = *text.next(), second = *text.next();
  CHECK(first.input.shape() == Shape{3, 5});
  CHECK(second.input.shape() == Shape{1, 5});
  CHECK(second.input.to_vector() == std::vector<double>{25, 26, 27, 28, 29});
  CHECK(second.target.to_vector() == std::vector<double>{26, 27, 28, 29, 30});
  CHECK(first.input.storage()->category() == Category::input);
  CHECK(first.target.storage()->category() == Category::input);
  CHECK_FALSE(text.next().has_value());
  CHECK(text.next()->input.item() == 10);
  TextBatches whole(stream(6), {0, 6}, {.length = 5, .random = false, .rest = true});
  CHECK(whole.samples() == 1);
}

TEST_CASE("windows of a text: its end is a shorter one") {
  const TextBatchOptions options{.batch_size = 4, .length = 5, .random = false, .rest = true};
  TextBatches text(stream(100), {10, 33}, options);
  CHECK(text.samples() == 5);
  CHECK(text.batches() == 2);
  CHECK(text.smallest_batch() == 1);
  std::vector<double> targets;
  while (const auto batch = text.next())
    for (const double target : batch->target.to_vector())
      if (target != static_cast<double>(kIgnored)) targets.push_back(target);
  std::vector<double> all(22);
  std::iota(all.begin(), all.end(), 11);
  CHECK(targets == all);
  text.seek({1, 1});
  const Batch last = *text.next();
  CHECK(last.input.to_vector() == std::vector<double>{30, 31, 0, 0, 0});
  CHECK(last.target.to_vector() == std::vector<double>{31, 32, -100, -100, -100});
  // Training draws whole windows.
  CHECK(
      TextBatches(stream(100), {10, 33}, {.batch_size = 4, .length = 5, .rest = true}).samples() ==
      4);
}

TEST_CASE("windows of a text from anywhere") {
  const TextBatchOptions options{.batch_size = 8, .length = 5, .batches = 100, .seed = 2};
  TextBatches a(stream(100), {10, 30}, options), b(stream(100), {10, 30}, options);
  std::set<double> starts;
  std::vector<double> first;
  for (int64_t i = 0; i < 100; ++i) {
    const Batch batch = *a.next();
    for (int64_t n = 0; n < 8; ++n) {
      starts.insert(batch.input.item(5 * n));
      for (int64_t t = 0; t < 5; ++t)
        CHECK(batch.target.item(5 * n + t) == batch.input.item(5 * n + t) + 1);
    }
    if (i == 42) first = batch.input.to_vector();
  }
  CHECK(starts.size() == 15);  // 10 to 24: the last target is token 29
  CHECK((*starts.begin() == 10 && *starts.rbegin() == 24));
  CHECK_FALSE(a.next().has_value());
  b.seek({0, 42});
  CHECK(b.next()->input.to_vector() == first);
  a.seek({1, 42});
  CHECK(a.next()->input.to_vector() != first);
  CHECK_THROWS_WITH_AS(a.seek({0, 101}), doctest::Contains("[0, 100], got 0 and 101"), Error);
  TextBatches once(stream(1001), {0, 1001}, {.batch_size = 8, .length = 5});
  CHECK(once.batches() == 25);
  CHECK(once.samples() == 200);
}

TEST_CASE("texts that cannot be cut") {
  const auto rejects = [](const TextRange& range, const TextBatchOptions& options,
                          const char* why) {
    CHECK_THROWS_WITH_AS(TextBatches(stream(10), range, options), doctest::Contains(why), Error);
  };
  rejects({0, 5}, {.length = 5}, "at least 6 tokens for windows of 5, got 5");
  rejects({0, 11}, {.length = 5}, "a range in [0, 10], got 0 to 11");
  rejects({-1, 10}, {.length = 5}, "a range in [0, 10]");
  rejects({8, 2}, {.length = 5}, "a range in [0, 10]");
  rejects({0, 10}, {.length = 0}, "length of at least 1");
  rejects({0, 10}, {.batch_size = 0, .length = 5}, "batch_size of at least 1");
  rejects({0, 10}, {.length = 5, .batches = -1}, "batches of at least 0");
  CHECK_THROWS_AS(TextBatches(nullptr, {0, 10}, {.length = 5}), Error);
  const auto [train, rest] = split_text(1115394, 0.1);
  CHECK((train.begin == 0 && train.end == 1003854 && rest.begin == 1003854 && rest.end == 1115394));
  CHECK(split_text(10, 0).second.begin == 10);
  CHECK_THROWS_WITH_AS(split_text(10, 1), doctest::Contains("in [0, 1), got 1"), Error);
}

std::unique_ptr<BatchSource> long_text() {
  return std::make_unique<TextBatches>(
      stream(20000), TextRange{0, 20000},
      TextBatchOptions{.batch_size = 100, .length = 100, .random = false});
}

TEST_CASE("masked tokens: 15 %, of them 80, 10 and 10") {
  const MaskOptions options{.mask = 103, .vocabulary = 30000, .special = {7, 19998}, .seed = 4};
  MaskedBatches masked(long_text(), options), again(long_text(), options);
  int64_t all = 0, targets = 0, hidden = 0, kept = 0;
  while (const auto batch = masked.next()) {
    const Batch same = *again.next();
    CHECK(same.input.to_vector() == batch->input.to_vector());
    CHECK(same.target.to_vector() == batch->target.to_vector());
    const auto *in = batch->input.data<int64_t>(), *out = batch->target.data<int64_t>();
    for (int64_t i = 0; i < batch->input.numel(); ++i, ++all) {
      if (out[i] == kIgnored) {
        CHECK(in[i] == all);
        continue;
      }
      ++targets;
      CHECK(out[i] == all);
      CHECK((out[i] != 7 && out[i] != 19998));
      CHECK((in[i] >= 0 && in[i] < 30000));
      hidden += in[i] == 103;
      kept += in[i] == out[i];
    }
    CHECK(batch->target.storage()->category() == Category::input);
  }
  CHECK(all == 19900);
  CHECK(targets > 0.14 * 19900);
  CHECK(targets < 0.16 * 19900);
  CHECK(hidden == doctest::Approx(0.8 * static_cast<double>(targets)).epsilon(0.05));
  CHECK(kept == doctest::Approx(0.1 * static_cast<double>(targets)).epsilon(0.2));
  // The next epoch hides others; a seek repeats.
  const auto next = masked.next()->target.to_vector();
  again.seek({0, 0});
  CHECK(again.next()->target.to_vector() != next);
  again.seek({1, 0});
  CHECK(again.next()->target.to_vector() == next);
  CHECK(masked.batches() == again.batches());
  CHECK(masked.samples() == 199);
  CHECK(masked.state() == LoaderState{1, 1});
}

TEST_CASE("padding is never masked, and no batch goes without a target") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    auto source = std::make_unique<SequenceBatches>(
        std::vector<Sequence>{{{2, 50, 3}, 3, 0}, {{2, 51, 52, 53, 3}, 5, 0}});
    MaskedBatches masked(std::move(source),
                         {.mask = 4, .vocabulary = 60, .special = {2, 3}, .seed = seed});
    const Batch batch = *masked.next();
    const Tensor mask = find_tensor(batch.extras, "attention_mask");
    REQUIRE(mask.defined());
    int64_t targets = 0;
    for (int64_t i = 0; i < batch.target.numel(); ++i) {
      if (batch.target.item(i) == kIgnored) continue;
      ++targets;
      CHECK(batch.target.item(i) >= 50);
      CHECK(mask.item(i) == 1);
    }
    CHECK(targets > 0);
  }
  // None to choose: none chosen.
  MaskedBatches none(std::make_unique<SequenceBatches>(std::vector<Sequence>{{{2, 3}, 2, 0}}),
                     {.mask = 4, .vocabulary = 60, .special = {2, 3}});
  CHECK(none.next()->target.to_vector() == std::vector<double>{kIgnored, kIgnored});
  CHECK_THROWS_WITH_AS(MaskedBatches(nullptr, {.mask = 0, .vocabulary = 1}),
                       doctest::Contains("expected batches"), Error);
  CHECK_THROWS_WITH_AS(MaskedBatches(long_text(), {.mask = 5, .vocabulary = 5}),
                       doctest::Contains("[MASK] in a vocabulary of 5"), Error);
  CHECK_THROWS_WITH_AS(MaskedBatches(long_text(), {.mask = 0, .vocabulary = 5, .share = 0}),
                       doctest::Contains("share in (0, 1]"), Error);
}

// A source with an extra that belongs to no sample.
class OddExtra : public BatchSource {
 public:
  std::optional<Batch> next() override {
    Batch batch{Tensor::zeros({2, 3}, DType::i64), Tensor::zeros({2}, DType::i64)};
    batch.extras = {{"odd", Tensor::zeros({5})}};
    return batch;
  }
  int64_t batches() const override { return 1; }
  int64_t samples() const override { return 2; }
  LoaderState state() const override { return {}; }
  void seek(const LoaderState&) override {}
  int64_t smallest_batch() const override { return 2; }
};

TEST_CASE("shares of sequences are padded as the whole batch") {
  for (const bool group : {false, true})
    for (const int64_t pad_to : {0, 70}) {
      const auto make = [&] {
        return std::make_unique<SequenceBatches>(sequences(42),
                                                 SequenceBatchOptions{.batch_size = 8,
                                                                      .group_by_length = group,
                                                                      .seed = 7,
                                                                      .padding = 3,
                                                                      .pad_to = pad_to});
      };
      frugal_test::check_shares(make);
      frugal_test::check_smallest_batch(*make(), 2);
    }
  SequenceBatches dropped(sequences(42), {.batch_size = 8, .drop_last = true});
  frugal_test::check_smallest_batch(dropped, 8);
  SequenceBatches own(sequences(42), {.batch_size = 8}), whole(sequences(42), {.batch_size = 8});
  own.set_share({1, 3});
  const auto all = labels(*whole.next());
  CHECK(labels(*own.next()) == std::vector<int64_t>{all.begin() + 2, all.begin() + 5});
}

TEST_CASE("shares of windows of a text") {
  for (const bool random : {false, true}) {
    const auto make = [&] {
      return std::make_unique<TextBatches>(
          stream(100), TextRange{10, 90},
          TextBatchOptions{
              .batch_size = 6, .length = 5, .random = random, .rest = true, .seed = 2});
    };
    frugal_test::check_shares(make);
    frugal_test::check_smallest_batch(*make(), random ? 6 : 4);
  }
}

TEST_CASE("shares of masked tokens have the draws of the whole batch") {
  int64_t lonely = 0;  // batches with one target
  for (const double share : {0.15, 0.002}) {
    const auto make = [&]() -> std::unique_ptr<BatchSource> {
      const MaskOptions options{
          .mask = 4, .vocabulary = 100, .special = {12}, .share = share, .seed = 4};
      return std::make_unique<MaskedBatches>(
          std::make_unique<SequenceBatches>(sequences(42), SequenceBatchOptions{.batch_size = 8}),
          options);
    };
    frugal_test::check_shares(make);
    const auto one = make();
    frugal_test::check_smallest_batch(*one, 2);
    while (const auto batch = one->next()) {
      const auto targets = labels(*batch);
      const auto ignored = std::count(targets.begin(), targets.end(), kIgnored);
      lonely += static_cast<int64_t>(targets.size()) - ignored == 1;
    }
  }
  CHECK(lonely > 2);  // chance chose none, so the lowest draw of the batch became the target
  MaskedBatches odd(std::make_unique<OddExtra>(), {.mask = 4, .vocabulary = 100});
  CHECK(odd.next().has_value());
  odd.set_share({0, 2});
  CHECK(odd.smallest_batch() == 2);
  CHECK_THROWS_WITH_AS(odd.next(), doctest::Contains("expected an extra odd of 2 rows"), Error);
}

}  // namespace
}  // namespace frugal::data

// What several processes get of a source's batches is together what one process gets.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "data/batch_source.h"

namespace frugal_test {

using namespace frugal;
using namespace frugal::data;

using MakeSource = std::function<std::unique_ptr<BatchSource>()>;

inline void check_same_bytes(const Tensor& got, const Tensor& expected) {
  REQUIRE(got.defined() == expected.defined());
  if (!got.defined()) return;
  REQUIRE(got.dtype() == expected.dtype());
  REQUIRE(got.shape() == expected.shape());
  REQUIRE(got.storage()->category() == Category::input);
  if (got.numel() == 0) return;
  REQUIRE(std::memcmp(got.raw(), expected.raw(), static_cast<size_t>(got.nbytes())) == 0);
}

// One after the other along axis 0. They agree on the other axes.
inline Tensor one_after_another(const std::vector<Tensor>& parts) {
  if (!parts[0].defined()) return {};
  Shape shape = parts[0].shape();
  shape[0] = 0;
  std::vector<uint8_t> bytes;
  for (const Tensor& part : parts) {
    REQUIRE(part.is_contiguous());
    const auto* from = static_cast<const uint8_t*>(part.raw());
    if (part.numel() > 0) bytes.insert(bytes.end(), from, from + part.nbytes());
    Shape rest = part.shape();
    shape[0] += rest[0];
    rest[0] = shape[0];
    REQUIRE(rest == shape);
  }
  const CategoryScope category(Category::input);
  const Tensor out = Tensor::empty(shape, parts[0].dtype());
  REQUIRE(static_cast<size_t>(out.nbytes()) == bytes.size());
  if (!bytes.empty()) std::copy(bytes.begin(), bytes.end(), static_cast<uint8_t*>(out.raw()));
  return out;
}

// Each tensor of the whole batch is that of the shares, one after the other.
inline void check_together(const std::vector<Batch>& shares, const Batch& whole) {
  const auto together = [&](const std::function<Tensor(const Batch&)>& tensor_of) {
    std::vector<Tensor> parts;
    for (const Batch& share : shares) parts.push_back(tensor_of(share));
    check_same_bytes(one_after_another(parts), tensor_of(whole));
  };
  for (const Batch& share : shares) {
    REQUIRE(share.floats == whole.floats);
    REQUIRE(share.extras.size() == whole.extras.size());
  }
  together([](const Batch& batch) { return batch.input; });
  together([](const Batch& batch) { return batch.target; });
  together([](const Batch& batch) { return batch.samples; });
  for (size_t i = 0; i < whole.extras.size(); ++i)
    together([&](const Batch& batch) {
      REQUIRE(batch.extras[i].first == whole.extras[i].first);
      return batch.extras[i].second;
    });
}

// check_together(), and each share has as many samples as Share says.
inline void check_rows(const std::vector<Batch>& shares, const Batch& whole) {
  const int64_t samples = whole.input.size(0);
  for (size_t r = 0; r < shares.size(); ++r) {
    const Share share{static_cast<int>(r), static_cast<int>(shares.size())};
    REQUIRE(shares[r].input.size(0) == share.end(samples) - share.begin(samples));
  }
  check_together(shares, whole);
}

// Holds `check` for every batch of 1 to 7 processes: of two epochs, behind seek(), and behind
// set_share() in the middle of an epoch. `make` makes a source of at least two batches.
inline void check_shares(const MakeSource& make,
                         const std::function<void(const std::vector<Batch>& shares,
                                                  const Batch& whole)>& check = check_rows) {
  for (const int size : {1, 2, 3, 4, 7}) {
    CAPTURE(size);
    const auto one = make();
    REQUIRE(one->batches() >= 2);
    std::vector<std::unique_ptr<BatchSource>> ranks;
    for (int r = 0; r < size; ++r) {
      ranks.push_back(make());
      ranks.back()->set_share({r, size});
      REQUIRE(ranks.back()->batches() == one->batches());
      REQUIRE(ranks.back()->samples() == one->samples());
      REQUIRE(ranks.back()->smallest_batch() == one->smallest_batch());
    }
    const auto check_epoch = [&] {
      while (const auto whole = one->next()) {
        std::vector<Batch> shares;
        for (const auto& rank : ranks) {
          shares.push_back(*rank->next());
          REQUIRE(rank->state() == one->state());
        }
        check(shares, *whole);
      }
      for (const auto& rank : ranks) {
        REQUIRE_FALSE(rank->next().has_value());
        REQUIRE(rank->state() == one->state());
      }
    };
    check_epoch();
    check_epoch();
    for (const LoaderState& state :
         {LoaderState{1, one->batches() / 2}, LoaderState{0, one->batches() - 1}}) {
      one->seek(state);
      for (const auto& rank : ranks) rank->seek(state);
      check_epoch();
    }
    // The whole batch for one step, then a share of another rank: this drops what was made in
    // advance, and not the place in the epoch.
    one->seek({1, 0});
    const Batch first = *one->next();
    for (int r = 0; r < size; ++r) {
      BatchSource& rank = *ranks[static_cast<size_t>(r)];
      rank.set_share({0, 1});
      rank.seek({1, 0});
      check({*rank.next()}, first);
      rank.set_share({size - 1 - r, size});
      REQUIRE(rank.state() == LoaderState{1, 1});
    }
    std::reverse(ranks.begin(), ranks.end());
    check_epoch();
    // A share that cannot be is refused, and the one before it stays.
    for (const auto& rank : ranks)
      for (const Share& bad : {Share{size, size}, Share{-1, size}, Share{0, 0}, Share{0, -1}})
        REQUIRE_THROWS_WITH_AS(rank->set_share(bad),
                               doctest::Contains("[share] expected a rank in [0, size)"), Error);
    check_epoch();
  }
}

// smallest_batch() is the least number of samples among the batches of an epoch.
inline void check_smallest_batch(BatchSource& source, int64_t expected) {
  int64_t least = INT64_MAX;
  while (const auto batch = source.next()) least = std::min(least, batch->input.size(0));
  CHECK(least == expected);
  CHECK(source.smallest_batch() == expected);
}

}  // namespace frugal_test

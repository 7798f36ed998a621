#include "data/image/transforms.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "data/memory_dataset.h"
#include "data/subset.h"

using namespace frugal;
using namespace frugal::data;

namespace {

// `count` samples [4, 5, 2] whose values are 1, 2, 3, ... over all.
DatasetPtr numbered_pictures(int64_t count = 2) {
  std::vector<float> values(static_cast<size_t>(count * 40));
  std::iota(values.begin(), values.end(), 1.0f);
  std::vector<int64_t> labels(static_cast<size_t>(count));
  std::iota(labels.begin(), labels.end(), int64_t{0});
  return std::make_shared<MemoryDataset>(Tensor::from(values, {count, 4, 5, 2}),
                                         Tensor::from(labels, {count}), count);
}

std::vector<double> sample(const Dataset& dataset, int64_t index, RngKey key) {
  return dataset.get(index, key).input.to_vector();
}

}  // namespace

TEST_CASE("datasets in memory check what they are given") {
  const Tensor x = Tensor::zeros({2, 4, 5, 2});
  const Tensor y = Tensor::from<int64_t>({0, 1}, {2});
  CHECK(MemoryDataset(x, y, 2).get(1).label == 1);
  CHECK_THROWS_WITH_AS(MemoryDataset(x, y, 1), doctest::Contains("got 1 at sample 1"), Error);
  CHECK_THROWS_WITH_AS(MemoryDataset(x, Tensor::from<int64_t>({-1, 0}, {2}), 2),
                       doctest::Contains("got -1 at sample 0"), Error);
  CHECK_THROWS_WITH_AS(MemoryDataset(x, Tensor::zeros({3}, DType::i64), 2),
                       doctest::Contains("labels [2] i64"), Error);
  CHECK_THROWS_WITH_AS(MemoryDataset(x.transpose(1, 2), y, 2), doctest::Contains("contiguous"),
                       Error);
  CHECK_THROWS_WITH_AS(MemoryDataset({}, y, 2), doctest::Contains("undefined"), Error);
  CHECK_THROWS_WITH_AS(ImageDataset({1, 2, 3}, {1, 2, 2, 1}, {0}, 2), doctest::Contains("3 bytes"),
                       Error);
  CHECK_THROWS_WITH_AS(ImageDataset({1, 2, 3, 4}, {1, 2, 2, 1}, {0, 1}, 2),
                       doctest::Contains("expected 1 labels"), Error);
}

TEST_CASE("a subset is a range") {
  const Subset middle(numbered_pictures(5), 1, 4);
  CHECK(middle.size() == 3);
  CHECK(middle.get(0).label == 1);
  CHECK(middle.get(2).input.item(0) == 121);
  CHECK(Subset(numbered_pictures(5), 2, -1).size() == 3);
  CHECK(first(numbered_pictures(5), 2)->size() == 2);
  CHECK(first(numbered_pictures(5), 9)->size() == 5);
  CHECK_THROWS_WITH_AS(Subset(numbered_pictures(5), 2, 6), doctest::Contains("got [2, 6)"), Error);
  CHECK_THROWS_AS(Subset(numbered_pictures(5), 3, 2), Error);
}

TEST_CASE("normalize works by channel") {
  const Normalize normalized(numbered_pictures(), {1, 2}, {2, 0.5});
  const auto values = sample(normalized, 0, {});
  for (size_t i = 0; i < 40; i += 2) {
    REQUIRE(values[i] == doctest::Approx((static_cast<double>(i) + 1 - 1) / 2));
    REQUIRE(values[i + 1] == doctest::Approx((static_cast<double>(i) + 2 - 2) / 0.5));
  }
  CHECK_THROWS_WITH_AS(Normalize(numbered_pictures(), {1}, {2, 1}),
                       doctest::Contains("each of 2 channels"), Error);
  CHECK_THROWS_WITH_AS(Normalize(numbered_pictures(), {1, 1}, {2, 0}),
                       doctest::Contains("at channel 1"), Error);
  CHECK_THROWS_AS(Normalize(numbered_pictures(), {1, std::nan("")}, {2, 1}), Error);
}

TEST_CASE("the statistics of a dataset normalize it") {
  const DatasetPtr raw = numbered_pictures(3);
  // A variance far below the square of the mean keeps its digits, and a constant channel has none.
  const auto flat = std::make_shared<MemoryDataset>(
      Tensor::from<float>({1000.25f, 0.1f, 1000.5f, 0.1f, 1000.25f, 0.1f, 1000.5f, 0.1f},
                          {2, 1, 2, 2}),
      Tensor::zeros({2}, DType::i64), 1);
  CHECK(channel_stats(*flat).mean[0] == 1000.375);
  CHECK(channel_stats(*flat).std[0] == 0.125);
  CHECK(channel_stats(*flat).std[1] == 0);
  const ChannelStats stats = channel_stats(*raw);
  CHECK(stats.mean[0] == doctest::Approx(60));
  CHECK(stats.mean[1] == doctest::Approx(61));
  const ChannelStats after = channel_stats(Normalize(raw, stats.mean, stats.std));
  for (size_t c = 0; c < 2; ++c) {
    CHECK(std::abs(after.mean[c]) < 1e-6);
    CHECK(after.std[c] == doctest::Approx(1));
  }
}

TEST_CASE("pad-crop shifts by at most its padding, every shift equally often") {
  const DatasetPtr raw = numbered_pictures();
  const PadCrop crop(raw, 2, -1);
  const auto image = sample(*raw, 1, {});
  std::map<std::pair<int, int>, int> shifts;
  for (uint64_t trial = 0; trial < 2500; ++trial) {
    const auto got = sample(crop, 1, {trial, 7});
    int matches = 0;
    for (int down = -2; down <= 2; ++down)
      for (int right = -2; right <= 2; ++right) {
        bool same = true;
        for (int h = 0; h < 4; ++h)
          for (int w = 0; w < 5; ++w)
            for (int c = 0; c < 2; ++c) {
              const int from_h = h + down, from_w = w + right;
              const bool inside = from_h >= 0 && from_h < 4 && from_w >= 0 && from_w < 5;
              const double wanted =
                  inside ? image[static_cast<size_t>((from_h * 5 + from_w) * 2 + c)] : -1;
              same = same && got[static_cast<size_t>((h * 5 + w) * 2 + c)] == wanted;
            }
        if (!same) continue;
        ++matches;
        ++shifts[{down, right}];
      }
    REQUIRE(matches == 1);
  }
  CHECK(shifts.size() == 25);
  for (const auto& [shift, count] : shifts) CHECK(std::abs(count - 100) < 60);  // 6 sigma
  CHECK(sample(PadCrop(raw, 0), 1, {3, 4}) == image);
  CHECK(PadCrop(raw, 40, 9).get(0, {1, 2}).input.numel() == 40);
  CHECK_THROWS_WITH_AS(PadCrop(raw, -1), doctest::Contains("got -1"), Error);
}

TEST_CASE("flip mirrors the columns with its probability") {
  const DatasetPtr raw = numbered_pictures();
  const auto image = sample(*raw, 0, {});
  auto mirrored = image;
  for (size_t h = 0; h < 4; ++h)
    for (size_t w = 0; w < 5; ++w)
      for (size_t c = 0; c < 2; ++c) mirrored[(h * 5 + w) * 2 + c] = image[(h * 5 + 4 - w) * 2 + c];
  const HorizontalFlip flip(raw, 0.25);
  int flipped = 0;
  for (uint64_t trial = 0; trial < 2000; ++trial) {
    const auto got = sample(flip, 0, {trial, 1});
    REQUIRE((got == image || got == mirrored));
    flipped += got == mirrored;
  }
  CHECK(std::abs(flipped - 500) < 6 * 20);  // 6 sigma
  CHECK(sample(HorizontalFlip(raw, 1), 0, {5, 5}) == mirrored);
  CHECK(sample(HorizontalFlip(raw, 0), 0, {5, 5}) == image);
  CHECK_THROWS_WITH_AS(HorizontalFlip(raw, 1.5), doctest::Contains("got 1.5"), Error);
}

TEST_CASE("cutout blanks one clipped square") {
  const DatasetPtr raw = numbered_pictures();
  const auto image = sample(*raw, 0, {});
  const Cutout cutout(raw, 2, -5);
  std::set<int> sizes;
  for (uint64_t trial = 0; trial < 300; ++trial) {
    const auto got = sample(cutout, 0, {trial, 1});
    std::set<int> rows, columns;
    int blank = 0;
    for (int i = 0; i < 40; ++i) {
      if (got[static_cast<size_t>(i)] == image[static_cast<size_t>(i)]) continue;
      REQUIRE(got[static_cast<size_t>(i)] == -5);
      rows.insert(i / 10);
      columns.insert(i / 2 % 5);
      ++blank;
    }
    REQUIRE(rows.size() <= 2);
    REQUIRE(columns.size() <= 2);
    REQUIRE(blank == static_cast<int>(rows.size() * columns.size()) * 2);
    sizes.insert(blank);
  }
  CHECK(sizes == std::set<int>{2, 4, 8});  // a corner, a border, the middle
  CHECK(sample(Cutout(raw, 0), 0, {1, 1}) == image);
  CHECK(sample(Cutout(raw, 20, 3), 0, {1, 1}) == std::vector<double>(40, 3));
  CHECK_THROWS_WITH_AS(Cutout(raw, -2), doctest::Contains("got -2"), Error);
}

TEST_CASE("stacked augmentations are independent and repeat with their key") {
  const DatasetPtr raw = numbered_pictures();
  // Two coin flips with one key: equal draws would always cancel or never mirror.
  const HorizontalFlip twice(std::make_shared<HorizontalFlip>(raw));
  const auto image = sample(*raw, 0, {});
  int mirrored = 0;
  for (uint64_t trial = 0; trial < 400; ++trial) {
    const auto got = sample(twice, 0, {trial, 0});
    REQUIRE(sample(twice, 0, {trial, 0}) == got);
    mirrored += got != image;
  }
  CHECK(std::abs(mirrored - 200) < 60);  // 6 sigma
}

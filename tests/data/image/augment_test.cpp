#include "data/image/augment.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "data/memory_dataset.h"

namespace frugal::data {
namespace {

constexpr int64_t kSide = 12, kFloats = kSide * kSide * 3;

// One picture with values in [0.2, 0.8], as some changes clip.
DatasetPtr one_picture(int64_t channels = 3) {
  Tensor input = Tensor::empty({1, kSide, kSide, channels});
  for (int64_t i = 0; i < input.numel(); ++i)
    input.mut<float>()[i] = 0.2f + 0.6f * uniform({3, 0}, uint64_t(i));
  return std::make_shared<MemoryDataset>(input, Tensor::zeros({1}, DType::i64), 1);
}

std::vector<float> sample(const Dataset& dataset, RngKey key) {
  std::vector<float> out(size_t(dataset.sample_shape().numel()));
  dataset.get_into(0, key, out.data());
  return out;
}
std::vector<float> original() { return sample(*one_picture(), {}); }

double mean(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

TEST_CASE("every random change repeats with its key and stays within [0, 1]") {
  const DatasetPtr inner = one_picture();
  const std::vector<std::shared_ptr<const Dataset>> changes = {
      std::make_shared<ColorJitter>(inner, ColorJitterOptions{}),
      std::make_shared<RandomGrayscale>(inner, 0.5),
      std::make_shared<GaussianBlur>(inner, 0.5),
      std::make_shared<RandAugment>(inner),
      std::make_shared<TrivialAugment>(inner),
      std::make_shared<RandomErasing>(inner, 0.5),
      std::make_shared<RandomResizedCrop>(inner, 0.2),
      std::make_shared<Solarize>(inner, 0.5)};
  for (size_t c = 0; c < changes.size(); ++c) {
    CAPTURE(c);
    int changed = 0;
    for (uint64_t k = 0; k < 60; ++k) {
      const std::vector<float> a = sample(*changes[c], {9, k});
      CHECK(a == sample(*changes[c], {9, k}));
      for (float value : a) CHECK((value >= 0 && value <= 1));
      if (a != original()) ++changed;
    }
    CHECK(changed >= 15);
  }
}

TEST_CASE("a jitter of strength 0 changes nothing, and hue comes back after a whole circle") {
  const DatasetPtr inner = one_picture();
  CHECK(sample(ColorJitter(inner, {0, 0, 0, 0}), {1, 1}) == original());
  CHECK(sample(ColorJitter(inner, {.p = 0}), {1, 1}) == original());
  // Hue turns about the axis of grey: the largest and the smallest channel keep their values.
  const std::vector<float> turned = sample(ColorJitter(inner, {0, 0, 0, 0.5}), {1, 1});
  const std::vector<float> before = original();
  CHECK(turned != before);
  for (size_t i = 0; i < turned.size(); i += 3) {
    CHECK(std::max({turned[i], turned[i + 1], turned[i + 2]}) ==
          doctest::Approx(std::max({before[i], before[i + 1], before[i + 2]})));
    CHECK(std::min({turned[i], turned[i + 1], turned[i + 2]}) ==
          doctest::Approx(std::min({before[i], before[i + 1], before[i + 2]})));
  }
}

TEST_CASE("brightness scales all values, within its range") {
  const std::vector<float> before = original();
  double least = 9, most = 0;
  for (uint64_t k = 0; k < 200; ++k) {
    const std::vector<float> after = sample(
        ColorJitter(one_picture(), {.brightness = 0.2, .contrast = 0, .saturation = 0, .hue = 0}),
        {2, k});
    const double factor = after[0] / before[0];
    for (size_t i = 0; i < after.size(); ++i)
      CHECK(after[i] == doctest::Approx(std::min(1.0, before[i] * factor)).epsilon(1e-4));
    least = std::min(least, factor);
    most = std::max(most, factor);
  }
  CHECK(least >= 0.8);
  CHECK(least < 0.82);
  CHECK(most <= 1.2);
  CHECK(most > 1.18);
}

TEST_CASE("grey has three equal channels of luminance") {
  const std::vector<float> grey = sample(RandomGrayscale(one_picture(), 1), {1, 1});
  const std::vector<float> before = original();
  for (size_t i = 0; i < grey.size(); i += 3) {
    CHECK(grey[i] ==
          doctest::Approx(0.299 * before[i] + 0.587 * before[i + 1] + 0.114 * before[i + 2]));
    CHECK(grey[i] == grey[i + 1]);
    CHECK(grey[i] == grey[i + 2]);
  }
}

TEST_CASE("a blur keeps the mean about and takes most of the variance") {
  const std::vector<float> before = original();
  const std::vector<float> after = sample(GaussianBlur(one_picture(), 1, 2, 2), {1, 1});
  const auto variance = [](const std::vector<float>& v) {
    double sum = 0;
    for (float x : v) sum += (x - mean(v)) * (x - mean(v));
    return sum / double(v.size());
  };
  CHECK(mean(after) == doctest::Approx(mean(before)).epsilon(0.05));
  CHECK(variance(after) < 0.2 * variance(before));
}

TEST_CASE("RandAugment without strength or count leaves a picture recognizable") {
  CHECK(sample(RandAugment(one_picture(), 0), {1, 1}) == original());
  // At strength 0 only auto-contrast and equalize change anything.
  int same = 0;
  for (uint64_t k = 0; k < 140; ++k)
    if (sample(RandAugment(one_picture(), 1, 0), {4, k}) == original()) ++same;
  CHECK(same > 75);
  CHECK(same < 135);
}

TEST_CASE("erasing blanks one rectangle of 2 to 33 % of the picture") {
  const std::vector<float> before = original();
  for (uint64_t k = 0; k < 40; ++k) {
    const std::vector<float> after = sample(RandomErasing(one_picture(), 1, 0), {5, k});
    int64_t blank = 0, top = kSide, bottom = -1, left = kSide, right = -1;
    for (int64_t i = 0; i < kSide * kSide; ++i) {
      if (after[size_t(3 * i)] == before[size_t(3 * i)]) continue;
      CHECK(after[size_t(3 * i)] == 0);
      ++blank;
      top = std::min(top, i / kSide), bottom = std::max(bottom, i / kSide);
      left = std::min(left, i % kSide), right = std::max(right, i % kSide);
    }
    if (blank == 0) continue;
    CHECK(blank == (bottom - top + 1) * (right - left + 1));
    CHECK(double(blank) / (kSide * kSide) < 0.4);
  }
}

TEST_CASE("solarize turns values of at least one half over, with its probability") {
  const std::vector<float> before = original(), after = sample(Solarize(one_picture(), 1), {1, 1});
  for (size_t i = 0; i < after.size(); ++i)
    CHECK(after[i] == (before[i] >= 0.5f ? 1 - before[i] : before[i]));
  int changed = 0;
  for (uint64_t k = 0; k < 400; ++k)
    if (sample(Solarize(one_picture(), 0.2), {7, k}) != before) ++changed;
  CHECK(changed > 50);
  CHECK(changed < 110);
}

// A value at (y, x) that says where it is.
DatasetPtr slopes() {
  Tensor input = Tensor::empty({1, kSide, kSide, 3});
  for (int64_t y = 0; y < kSide; ++y)
    for (int64_t x = 0; x < kSide; ++x) {
      float* const pixel = input.mut<float>() + (y * kSide + x) * 3;
      pixel[0] = float(y), pixel[1] = float(x), pixel[2] = 1;
    }
  return std::make_shared<MemoryDataset>(input, Tensor::zeros({1}, DType::i64), 1);
}

TEST_CASE("a resized crop shows a part of the allowed area and ratio, enlarged bilinearly") {
  const DatasetPtr inner = slopes();
  double least = 1, most = 0, tallest = 0, widest = 0;
  for (uint64_t k = 0; k < 300; ++k) {
    const std::vector<float> out = sample(RandomResizedCrop(inner, 0.2), {6, k});
    const auto at = [&](int64_t y, int64_t x, int64_t c) {
      return double(out[size_t((y * kSide + x) * 3 + c)]);
    };
    // In the middle of an enlarged slope each step is the part's side over the picture's.
    const int64_t m = kSide / 2;
    const double tall = (at(m, m, 0) - at(m - 1, m, 0)) * kSide,
                 wide = (at(m, m, 1) - at(m, m - 1, 1)) * kSide;
    const double area = tall * wide / double(kSide * kSide), ratio = wide / tall;
    CHECK(std::abs(tall - std::round(tall)) < 1e-3);
    CHECK(std::abs(wide - std::round(wide)) < 1e-3);
    // Sides are rounded to whole pixels, at least 5 of 12.
    CHECK(area > 0.2 * 0.8);
    CHECK((ratio > 0.75 * 0.84 && ratio < 1.19 / 0.75));
    for (int64_t i = 2; i < int64_t(out.size()); i += 3)
      CHECK(out[size_t(i)] == doctest::Approx(1));
    least = std::min(least, area), most = std::max(most, area);
    tallest = std::max(tallest, ratio), widest = std::max(widest, 1 / ratio);
  }
  CHECK(least < 0.3);
  CHECK(most > 0.9);
  CHECK(tallest > 1.2);
  CHECK(widest > 1.2);
}

TEST_CASE("a resized crop takes nothing from beyond its part") {
  // One bright column: where the part does not hold it, nothing of it is seen.
  Tensor input = Tensor::zeros({1, kSide, kSide, 1});
  for (int64_t y = 0; y < kSide; ++y) input.mut<float>()[y * kSide + 5] = 1;
  const auto line = std::make_shared<MemoryDataset>(input, Tensor::zeros({1}, DType::i64), 1);
  int without = 0;
  for (uint64_t k = 0; k < 200; ++k) {
    const std::vector<float> out = sample(RandomResizedCrop(line, 0.1), {8, k});
    const float most = *std::max_element(out.begin(), out.end());
    if (most < 0.4f) {
      CHECK(most == 0);
      ++without;
    }
  }
  CHECK(without > 10);
}

TEST_CASE("a crop of the whole picture is the picture") {
  // An area of 1 and a ratio of 1 fit alone; other draws fall back to the middle, also all of it.
  CHECK(sample(RandomResizedCrop(one_picture(), 1), {1, 2}).size() == kFloats);
  int whole = 0;
  for (uint64_t k = 0; k < 40; ++k)
    if (sample(RandomResizedCrop(one_picture(), 1), {1, k}) == original()) ++whole;
  CHECK(whole > 20);
}

TEST_CASE("changes of pictures refuse what cannot be") {
  const DatasetPtr inner = one_picture();
  CHECK_THROWS_AS(ColorJitter(inner, {.hue = 0.6}), Error);
  CHECK_THROWS_AS(ColorJitter(inner, {.brightness = -1}), Error);
  CHECK_THROWS_AS(ColorJitter(one_picture(1), {}), Error);
  CHECK_THROWS_AS(RandomGrayscale(inner, 1.5), Error);
  CHECK_THROWS_AS(RandomGrayscale(one_picture(1), 0.5), Error);
  CHECK_THROWS_AS(GaussianBlur(inner, 0.5, 0, 1), Error);
  CHECK_THROWS_AS(Solarize(inner, 2), Error);
  CHECK_THROWS_AS(RandomResizedCrop(inner, 0), Error);
  CHECK_THROWS_AS(RandomResizedCrop(inner, 1.1), Error);
  CHECK_THROWS_AS(RandAugment(inner, -1), Error);
  CHECK_THROWS_AS(RandAugment(inner, 2, 31), Error);
  CHECK_THROWS_AS(RandomErasing(inner, -0.1), Error);
}

}  // namespace
}  // namespace frugal::data

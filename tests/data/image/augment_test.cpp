#include "data/image/augment.h"

#include <doctest/doctest.h>

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
      std::make_shared<RandomErasing>(inner, 0.5)};
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

TEST_CASE("changes of pictures refuse what cannot be") {
  const DatasetPtr inner = one_picture();
  CHECK_THROWS_AS(ColorJitter(inner, {.hue = 0.6}), Error);
  CHECK_THROWS_AS(ColorJitter(inner, {.brightness = -1}), Error);
  CHECK_THROWS_AS(ColorJitter(one_picture(1), {}), Error);
  CHECK_THROWS_AS(RandomGrayscale(inner, 1.5), Error);
  CHECK_THROWS_AS(RandomGrayscale(one_picture(1), 0.5), Error);
  CHECK_THROWS_AS(GaussianBlur(inner, 0.5, 0, 1), Error);
  CHECK_THROWS_AS(RandAugment(inner, -1), Error);
  CHECK_THROWS_AS(RandAugment(inner, 2, 31), Error);
  CHECK_THROWS_AS(RandomErasing(inner, -0.1), Error);
}

}  // namespace
}  // namespace frugal::data

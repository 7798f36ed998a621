#include "data/image/mix.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "data/loader.h"
#include "data/memory_dataset.h"

using namespace frugal;
using namespace frugal::data;

namespace {

// Sample i is all i + 1, of class i.
Batch plain_batch(int64_t count, const Shape& sample, int64_t classes) {
  Shape shape{count};
  for (const int64_t extent : sample) shape.push_back(extent);
  Batch batch{Tensor::empty(shape), Tensor::empty({count, classes})};
  const int64_t floats = batch.input.numel() / count;
  for (int64_t i = 0; i < count; ++i)
    std::fill_n(batch.input.mut<float>() + i * floats, floats, static_cast<float>(i + 1));
  return batch;
}

std::vector<int64_t> counting(int64_t count) {
  std::vector<int64_t> labels(static_cast<size_t>(count));
  std::iota(labels.begin(), labels.end(), int64_t{0});
  return labels;
}

}  // namespace

TEST_CASE("mixup fades the sample before each one into it, by one share") {
  const Batch batch = plain_batch(3, {2, 2, 1}, 4);
  mix_samples(batch, counting(3), {1.0, 0, 4}, {5, 0});
  const double share = batch.target.to_vector()[0];
  CHECK(share > 0);
  CHECK(share < 1);
  const std::vector<double> targets{share, 0, 1 - share, 0,         1 - share, share,
                                    0,     0, 0,         1 - share, share,     0};
  for (int64_t i = 0; i < 12; ++i)
    CHECK(batch.target.to_vector()[size_t(i)] == doctest::Approx(targets[size_t(i)]));
  for (int64_t i = 0; i < 12; ++i) {
    const double own = double(i / 4 + 1), other = i < 4 ? 3 : own - 1;
    CHECK(batch.input.to_vector()[size_t(i)] == doctest::Approx(share * own + (1 - share) * other));
  }
}

TEST_CASE("cutmix puts a rectangle of the sample before, and its area is the share") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Batch batch = plain_batch(2, {8, 6, 3}, 2);
    mix_samples(batch, counting(2), {0, 1.0, 2}, {seed, 3});
    int64_t own = 0, top = 8, bottom = -1, left = 6, right = -1, others = 0;
    for (int64_t y = 0; y < 8; ++y)
      for (int64_t x = 0; x < 6; ++x) {
        const float* pixel = batch.input.data<float>() + (y * 6 + x) * 3;
        CHECK(pixel[0] == pixel[2]);
        if (pixel[0] == 1) {
          ++own;
          continue;
        }
        CHECK(pixel[0] == 2);
        ++others;
        top = std::min(top, y), bottom = std::max(bottom, y);
        left = std::min(left, x), right = std::max(right, x);
      }
    if (others > 0) CHECK(others == (bottom - top + 1) * (right - left + 1));
    CHECK(batch.target.data<float>()[0] == doctest::Approx(double(own) / 48));
    CHECK(batch.target.data<float>()[0] + batch.target.data<float>()[1] == doctest::Approx(1));
  }
}

TEST_CASE("with both, some batches are faded and some cut") {
  int faded = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Batch batch = plain_batch(2, {4, 4, 1}, 2);
    mix_samples(batch, counting(2), {1.0, 1.0, 2}, {seed, 0});
    const auto values = batch.input.to_vector();
    faded += std::all_of(values.begin(), values.end(), [](double v) { return v > 1 && v < 2; });
  }
  CHECK(faded > 70);
  CHECK(faded < 130);
}

TEST_CASE("a sample that is mixed with one that does not count does not count") {
  const Batch batch = plain_batch(3, {1, 1, 1}, 3);
  mix_samples(batch, {0, kIgnored, 2}, {1.0, 0, 3}, {1, 0});
  CHECK(batch.target.data<float>()[0] >= 0);
  for (int64_t i = 3; i < 9; ++i) CHECK(batch.target.data<float>()[i] == float(kIgnored));
}

TEST_CASE("draws from Beta have its mean and variance, and end in [0, 1]") {
  for (const double alpha : {0.05, 0.2, 1.0, 4.0}) {
    constexpr int kDraws = 20000;
    double sum = 0, squares = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double draw = draw_beta({uint64_t(i), 9}, alpha);
      CHECK_MESSAGE((draw >= 0 && draw <= 1), draw);
      sum += draw;
      squares += draw * draw;
    }
    const double mean = sum / kDraws, variance = squares / kDraws - mean * mean;
    CHECK(mean == doctest::Approx(0.5).epsilon(0.03));
    CHECK(variance == doctest::Approx(1 / (4 * (2 * alpha + 1))).epsilon(0.05));
  }
  CHECK_THROWS_WITH_AS(draw_beta({}, 0), doctest::Contains("[mix] expected a positive strength"),
                       Error);
}

TEST_CASE("mixed batches depend on seed, epoch and batch, not on threads or on where one begins") {
  std::vector<float> values(20 * 12);
  std::iota(values.begin(), values.end(), 0.0f);
  const auto images = std::make_shared<MemoryDataset>(Tensor::from(values, {20, 2, 3, 2}),
                                                      Tensor::from(counting(20), {20}), 20);
  LoaderOptions options;
  options.batch_size = 6;
  options.seed = 3;
  options.mix = {0.3, 1.0, 25};
  const auto epochs = [&](int threads, bool seeks) {
    options.threads = threads;
    Loader loader(images, options);
    if (seeks) loader.seek({1, 2});
    std::vector<std::vector<double>> all;
    for (int epoch = seeks ? 1 : 0; epoch < 2; ++epoch)
      while (const auto batch = loader.next()) {
        CHECK(batch->floats == FloatTargets::shares);
        CHECK(batch->target.size(1) == 25);
        all.push_back(batch->input.to_vector());
        all.push_back(batch->target.to_vector());
      }
    return all;
  };
  const auto plain = epochs(0, false);
  CHECK(plain == epochs(3, false));
  CHECK(std::vector(plain.begin() + 12, plain.end()) == epochs(1, true));
  CHECK(plain[1] != plain[9]);
}

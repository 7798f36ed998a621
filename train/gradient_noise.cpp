#include "train/gradient_noise.h"

#include <cmath>
#include <utility>

#include "core/error.h"

namespace frugal::train {
namespace {

Estimate mean_of(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (double v : values) mean += v / n;
  for (double v : values) squares += (v - mean) * (v - mean);
  return {mean, std::sqrt(squares / (n - 1) / n)};
}

}  // namespace

GradientNoise::GradientNoise(std::vector<float> exact)
    : exact_(std::move(exact)),
      sums_(kGroups, std::vector<double>(exact_.size(), 0.0)),
      counts_(kGroups, 0) {}

void GradientNoise::add(const std::vector<float>& draw) {
  FRUGAL_ASSERT(draw.size() == exact_.size());
  const auto group = static_cast<size_t>(draws_++ % kGroups);
  std::vector<double>& sum = sums_[group];
  ++counts_[group];
  double square = 0;
  for (size_t i = 0; i < draw.size(); ++i) {
    const double error = static_cast<double>(draw[i]) - static_cast<double>(exact_[i]);
    sum[i] += error;
    square += error * error;
  }
  squares_.push_back(square);
}

Estimate GradientNoise::squared_bias() const {
  FRUGAL_ASSERT(draws_ >= kGroups);
  constexpr double pairs = kGroups * (kGroups - 1) / 2.0, left = pairs - (kGroups - 1);
  double total = 0;
  double of_group[kGroups] = {};  // sums of the products that a group is part of
  for (size_t a = 0; a < kGroups; ++a)
    for (size_t b = 0; b < a; ++b) {
      double product = 0;
      for (size_t i = 0; i < exact_.size(); ++i) product += sums_[a][i] * sums_[b][i];
      product /= static_cast<double>(counts_[a] * counts_[b]);
      total += product, of_group[a] += product, of_group[b] += product;
    }
  // The products share groups, so they are not independent. The jackknife accounts for that.
  double square = 0;
  for (const double sum : of_group) {
    const double deviation = (total - sum) / left - total / pairs;
    square += deviation * deviation * (kGroups - 1) / kGroups;
  }
  return {total / pairs, std::sqrt(square)};
}

Estimate GradientNoise::variance() const {
  const Estimate square = mean_of(squares_);
  const auto n = static_cast<double>(draws_);
  double mean_square = 0;  // |mean error|^2
  for (size_t i = 0; i < exact_.size(); ++i) {
    double sum = 0;
    for (const auto& group : sums_) sum += group[i];
    mean_square += sum / n * (sum / n);
  }
  return {(square.value - mean_square) * n / (n - 1), square.error};
}

}  // namespace frugal::train

// A test of bias over many draws.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace frugal {

// How far the mean of many draws lies from the exact values, in standard errors: squared, averaged
// over the elements. About 1 without bias; it grows with the number of draws under bias. No element
// counts more than 25: a rare rounding that no draw showed leaves a mean with too small an error.
struct Bias {
  explicit Bias(std::vector<double> exact)
      : exact_(std::move(exact)), sum_(exact_.size()), squares_(exact_.size()) {}
  void add(const std::vector<double>& draw) {
    ++draws_;
    for (size_t i = 0; i < draw.size(); ++i) {
      const double error = draw[i] - exact_[i];
      sum_[i] += error;
      squares_[i] += error * error;
    }
  }
  double chi_square() const {
    double total = 0, counted = 0;
    for (size_t i = 0; i < sum_.size(); ++i) {
      const double mean = sum_[i] / draws_, variance = squares_[i] / draws_ - mean * mean;
      if (variance <= 1e-20) continue;
      total += std::min(25.0, mean * mean / (variance / (draws_ - 1)));
      ++counted;
    }
    REQUIRE(counted > 0);
    return total / counted;
  }

 private:
  double draws_ = 0;
  std::vector<double> exact_, sum_, squares_;
};

}  // namespace frugal

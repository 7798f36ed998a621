// How far drawn gradients lie from the exact one: their bias and their variance, with standard
// errors.
#pragma once
#include <cstdint>
#include <vector>

namespace frugal::train {

struct Estimate {
  double value = 0, error = 0;  // error: the standard error of value
};

class GradientNoise {
 public:
  explicit GradientNoise(std::vector<float> exact);
  void add(const std::vector<float>& draw);  // REQUIRES: as long as the exact one

  int64_t draws() const { return draws_; }
  // Mean of |draw - mean of draws|^2. REQUIRES (both): at least kGroups draws.
  Estimate variance() const;
  // |mean of the draws' distribution - exact|^2, unbiased, so negative at times: the mean inner
  // product of the mean errors of different groups of draws.
  Estimate squared_bias() const;

  static constexpr int kGroups = 8;

 private:
  std::vector<float> exact_;
  std::vector<std::vector<double>> sums_;  // the sum of the errors of each group
  std::vector<int64_t> counts_;
  std::vector<double> squares_;  // |error|^2 of each draw
  int64_t draws_ = 0;
};

}  // namespace frugal::train

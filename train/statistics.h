// Small statistics of measurements.
#pragma once
#include <vector>

namespace frugal::train {

double median(std::vector<double> values);  // 0 if empty

// Spearman's: the correlation of ranks, ties sharing their mean rank; 0 if either is constant.
// REQUIRES: equal lengths.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

// Describes the ratios a / b where both are above 0: their median; a tenth of them are below `low`
// and a tenth above `high`.
struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread ratio_spread(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace frugal::train

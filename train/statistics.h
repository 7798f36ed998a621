// Small statistics of measurements.
#pragma once
#include <vector>

namespace frugal::train {

double median(std::vector<double> values);  // 0 if empty

// Spearman's: the correlation of ranks, ties sharing their mean rank; 0 if either is constant.
// REQUIRES: equal lengths.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

// Of a over b, where both are above 0: the median, and what a tenth of them are below and above.
struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread ratio_spread(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace frugal::train

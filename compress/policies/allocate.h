// Bit allocation: each tensor takes exactly one of its options so that the sum of costs is least
// within a bound on bytes, a multiple-choice knapsack.
//
// Dominated options go first. The linear relaxation gives a price per byte, a bound, and the items
// that can leave its choice at all. Those are decided one by one, the largest steps first, over the
// list of partial choices that are not dominated and whose relaxation is below the best known. 2000
// tensors of 16 widths take milliseconds; hundreds that differ by a percent in size and
// sensitivity, which is the hardest, up to a second. The result is a function of the arguments
// alone.
// Ref: Pisinger 1995, "A minimal algorithm for the multiple-choice knapsack problem".
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace frugal::compress {

struct Option {
  double cost = 0;    // 0 to 1e290
  int64_t bytes = 0;  // or any other unit, 0 to 2^44
};

struct Allocation {
  std::vector<int> choice;  // of each item, an index of its options
  double cost = 0;
  int64_t bytes = 0;
  double lower_bound = 0;  // no choice within the budget costs less; infinite if there is none
  bool feasible = true;    // false: `choice` takes the fewest bytes there are, above the budget
};

inline constexpr double kAllocationTolerance = 1e-4;

// The least cost within `budget`: cost <= lower_bound * (1 + tolerance) up to 1e-12, and never more
// than allocate_greedy's. Tolerance 0 gives the optimum and may take long.
// Errors: an item without options; a cost or bytes out of range, naming item and option; more than
// 2^18 items; a tolerance outside [0, 1].
Allocation allocate(std::span<const std::vector<Option>> items, int64_t budget,
                    double tolerance = kAllocationTolerance);

// GACT's published solver: starts at the most bytes, then always takes the step down that costs
// least per byte saved, until the budget holds. lower_bound is 0. Errors: as allocate.
// Ref: Liu et al. 2022 (GACT), section 4.2.
Allocation allocate_greedy(std::span<const std::vector<Option>> items, int64_t budget);

// Relative variance of a rounding to 2^b - 1 steps, S(b) = 1 / (2^b - 1)^2.
// Ref: Liu et al. 2022 (GACT), section 4.2; Chen et al. 2021 (ActNN), section 4.2.
double step_variance(int bits);

struct BitItem {
  double sensitivity = 0;  // c: the cost of b bits is c S(b)
  int64_t elements = 0;
  int64_t overhead_bits = 0;  // taken whatever the width: metadata
};

struct BitOptions {
  std::vector<int> widths = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  std::function<double(int)> variance = step_variance;  // S
  double tolerance = kAllocationTolerance;
  bool greedy = false;  // allocate_greedy instead of allocate
};

struct BitAllocation {
  std::vector<int> bits;  // of each item
  double cost = 0;        // sum of c S(b)
  int64_t total_bits = 0;
  double lower_bound = 0;
  bool feasible = true;
};

// min sum c S(b) with sum (elements b + overhead_bits) <= average sum elements. GACT's problem is
// the one without overhead. Errors: as allocate; no width or one outside 1..32; an average that is
// not positive and finite; elements outside 0 to 2^39.
BitAllocation allocate_bits(std::span<const BitItem> items, double average,
                            const BitOptions& options = {});

}  // namespace frugal::compress

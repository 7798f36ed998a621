// The exact part of compress/policies/allocate.h: from a good choice to one within the tolerance.
// Internal.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace frugal::compress::knapsack {

// More than what sums of some thousand costs lose to rounding, as a share.
inline constexpr double kRounding = 0x1p-42;

struct Point {
  double cost;
  int64_t bytes;
  int option;
};

// An item's undominated options: bytes rise, costs fall.
using Frontier = std::vector<Point>;

// A step up along the lower convex hull of an item's frontier.
struct Step {
  double gain;
  size_t item;
  int from, to;
};

// What each item takes, as points of its frontier.
struct Selection {
  std::vector<int> point;
  int64_t bytes = 0;
};

// Takes the first point of each.
Selection smallest(const std::vector<Frontier>& items);

// Improves on `selection`, which costs `cost`, until it costs at most 1 + tolerance times what is
// returned: a lower bound, up to rounding. `steps`: of all items, in falling order of gain.
// REQUIRES: `selection` keeps the budget.
double search(const std::vector<Frontier>& items, std::vector<Step> steps, int64_t budget,
              double tolerance, double cost, Selection& selection);

}  // namespace frugal::compress::knapsack

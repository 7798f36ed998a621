#include "compress/policies/allocate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>
#include <tuple>

#include "compress/policies/allocate_search.h"
#include "core/error.h"

namespace frugal::compress {

using namespace knapsack;

namespace {

constexpr double kMaxCost = 1e290;
constexpr int64_t kMaxBytes = int64_t{1} << 44;
constexpr size_t kMaxItems = size_t{1} << 18;  // so that no sum of bytes overflows
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Frontier frontier_of(const std::vector<Option>& options, size_t item) {
  FRUGAL_CHECK(!options.empty(), "[allocate] expected options for item {}, got none", item);
  Frontier points;
  points.reserve(options.size());
  for (size_t k = 0; k < options.size(); ++k) {
    const Option& option = options[k];
    FRUGAL_CHECK(option.cost >= 0 && option.cost <= kMaxCost,
                 "[allocate] expected a cost of 0 to 1e290, got {} in option {} of item {}",
                 option.cost, k, item);
    FRUGAL_CHECK(option.bytes >= 0 && option.bytes <= kMaxBytes,
                 "[allocate] expected bytes of 0 to 2^44, got {} in option {} of item {}",
                 option.bytes, k, item);
    points.push_back({option.cost, option.bytes, static_cast<int>(k)});
  }
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    return std::tie(a.bytes, a.cost, a.option) < std::tie(b.bytes, b.cost, b.option);
  });
  size_t kept = 1;
  for (size_t k = 1; k < points.size(); ++k)
    if (points[k].cost < points[kept - 1].cost) points[kept++] = points[k];
  points.resize(kept);
  return points;
}

std::vector<Frontier> frontiers_of(std::span<const std::vector<Option>> items) {
  FRUGAL_CHECK(items.size() <= kMaxItems, "[allocate] expected at most {} items, got {}", kMaxItems,
               items.size());
  std::vector<Frontier> all;
  all.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) all.push_back(frontier_of(items[i], i));
  return all;
}

double gain(const Point& from, const Point& to) {  // per byte
  return (from.cost - to.cost) / static_cast<double>(to.bytes - from.bytes);
}

Allocation to_allocation(const std::vector<Frontier>& items, const Selection& selection,
                         int64_t budget, double lower_bound) {
  Allocation result;
  result.choice.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const Point& point = items[i][static_cast<size_t>(selection.point[i])];
    result.choice.push_back(point.option);
    result.cost += point.cost;
    result.bytes += point.bytes;
  }
  result.feasible = result.bytes <= budget;
  result.lower_bound = result.feasible ? std::min(lower_bound, result.cost) : kInfinity;
  return result;
}

double cost_of(const std::vector<Frontier>& items, const Selection& selection) {
  double cost = 0;
  for (size_t i = 0; i < items.size(); ++i)
    cost += items[i][static_cast<size_t>(selection.point[i])].cost;
  return cost;
}

// What every choice's bytes differ by is a multiple of this; 0 if nothing differs.
int64_t grain_of_bytes(const std::vector<Frontier>& items) {
  int64_t grain = 0;
  for (const Frontier& item : items)
    for (const Point& point : item) grain = std::gcd(grain, point.bytes - item.front().bytes);
  return grain;
}

Selection greedy(const std::vector<Frontier>& items, int64_t budget) {
  struct Down {
    double loss;  // per byte saved
    size_t item;
    bool operator<(const Down& other) const {  // the top of the heap is the least loss
      return std::tie(loss, item) > std::tie(other.loss, other.item);
    }
  };
  Selection selection{std::vector<int>(items.size()), 0};
  std::priority_queue<Down> heap;
  const auto offer = [&](size_t i) {
    const auto at = static_cast<size_t>(selection.point[i]);
    if (at > 0) heap.push({gain(items[i][at - 1], items[i][at]), i});
  };
  for (size_t i = 0; i < items.size(); ++i) {
    selection.point[i] = static_cast<int>(items[i].size()) - 1;
    selection.bytes += items[i].back().bytes;
    offer(i);
  }
  while (selection.bytes > budget && !heap.empty()) {
    const size_t i = heap.top().item;
    heap.pop();
    const auto at = static_cast<size_t>(selection.point[i]--);
    selection.bytes -= items[i][at].bytes - items[i][at - 1].bytes;
    offer(i);
  }
  return selection;
}

// Of all items, the greatest gain first. Those of one item are in order.
std::vector<Step> hull_steps(const std::vector<Frontier>& items) {
  std::vector<Step> steps;
  std::vector<std::pair<size_t, double>> hull;  // points and the gain of the step that led there
  for (size_t i = 0; i < items.size(); ++i) {
    const Frontier& item = items[i];
    hull.assign(1, {0, kInfinity});
    for (size_t k = 1; k < item.size(); ++k) {
      // Gains are compared as they are kept, so that they fall along the hull whatever the
      // rounding.
      while (hull.size() > 1 && gain(item[hull.back().first], item[k]) >= hull.back().second)
        hull.pop_back();
      hull.emplace_back(k, gain(item[hull.back().first], item[k]));
    }
    for (size_t k = 1; k < hull.size(); ++k)
      steps.push_back({hull[k].second, i, static_cast<int>(hull[k - 1].first),
                       static_cast<int>(hull[k].first)});
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.gain > b.gain; });
  return steps;
}

// Takes every step that fits, the best first.
void fill(const std::vector<Frontier>& items, std::span<const Step> steps, int64_t budget,
          Selection& selection) {
  for (const Step& step : steps) {
    int& at = selection.point[step.item];
    if (step.to <= at) continue;
    const Frontier& item = items[step.item];
    const int64_t more =
        item[static_cast<size_t>(step.to)].bytes - item[static_cast<size_t>(at)].bytes;
    if (selection.bytes + more > budget) continue;
    at = step.to;
    selection.bytes += more;
  }
}

}  // namespace

Allocation allocate(std::span<const std::vector<Option>> items, int64_t budget, double tolerance) {
  FRUGAL_CHECK(tolerance >= 0 && tolerance <= 1,
               "[allocate] expected a tolerance in [0, 1], got {}", tolerance);
  const std::vector<Frontier> points = frontiers_of(items);
  const Selection least = smallest(points);
  if (least.bytes > budget) return to_allocation(points, least, budget, kInfinity);
  // Nothing can use the last part of a grain: without it the relaxation is often exact.
  if (const int64_t grain = grain_of_bytes(points); grain > 0)
    budget -= (budget - least.bytes) % grain;
  std::vector<Step> steps = hull_steps(points);
  Selection best = least, other = greedy(points, budget);
  fill(points, steps, budget, best);
  fill(points, steps, budget, other);
  if (cost_of(points, other) < cost_of(points, best)) best = std::move(other);
  Selection found = best;
  const double bound =
      search(points, std::move(steps), budget, tolerance, cost_of(points, best), found);
  if (cost_of(points, found) < cost_of(points, best)) best = std::move(found);
  return to_allocation(points, best, budget, bound);
}

Allocation allocate_greedy(std::span<const std::vector<Option>> items, int64_t budget) {
  const std::vector<Frontier> points = frontiers_of(items);
  return to_allocation(points, greedy(points, budget), budget, 0);
}

double step_variance(int bits) {
  const double steps = std::exp2(bits) - 1;
  return 1 / (steps * steps);
}

BitAllocation allocate_bits(std::span<const BitItem> items, double average,
                            const BitOptions& options) {
  FRUGAL_CHECK(!options.widths.empty(), "[allocate] expected at least one width, got none");
  for (int width : options.widths)
    FRUGAL_CHECK(width >= 1 && width <= 32, "[allocate] expected widths of 1 to 32, got {}", width);
  FRUGAL_CHECK(average > 0 && std::isfinite(average),
               "[allocate] expected a positive average of bits, got {}", average);
  std::vector<std::vector<Option>> choices(items.size());
  double elements = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const BitItem& item = items[i];
    FRUGAL_CHECK(item.elements >= 0 && item.elements <= kMaxBytes / 32,
                 "[allocate] expected 0 to 2^39 elements, got {} in item {}", item.elements, i);
    elements += static_cast<double>(item.elements);
    for (int width : options.widths)
      choices[i].push_back(
          {item.sensitivity * options.variance(width), item.elements * width + item.overhead_bits});
  }
  // An average such as 2.3 has no exact double: keep the bit that it loses.
  const double room = std::floor(average * elements * (1 + 1e-12));
  const auto budget = static_cast<int64_t>(std::min(room, 0x1p62));
  const Allocation found = options.greedy ? allocate_greedy(choices, budget)
                                          : allocate(choices, budget, options.tolerance);
  BitAllocation result{{}, found.cost, found.bytes, found.lower_bound, found.feasible};
  result.bits.reserve(items.size());
  for (int choice : found.choice)
    result.bits.push_back(options.widths[static_cast<size_t>(choice)]);
  return result;
}

}  // namespace frugal::compress

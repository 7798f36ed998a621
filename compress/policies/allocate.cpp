#include "compress/policies/allocate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>
#include <tuple>

#include "core/error.h"

namespace frugal::compress {
namespace {

constexpr double kMaxCost = 1e290;
constexpr int64_t kMaxBytes = int64_t{1} << 44;
constexpr size_t kMaxItems = size_t{1} << 18;  // few enough that no sum of bytes overflows
constexpr double kInfiniteCost = std::numeric_limits<double>::infinity();

// A relative error above the rounding error of sums of some thousand costs.
constexpr double kRounding = 0x1p-42;

struct Point {
  double cost;
  int64_t bytes;
  int option;
};

// The options of an item that no other option beats. Bytes rise and costs fall along the list.
using Frontier = std::vector<Point>;

// A step up along the lower convex hull of an item's frontier.
struct HullStep {
  double gain;
  size_t item;
  int from, to;
};

// The chosen point on the frontier of each item.
struct Selection {
  std::vector<int> point;
  int64_t bytes = 0;
};

// Chooses the first point of each item.
Selection smallest(const std::vector<Frontier>& items) {
  Selection selection{std::vector<int>(items.size(), 0), 0};
  for (const Frontier& item : items) selection.bytes += item.front().bytes;
  return selection;
}

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
  result.lower_bound = result.feasible ? std::min(lower_bound, result.cost) : kInfiniteCost;
  return result;
}

double cost_of(const std::vector<Frontier>& items, const Selection& selection) {
  double cost = 0;
  for (size_t i = 0; i < items.size(); ++i)
    cost += items[i][static_cast<size_t>(selection.point[i])].cost;
  return cost;
}

// The bytes of two choices differ by a multiple of this number. It is 0 if all choices have equal
// bytes.
int64_t grain_of_bytes(const std::vector<Frontier>& items) {
  int64_t grain = 0;
  for (const Frontier& item : items)
    for (const Point& point : item) grain = std::gcd(grain, point.bytes - item.front().bytes);
  return grain;
}

// The steps of all items, the greatest gain first. The steps of one item stay in their order.
std::vector<HullStep> hull_steps(const std::vector<Frontier>& items) {
  std::vector<HullStep> steps;
  std::vector<std::pair<size_t, double>> hull;  // points and the gain of the step that led there
  for (size_t i = 0; i < items.size(); ++i) {
    const Frontier& item = items[i];
    hull.assign(1, {0, kInfiniteCost});
    for (size_t k = 1; k < item.size(); ++k) {
      // The comparison uses the rounded gains that are stored, so that these fall along the hull.
      while (hull.size() > 1 && gain(item[hull.back().first], item[k]) >= hull.back().second)
        hull.pop_back();
      hull.emplace_back(k, gain(item[hull.back().first], item[k]));
    }
    for (size_t k = 1; k < hull.size(); ++k)
      steps.push_back({hull[k].second, i, static_cast<int>(hull[k - 1].first),
                       static_cast<int>(hull[k].first)});
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const HullStep& a, const HullStep& b) { return a.gain > b.gain; });
  return steps;
}

// Takes the steps in order, and skips a step that does not fit.
void fill(const std::vector<Frontier>& items, std::span<const HullStep> steps, int64_t budget,
          Selection& selection) {
  for (const HullStep& step : steps) {
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

// A list of partial choices that is longer than this is thinned.
constexpr size_t kLong = 2048;

// The linear relaxation for the items that are not decided yet: it takes their steps in order, and
// a part of the last one.
class Relaxation {
 public:
  struct Value {
    double bound = kInfiniteCost;  // no choice costs less
    double cost = kInfiniteCost;   // the cost after the whole steps alone
    size_t steps = 0;              // the number of whole steps
  };

  // Takes the steps of the items that are `open`. `least` is the cost of these items with all steps
  // taken.
  void set(const std::vector<Frontier>& items, std::span<const HullStep> steps,
           const std::vector<bool>& open, double least) {
    bytes_.assign(1, 0);
    drops_.clear();
    for (const HullStep& step : steps) {
      if (!open[step.item]) continue;
      const Point& from = items[step.item][static_cast<size_t>(step.from)];
      const Point& to = items[step.item][static_cast<size_t>(step.to)];
      bytes_.push_back(bytes_.back() + to.bytes - from.bytes);
      drops_.push_back(from.cost - to.cost);
    }
    // Sums from the end, where costs are small, so that no small number is a difference of large
    // ones.
    costs_.resize(bytes_.size());
    costs_.back() = least;
    for (size_t k = drops_.size(); k-- > 0;) costs_[k] = costs_[k + 1] + drops_[k];
  }

  // The value for `bytes` more bytes than the smallest points take. REQUIRES: bytes >= 0.
  Value at(int64_t bytes) const {
    const auto next = std::upper_bound(bytes_.begin(), bytes_.end(), bytes);
    Value value;
    value.steps = static_cast<size_t>(next - bytes_.begin()) - 1;
    value.bound = value.cost = costs_[value.steps];
    if (next != bytes_.end()) {
      const double missing =
          static_cast<double>(*next - bytes) / static_cast<double>(*next - bytes_[value.steps]);
      value.bound = costs_[value.steps + 1] + drops_[value.steps] * missing;
    }
    return value;
  }

 private:
  std::vector<int64_t> bytes_;  // the bytes of the first k steps
  std::vector<double> drops_, costs_;
};

// A search that decides the items one by one.
class Search {
 public:
  Search(const std::vector<Frontier>& items, std::vector<HullStep> steps, int64_t budget,
         double tolerance)
      : items_(items), steps_(std::move(steps)), budget_(budget), share_(0.4 * tolerance) {}

  // Improves `selection`, which costs `cost` and keeps the budget. Returns a lower bound of the
  // cost, up to rounding. At the end the selection costs at most 1 + tolerance times this bound.
  double run(Selection& selection, double cost) {
    improve(cost, {});
    start();
    for (stage_ = 0; stage_ < order_.size() && !states_.empty(); ++stage_) {
      decide();
      thin();
      std::vector<Link> links;
      links.reserve(states_.size());
      for (const State& state : states_) links.push_back(state.link);
      links_.push_back(std::move(links));
    }
    if (found_.any) selection = trace();
    return std::max((std::min(best_, pruned_) - slop_) * (1 - kRounding), 0.0);
  }

 private:
  struct Link {
    uint32_t parent = 0;  // its place in the list of the stage before
    int point = 0;
  };
  struct State {  // a choice for the items decided so far
    int64_t bytes;
    double cost, bound;
    Link link;
  };
  struct Totals {
    int64_t bytes = 0;  // bytes at the smallest points
    double cost = 0;    // cost at the largest points
  };
  struct Found {
    bool any = false;
    size_t decided = 0;  // the number of items that are decided
    Link link{};
    size_t steps = 0;  // the number of whole steps of the other items
  };

  void start() {
    base_ = smallest(items_);
    double largest = 0;
    for (const Frontier& item : items_) largest += item.back().cost;
    open_.assign(items_.size(), true);
    rest_.set(items_, steps_, open_, largest);
    const Relaxation::Value root = rest_.at(budget_ - base_.bytes);
    if (prune(root.bound) || root.steps == steps_.size()) return;
    const double price = steps_[root.steps].gain;
    // The bytes of the item's steps next to the price: the last one before it or the first one
    // after it, whichever is larger.
    std::vector<int64_t> size(items_.size(), 0);
    for (size_t k = 0; k < steps_.size(); ++k) {
      const HullStep& step = steps_[k];
      const Frontier& item = items_[step.item];
      const int64_t more =
          item[static_cast<size_t>(step.to)].bytes - item[static_cast<size_t>(step.from)].bytes;
      if (k < root.steps) {
        base_.point[step.item] = step.to;
        base_.bytes += more;
        size[step.item] = more;
      } else if (step.from == base_.point[step.item]) {
        size[step.item] = std::max(size[step.item], more);
      }
    }
    State state{0, 0, root.bound, {}};
    for (size_t i = 0; i < items_.size(); ++i) {
      const Point& base = items_[i][static_cast<size_t>(base_.point[i])];
      if (!prune(root.bound + loss(i, price))) {
        order_.push_back(i);
        continue;
      }
      open_[i] = false;
      state.bytes += base.bytes;
      state.cost += base.cost;
    }
    states_.push_back(state);
    // Decides the items with the largest steps first. The small steps that are left then fill the
    // budget well, so their relaxation is nearly exact. Similar items are neighbours.
    std::stable_sort(order_.begin(), order_.end(),
                     [&](size_t a, size_t b) { return size[a] > size[b]; });
    std::erase_if(steps_, [&](const HullStep& step) { return !open_[step.item]; });
    after_.resize(order_.size() + 1);
    for (size_t k = order_.size(); k-- > 0;) {
      const Frontier& item = items_[order_[k]];
      after_[k] = {after_[k + 1].bytes + item.front().bytes, after_[k + 1].cost + item.back().cost};
    }
  }

  // The least that the relaxation grows if the item takes another point than the base has.
  double loss(size_t i, double price) const {
    const Frontier& item = items_[i];
    const auto at = static_cast<size_t>(base_.point[i]);
    double least = kInfiniteCost;
    for (size_t k = 0; k < item.size(); ++k) {
      if (k == at) continue;
      const double paid = price * static_cast<double>(item[k].bytes - item[at].bytes);
      const double rounding = kRounding * (item[k].cost + item[at].cost + std::abs(paid));
      least = std::min(least, item[k].cost - item[at].cost + paid - rounding);
    }
    return least;
  }

  void improve(double cost, const Found& found) {
    best_ = cost;
    found_ = found;
    threshold_ = cost / (1 + share_) * (1 - 2 * kRounding);  // bounds that tie with it do not count
  }

  bool prune(double bound) {
    bound *= 1 - kRounding;
    if (bound < threshold_) return false;
    pruned_ = std::min(pruned_, bound);
    return true;
  }

  void decide() {
    const Frontier& item = items_[order_[stage_]];
    open_[order_[stage_]] = false;
    const Totals after = after_[stage_ + 1];
    rest_.set(items_, steps_, open_, after.cost);
    next_.clear();
    for (size_t s = 0; s < states_.size(); ++s)
      for (size_t k = 0; k < item.size(); ++k) {
        const int64_t bytes = states_[s].bytes + item[k].bytes;
        const int64_t left = budget_ - bytes - after.bytes;
        if (left < 0) break;
        const double cost = states_[s].cost + item[k].cost;
        const Relaxation::Value value = rest_.at(left);
        const Link link{static_cast<uint32_t>(s), static_cast<int>(k)};
        if (cost + value.cost < best_)
          improve(cost + value.cost, {true, stage_ + 1, link, value.steps});
        if (!prune(cost + value.bound)) next_.push_back({bytes, cost, cost + value.bound, link});
      }
    std::swap(states_, next_);
  }

  // Drops dominated states. From a long list it also drops a state if another one costs nearly as
  // little: the difference is a share of the tolerance.
  void thin() {
    std::sort(states_.begin(), states_.end(), [](const State& a, const State& b) {
      return std::tie(a.bytes, a.cost, a.link.parent, a.link.point) <
             std::tie(b.bytes, b.cost, b.link.parent, b.link.point);
    });
    double least = std::min(best_, pruned_);
    size_t kept = 0;
    for (const State& state : states_) {
      if (kept > 0 && state.cost >= states_[kept - 1].cost) continue;
      if (prune(state.bound)) continue;
      least = std::min(least, state.bound);
      states_[kept++] = state;
    }
    states_.resize(kept);
    const double left = share_ * (least - slop_) - slop_;
    if (kept <= kLong || !(left > 0)) return;
    const double step = left / static_cast<double>(order_.size() - stage_);
    kept = 1;
    for (size_t s = 1; s < states_.size(); ++s)
      if (states_[s].cost < states_[kept - 1].cost - step) states_[kept++] = states_[s];
    states_.resize(kept);
    slop_ += step;
  }

  // The best choice: the base's points for fixed items, the decisions that led to the best state,
  // and the whole steps for the other items.
  Selection trace() const {
    Selection selection = base_;
    std::vector<bool> open(items_.size(), false);
    for (size_t stage = found_.decided; stage < order_.size(); ++stage) {
      open[order_[stage]] = true;
      selection.point[order_[stage]] = 0;
    }
    Link link = found_.link;
    for (size_t stage = found_.decided; stage-- > 0;) {
      selection.point[order_[stage]] = link.point;
      if (stage > 0) link = links_[stage - 1][link.parent];
    }
    size_t left = found_.steps;
    for (size_t k = 0; left > 0; ++k) {
      if (!open[steps_[k].item]) continue;
      selection.point[steps_[k].item] = steps_[k].to;
      --left;
    }
    selection.bytes = 0;
    for (size_t i = 0; i < items_.size(); ++i)
      selection.bytes += items_[i][static_cast<size_t>(selection.point[i])].bytes;
    return selection;
  }

  const std::vector<Frontier>& items_;
  std::vector<HullStep> steps_;
  int64_t budget_;
  double share_;               // what pruning and thinning may each use of the tolerance
  Selection base_;             // the whole steps of the relaxation
  std::vector<size_t> order_;  // the items that may leave the base
  std::vector<Totals> after_;  // the totals of the items that are decided from a stage on
  std::vector<bool> open_;     // items not decided yet
  Relaxation rest_;
  std::vector<State> states_, next_;
  std::vector<std::vector<Link>> links_;  // the links of each stage's states
  size_t stage_ = 0;
  double best_ = 0, threshold_ = 0;
  double pruned_ = kInfiniteCost;  // the least bound of what was left out
  double slop_ = 0;                // what thinning may have cost
  Found found_;
};

}  // namespace

Allocation allocate(std::span<const std::vector<Option>> items, int64_t budget, double tolerance) {
  FRUGAL_CHECK(tolerance >= 0 && tolerance <= 1,
               "[allocate] expected a tolerance in [0, 1], got {}", tolerance);
  const std::vector<Frontier> points = frontiers_of(items);
  const Selection least = smallest(points);
  if (least.bytes > budget) return to_allocation(points, least, budget, kInfiniteCost);
  // No choice can use a part of a grain. Without that part of the budget the relaxation is often
  // exact.
  if (const int64_t grain = grain_of_bytes(points); grain > 0)
    budget -= (budget - least.bytes) % grain;
  std::vector<HullStep> steps = hull_steps(points);
  Selection best = least;
  fill(points, steps, budget, best);
  Selection found = best;
  const double bound =
      Search(points, std::move(steps), budget, tolerance).run(found, cost_of(points, best));
  if (cost_of(points, found) < cost_of(points, best)) best = std::move(found);
  return to_allocation(points, best, budget, bound);
}

Allocation allocate_greedy(std::span<const std::vector<Option>> items, int64_t budget) {
  const std::vector<Frontier> points = frontiers_of(items);
  Selection found;
  using Down = std::pair<double, size_t>;  // cost per byte saved, item
  std::priority_queue<Down, std::vector<Down>, std::greater<>> steps;
  const auto offer = [&](size_t i) {
    const auto at = static_cast<size_t>(found.point[i]);
    if (at > 0) steps.emplace(gain(points[i][at - 1], points[i][at]), i);
  };
  for (const Frontier& item : points) {
    found.point.push_back(static_cast<int>(item.size()) - 1);
    found.bytes += item.back().bytes;
  }
  for (size_t i = 0; i < points.size(); ++i) offer(i);
  for (; found.bytes > budget && !steps.empty();) {
    const size_t i = steps.top().second;
    steps.pop();
    const auto at = static_cast<size_t>(found.point[i]--);
    found.bytes -= points[i][at].bytes - points[i][at - 1].bytes;
    offer(i);
  }
  return to_allocation(points, found, budget, 0);
}

double step_variance(int bits) {
  const double steps = std::exp2(bits) - 1;
  return 1 / (steps * steps);
}

}  // namespace frugal::compress

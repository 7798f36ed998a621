#include "compress/policies/allocate_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>

namespace frugal::compress::knapsack {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Lists of partial choices are thinned above this length.
constexpr size_t kLong = 2048;

// The linear relaxation of the items that are not decided yet: steps in order, the last in part.
class Relaxation {
 public:
  struct Value {
    double bound = kInfinity;  // nothing costs less
    double cost = kInfinity;   // of the whole steps alone
    size_t steps = 0;          // so many
  };

  // Of the steps of items with `open`; `least` is what those items cost with all steps taken.
  void set(const std::vector<Frontier>& items, std::span<const Step> steps,
           const std::vector<bool>& open, double least) {
    bytes_.assign(1, 0);
    drops_.clear();
    for (const Step& step : steps) {
      if (!open[step.item]) continue;
      const Point& from = items[step.item][static_cast<size_t>(step.from)];
      const Point& to = items[step.item][static_cast<size_t>(step.to)];
      bytes_.push_back(bytes_.back() + to.bytes - from.bytes);
      drops_.push_back(from.cost - to.cost);
    }
    // Summed from the end, where costs are small: no difference of large numbers.
    costs_.resize(bytes_.size());
    costs_.back() = least;
    for (size_t k = drops_.size(); k-- > 0;) costs_[k] = costs_[k + 1] + drops_[k];
  }

  // With so many bytes, at least 0, above those of the smallest points.
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
  std::vector<int64_t> bytes_;  // of the first k steps
  std::vector<double> drops_, costs_;
};

// Decides items one by one.
class Search {
 public:
  Search(const std::vector<Frontier>& items, std::vector<Step> steps, int64_t budget,
         double tolerance)
      : items_(items), steps_(std::move(steps)), budget_(budget), share_(0.4 * tolerance) {}

  // Improves on `selection`, whose cost is `cost`; returns a lower bound.
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
    uint32_t parent = 0;  // in the list of the stage before
    int point = 0;
  };
  struct State {  // a choice for the items decided so far
    int64_t bytes;
    double cost, bound;
    Link link;
  };
  struct Totals {
    int64_t bytes = 0;  // at the smallest points
    double cost = 0;    // at the largest
  };
  struct Found {
    bool any = false;
    size_t decided = 0;  // items
    Link link{};
    size_t steps = 0;  // of the others
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
    std::vector<int64_t> size(items_.size(), 0);  // of the item's step before the price or after it
    for (size_t k = 0; k < steps_.size(); ++k) {
      const Step& step = steps_[k];
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
    // The largest steps first: what is left then fills the budget well, and its relaxation is
    // nearly exact. Alike items side by side.
    std::stable_sort(order_.begin(), order_.end(),
                     [&](size_t a, size_t b) { return size[a] > size[b]; });
    std::erase_if(steps_, [&](const Step& step) { return !open_[step.item]; });
    after_.resize(order_.size() + 1);
    for (size_t k = order_.size(); k-- > 0;) {
      const Frontier& item = items_[order_[k]];
      after_[k] = {after_[k + 1].bytes + item.front().bytes, after_[k + 1].cost + item.back().cost};
    }
  }

  // What any other point of the item than the base's adds to the relaxation, at least.
  double loss(size_t i, double price) const {
    const Frontier& item = items_[i];
    const auto at = static_cast<size_t>(base_.point[i]);
    double least = kInfinity;
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

  // Drops dominated states, then, in a long list, those that another within a share of the
  // tolerance stands for.
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

  // The best choice: the base of fixed items, what led to it, and the whole steps of the rest.
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
  std::vector<Step> steps_;
  int64_t budget_;
  double share_;               // of the tolerance, for pruning and for thinning each
  Selection base_;             // the whole steps of the relaxation
  std::vector<size_t> order_;  // the items that may leave the base
  std::vector<Totals> after_;  // of those from a stage on
  std::vector<bool> open_;     // items not decided yet
  Relaxation rest_;
  std::vector<State> states_, next_;
  std::vector<std::vector<Link>> links_;  // of each stage's states
  size_t stage_ = 0;
  double best_ = 0, threshold_ = 0;
  double pruned_ = kInfinity;  // the least bound of what was left out
  double slop_ = 0;            // what thinning may have cost
  Found found_;
};

}  // namespace

Selection smallest(const std::vector<Frontier>& items) {
  Selection selection{std::vector<int>(items.size(), 0), 0};
  for (const Frontier& item : items) selection.bytes += item.front().bytes;
  return selection;
}

double search(const std::vector<Frontier>& items, std::vector<Step> steps, int64_t budget,
              double tolerance, double cost, Selection& selection) {
  return Search(items, std::move(steps), budget, tolerance).run(selection, cost);
}

}  // namespace frugal::compress::knapsack

#include "compress/policies/allocate.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/rng.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

using Items = std::vector<std::vector<Option>>;

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  double real() { return static_cast<double>(uniform({seed_, 0}, at_++)); }  // [0, 1)
  int64_t whole(int64_t below) {
    return std::min(static_cast<int64_t>(real() * static_cast<double>(below)), below - 1);
  }

 private:
  uint64_t seed_, at_ = 0;
};

// The least cost within the budget; infinite if there is none.
double brute_force(const Items& items, int64_t budget, size_t from = 0) {
  if (budget < 0) return std::numeric_limits<double>::infinity();
  if (from == items.size()) return 0;
  double best = std::numeric_limits<double>::infinity();
  for (const Option& option : items[from])
    best = std::min(best, option.cost + brute_force(items, budget - option.bytes, from + 1));
  return best;
}

void check_sums(const Items& items, const Allocation& found, int64_t budget) {
  REQUIRE(found.choice.size() == items.size());
  double cost = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    REQUIRE(found.choice[i] >= 0);
    REQUIRE(static_cast<size_t>(found.choice[i]) < items[i].size());
    const Option& option = items[i][static_cast<size_t>(found.choice[i])];
    cost += option.cost;
    bytes += option.bytes;
  }
  CHECK(found.cost == doctest::Approx(cost));
  CHECK(found.bytes == bytes);
  CHECK(found.feasible == (bytes <= budget));
}

// Costs of any kind and bytes in no order.
Items any_items(Draws& draws, int64_t most_items, int64_t most_options) {
  Items items(static_cast<size_t>(draws.whole(most_items) + 1));
  for (auto& item : items) {
    const double scale = std::exp(8 * draws.real() - 4);
    for (int64_t k = draws.whole(most_options) + 1; k > 0; --k)
      item.push_back({draws.real() < 0.1 ? 0 : scale * draws.real(), draws.whole(30)});
  }
  return items;
}

struct Tensors {
  Items items;  // c S(b) and bits, for 1 to 16 bits
  int64_t elements = 0;
};

// Sizes and sensitivities of every range, which `change` may set. `alike` of them are the same.
template <class Change>
Tensors tensors(Draws& draws, int64_t count, double range, int64_t alike, const Change& change) {
  Tensors all;
  while (static_cast<int64_t>(all.items.size()) < count) {
    double sensitivity = std::exp(range * (draws.real() - 0.5));
    int64_t elements = draws.whole(100000) + 1;
    const int64_t overhead = draws.whole(1000);
    change(sensitivity, elements);
    std::vector<Option> options;
    for (int bits = 1; bits <= 16; ++bits)
      options.push_back({sensitivity * step_variance(bits), elements * bits + overhead});
    for (int64_t k = 0; k < alike; ++k) {
      all.items.push_back(options);
      all.elements += elements;
    }
  }
  return all;
}

int64_t least_bytes(const Items& items) {
  int64_t sum = 0;
  for (const auto& item : items) {
    int64_t least = item[0].bytes;
    for (const Option& option : item) least = std::min(least, option.bytes);
    sum += least;
  }
  return sum;
}

}  // namespace

TEST_CASE("allocate equals brute force and its bound lies below") {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    Draws draws(seed);
    const Items items = any_items(draws, 6, 5);
    const int64_t least = least_bytes(items);
    const int64_t budget = least + draws.whole(static_cast<int64_t>(items.size()) * 25 + 1);
    const double optimum = brute_force(items, budget);
    for (double tolerance : {0.0, 1e-4, 0.1, 1.0}) {
      const Allocation found = allocate(items, budget, tolerance);
      check_sums(items, found, budget);
      CHECK(found.feasible);
      CHECK(found.cost >= optimum * (1 - 1e-12));
      CHECK(found.cost <= optimum * (1 + tolerance) * (1 + 1e-12));
      CHECK(found.lower_bound <= optimum * (1 + 1e-12));
      CHECK(found.cost <= found.lower_bound * (1 + tolerance) * (1 + 2e-12));
    }
    const Allocation short_of = allocate(items, least - 1);
    CHECK(!short_of.feasible);
    CHECK(short_of.bytes == least);
    check_sums(items, short_of, least - 1);
  }
}

TEST_CASE("a case worked by hand, where greedy steps and the relaxation are both wrong") {
  // Savings per byte: item 0 10 / 6, item 1 7 / 5, item 2 6 / 5. The relaxation takes item 0 first
  // and then has 4 of 10 bytes left over; items 1 and 2 together save more.
  const Items items = {{{10, 0}, {0, 6}}, {{7, 0}, {0, 5}}, {{6, 0}, {0, 5}}};
  const Allocation found = allocate(items, 10);
  CHECK(found.choice == std::vector<int>{0, 1, 1});
  CHECK(found.cost == 10);
  CHECK(found.bytes == 10);
  CHECK(found.lower_bound == doctest::Approx(10));
}

TEST_CASE("the greedy search steps down where a byte costs least") {
  // From 16 bytes: item 1 gives 4 bytes for 1, then item 0 gives 4 for 2, then item 1 2 for 3.
  const Items items = {{{9, 1}, {2, 4}, {0, 8}}, {{4, 2}, {1, 4}, {0, 8}}};
  CHECK(allocate_greedy(items, 16).choice == std::vector<int>{2, 2});
  CHECK(allocate_greedy(items, 12).choice == std::vector<int>{2, 1});
  CHECK(allocate_greedy(items, 8).choice == std::vector<int>{1, 1});
  CHECK(allocate_greedy(items, 7).choice == std::vector<int>{1, 0});
  const Allocation found = allocate_greedy(items, 5);
  CHECK(found.choice == std::vector<int>{0, 0});
  CHECK(found.bytes == 3);
  CHECK(found.cost == 13);
  CHECK(found.feasible);
  CHECK(!allocate_greedy(items, 2).feasible);
  CHECK(allocate_greedy({}, 0).feasible);
  CHECK_THROWS_AS(allocate_greedy(Items(1), 2), Error);
}

TEST_CASE("no items, one item, ties and budgets at an option") {
  CHECK(allocate({}, 0).feasible);
  CHECK(allocate({}, 0).cost == 0);
  CHECK(!allocate({}, -1).feasible);

  // Neither order nor dominated options matter; the first of equals wins.
  const Items one = {{{3, 20}, {9, 5}, {9, 5}, {4, 30}, {5, 10}, {3, 20}}};
  CHECK(allocate(one, 4).choice == std::vector<int>{1});
  CHECK(!allocate(one, 4).feasible);
  CHECK(allocate(one, 5).choice == std::vector<int>{1});
  CHECK(allocate(one, 9).choice == std::vector<int>{1});
  CHECK(allocate(one, 10).choice == std::vector<int>{4});
  CHECK(allocate(one, 20).choice == std::vector<int>{0});
  CHECK(allocate(one, 1000).choice == std::vector<int>{0});
  CHECK(std::isinf(allocate(one, 4).lower_bound));

  const Items free = {{{0, 7}}, {{0, 3}, {0, 2}}};
  const Allocation found = allocate(free, 9);
  CHECK(found.choice == std::vector<int>{0, 1});
  CHECK(found.feasible);
  CHECK(found.lower_bound == 0);
}

TEST_CASE("items that are all alike fill the budget") {
  const Items items(50, {{8, 1}, {4, 2}, {1, 4}});
  for (int64_t budget = 50; budget <= 210; ++budget) {
    CAPTURE(budget);
    // The hull is straight from 1 to 2 bytes (4 a byte) and from 2 to 4 (1.5 a byte).
    const int64_t spare = budget - 50, first = std::min<int64_t>(spare, 50);
    const int64_t second = std::min<int64_t>((spare - first) / 2, 50);
    const Allocation found = allocate(items, budget);
    CHECK(found.cost == static_cast<double>(400 - 4 * first - 3 * second));
    CHECK(found.cost <= found.lower_bound * (1 + kAllocationTolerance) + 1e-9);
  }
}

TEST_CASE("costs of any magnitude") {
  for (double scale : {1e-300, 1e-30, 1e30, 1e280}) {
    CAPTURE(scale);
    Items items = {{{10, 0}, {0, 6}}, {{7, 0}, {0, 5}}, {{6, 0}, {0, 5}}};
    for (auto& item : items)
      for (Option& option : item) option.cost *= scale;
    CHECK(allocate(items, 10).choice == std::vector<int>{0, 1, 1});
  }
  // Every pair of ranges in one problem, against brute force.
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Draws draws(1000 + seed);
    Items items(5);
    for (auto& item : items) {
      const double scale = std::pow(10.0, 60 * draws.real() - 30);
      for (int64_t b = 1; b <= 5; ++b)
        item.push_back({scale * step_variance(static_cast<int>(b)), b * (draws.whole(9) + 1)});
    }
    const int64_t budget = least_bytes(items) + draws.whole(60);
    const double optimum = brute_force(items, budget);
    const Allocation found = allocate(items, budget);
    CHECK(found.cost <= optimum * (1 + 1.1e-4));
    CHECK(found.lower_bound <= optimum * (1 + 1e-12));
    CHECK(found.cost <= found.lower_bound * (1 + 1.1e-4));
  }
}

TEST_CASE("within the tolerance of the bound, for few tensors of every size") {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    Draws draws(5000 + seed);
    const int64_t count = draws.whole(40) + 1;
    const Tensors all =
        tensors(draws, count, 20 * draws.real(), draws.whole(4) + 1, [](double&, int64_t&) {});
    const double average = 1 + 7 * draws.real();
    const auto budget = static_cast<int64_t>(average * static_cast<double>(all.elements));
    const Allocation found = allocate(all.items, budget);
    check_sums(all.items, found, budget);
    if (found.feasible) CHECK(found.cost <= found.lower_bound * (1 + 1.0001e-4));
  }
}

TEST_CASE("networks: thousands of tensors, most of them alike, sizes in powers of two or not") {
  for (int64_t count : {200, 2000})
    for (int kind = 0; kind < 5; ++kind) {
      CAPTURE(count);
      CAPTURE(kind);
      Draws draws(static_cast<uint64_t>(9000 + kind));
      const Tensors all = tensors(draws, count, kind == 4 ? 140 : 8, kind == 0 ? 1 : 8,
                                  [&](double& sensitivity, int64_t& elements) {
                                    if (kind == 2) elements = int64_t{1} << draws.whole(20);
                                    if (kind == 3) sensitivity = static_cast<double>(elements);
                                  });
      for (double average : {1.25, 2.0, 3.7}) {
        const auto budget = static_cast<int64_t>(average * static_cast<double>(all.elements)) +
                            count * 1000;  // what is taken whatever the width
        const Allocation found = allocate(all.items, budget);
        CHECK(found.feasible);
        CHECK(found.cost <= found.lower_bound * (1 + 1.0001e-4));
        const Allocation again = allocate(all.items, budget);
        CHECK(again.choice == found.choice);
      }
    }
}

TEST_CASE("bad options name their item") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (double cost : {nan, infinity, -1.0, 1e291})
    CHECK_THROWS_WITH_AS(
        allocate(Items{{{0, 1}}, {{1, 1}, {cost, 2}}}, 10),
        fmt::format("[allocate] expected a cost of 0 to 1e290, got {} in option 1 of item 1", cost)
            .c_str(),
        Error);
  CHECK_THROWS_WITH_AS(allocate(Items{{{0, -1}}}, 10),
                       "[allocate] expected bytes of 0 to 2^44, got -1 in option 0 of item 0",
                       Error);
  CHECK_THROWS_WITH_AS(allocate(Items{{{0, 1}}, {}}, 10),
                       "[allocate] expected options for item 1, got none", Error);
  CHECK_THROWS_WITH_AS(allocate(Items(262145), 10),
                       "[allocate] expected at most 262144 items, got 262145", Error);
  for (double tolerance : {-0.1, 1.1, nan})
    CHECK_THROWS_AS(allocate(Items{{{0, 1}}}, 10, tolerance), Error);
}

// Random graphs: whatever keeps their saved tensors without loss gives the gradients of plain raw
// ones bit for bit, and nothing stays behind.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "bench/op_table/op_table.h"
#include "compress/policies/adaptive_policy.h"
#include "compress/policies/levels.h"
#include "compress/policies/offload_policy.h"
#include "tests/compress/identity.h"
#include "tests/integration/random_graph.h"
#include "tests/integration/storage.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

constexpr uint64_t kGraphs = 360;

// Keeps each entry in one of the ways that are open to it, by its number.
class Mixed final : public SavePolicy {
 public:
  explicit Mixed(uint64_t seed, int64_t slice_bytes = 0) : seed_(seed), slice_bytes_(slice_bytes) {}
  bool lossy() const override { return false; }
  int64_t slice_bytes() const override { return slice_bytes_; }
  Decision decide(const SaveInfo& info, const Tensor&) override {
    const Codec* codec = uniform_int({seed_, 1}, info.seq, 2) == 0 ? nullptr : &identity_;
    const uint64_t way = uniform_int({seed_, 2}, info.seq, 4);
    // Rebuilt from exact copies, a recipe of any kind is exact.
    if (info.rebuilt != Rebuilt::none && way < 3) {
      ++rebuilds;
      return {Decision::rebuild, codec};
    }
    if (codec == nullptr) return {Decision::raw};
    return {Decision::pack, codec};
  }
  int rebuilds = 0;

 private:
  uint64_t seed_;
  int64_t slice_bytes_;
  Identity identity_;
};

class PackExactly final : public SavePolicy {
 public:
  explicit PackExactly(int64_t slice_bytes = kSliceBytes) : slice_bytes_(slice_bytes) {}
  bool lossy() const override { return false; }
  Decision decide(const SaveInfo&, const Tensor&) override { return {Decision::pack, &identity_}; }
  int64_t slice_bytes() const override { return slice_bytes_; }

 private:
  int64_t slice_bytes_;
  Identity identity_;
};

FixedPolicyOptions keep(std::string_view name, bool recipes, int64_t slice_bytes) {
  FixedPolicyOptions options;
  options.bits = static_cast<int>(level(name).choice.bits());
  options.recipes = recipes;
  options.min_elements = 0;
  options.slice_bytes = slice_bytes;
  return options;
}

// Two batches, one after the other, whose gradients add up.
Numbers gradients_of_batches(RandomGraph& graph, SavePolicy* policy, uint64_t step) {
  graph.zero_grad();
  for (uint64_t batch = 0; batch < 2; ++batch) {
    Variables roots;
    {
      PolicyScope scope(policy);
      begin_step(2 * step + batch);
      roots = graph.forward(batch);
    }
    const RngKey drawn = graph.rng();
    graph.backward(std::move(roots));
    CHECK(graph.rng() == drawn);  // recomputation draws from where it began
  }
  Numbers all = graph.gradients();
  graph.zero_grad();
  return all;
}

bool close(const Numbers& a, const Numbers& b) {
  if (a.size() != b.size()) return false;
  for (size_t k = 0; k < a.size(); ++k) {
    if (a[k].size() != b[k].size()) return false;
    double largest = 0, off = 0;
    for (size_t i = 0; i < a[k].size(); ++i) {
      largest = std::max(largest, std::abs(a[k][i]));
      off = std::max(off, std::abs(a[k][i] - b[k][i]));
    }
    if (off > 1e-4 * largest + 1e-6) return false;
  }
  return true;
}

bool finite(const Numbers& numbers) {
  for (const auto& leaf : numbers)
    for (double value : leaf)
      if (!std::isfinite(value)) return false;
  return true;
}

}  // namespace

TEST_CASE("random graphs: the gradient of their loss is its slope") {
  int counted = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    RandomGraph graph(seed, {.dtype = DType::f64});
    graph.backward(graph.forward());
    double slope = 0;
    std::vector<Tensor> directions;
    for (size_t k = 0; k < graph.leaves().size(); ++k) {
      const Variable& x = graph.leaves()[k];
      directions.push_back(random_values({seed, 77 + k}, x.shape(), DType::f64, kCpu));
      if (!x.grad().defined()) continue;
      for (int64_t i = 0; i < x.value().numel(); ++i)
        slope += x.grad().data<double>()[i] * directions[k].data<double>()[i];
    }
    auto at = [&](double step) {
      auto move = [&](double by) {
        for (size_t k = 0; k < graph.leaves().size(); ++k)
          for (int64_t i = 0; i < directions[k].numel(); ++i)
            graph.leaves()[k].value().mut<double>()[i] += by * directions[k].data<double>()[i];
      };
      move(step);
      const double value = graph.value(graph.forward());
      move(-step);
      return value;
    };
    constexpr double kStep = 1e-7;
    const double expected = (at(kStep) - at(-kStep)) / (2 * kStep);
    CHECK(slope == doctest::Approx(expected).epsilon(1e-4));
    counted += std::abs(slope) > 1e-3;
  }
  CHECK(counted > 50);
}

TEST_CASE("random graphs are deep and hold every function") {
  std::map<std::string, int> nodes;
  int total = 0;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    RandomGraph graph(seed);
    for (const Variable& root : graph.forward())
      if (root.producer() != nullptr)
        for (const char* op : graph_ops(root)) ++nodes[op], ++total;
  }
  CHECK(total > 20 * static_cast<int>(kGraphs));
  CHECK(nodes["checkpoint"] > 50);
  for (const op_table::Op& op : op_table::rows()) {
    CAPTURE(op.name);
    CHECK(nodes[op.name] >= 5);
  }
}

TEST_CASE("random graphs: lossless ways to keep tensors change no bit and leave nothing") {
  PackExactly identity;
  FixedPolicy recipes(keep("L0", true, 0));
  const auto away = moved(std::make_shared<FixedPolicy>(keep("L0", false, 0)), 0);
  const auto window = moved(std::make_shared<FixedPolicy>(keep("L0", true, 0)), 4096);
  int rebuilds = 0;
  size_t with_gradients = 0;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    CAPTURE(seed);
    RandomGraph graph(seed);
    const CategoryBytes before = live();
    const Numbers raw = gradients_of_batches(graph, nullptr, seed);
    REQUIRE(finite(raw));
    for (const auto& leaf : raw) with_gradients += !leaf.empty();
    CHECK(live() == before);
    auto check = [&](const char* way, SavePolicy& policy) {
      CAPTURE(way);
      const bool equal = gradients_of_batches(graph, &policy, seed) == raw;
      CHECK(equal);
      const bool clean = live() == before;
      CHECK(clean);
    };
    check("identity", identity);
    check("recipes", recipes);
    Mixed mixed(seed);
    check("mixed", mixed);
    rebuilds += mixed.rebuilds;
    if (seed % 3 != 0) continue;
    check("offload", *away);
    check("offload with a window and recipes", *window);
    for (const OffloadPolicy* policy : {away.get(), window.get()}) {
      CHECK(policy->store().resident_bytes() == 0);
      CHECK(policy->store().file().used_bytes() == 0);
    }
  }
  CHECK(rebuilds > static_cast<int>(kGraphs));
  CHECK(with_gradients > 2 * kGraphs);
  CHECK(away->store().stats().written > 0);
}

// Sums over slices add up in the order in which they add up over a tensor that is kept whole.
TEST_CASE("random graphs: slices change no bit, recomputation the rounding of sums") {
  PackExactly sliced(1024);
  FixedPolicy whole(keep("L0", false, 1024)), recipes(keep("L0", true, 1024));
  int other_orders = 0;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    CAPTURE(seed);
    const bool large = seed % 8 == 0;
    RandomGraph graph(seed, {.large = large});
    RandomGraph plain(seed, {.large = large, .checkpoints = false});
    const CategoryBytes before = live();
    const Numbers raw = gradients_of_batches(graph, &whole, seed);
    Mixed mixed(seed, 1024);
    for (SavePolicy* policy : std::initializer_list<SavePolicy*>{&sliced, &recipes, &mixed}) {
      const bool equal = gradients_of_batches(graph, policy, seed) == raw;
      CHECK(equal);
    }
    // A leaf has the sum of what its readers give it, in their order.
    const Numbers at_once = gradients_of_batches(plain, nullptr, seed);
    CHECK(close(at_once, raw));
    other_orders += at_once != raw;
    const bool clean = live() == before;
    CHECK(clean);
  }
  CHECK(other_orders > 0);  // there were sums in parts
}

TEST_CASE("random graphs: codes of any width give the same gradients twice and leave nothing") {
  for (const std::string_view level : {"L1", "L1.2"}) {
    FixedPolicy fixed(keep(level, true, 512));
    AdaptiveOptions options;
    options.keep = keep(level, true, 0);
    options.average = 3;
    for (uint64_t seed = 0; seed < kGraphs / 4; ++seed) {
      CAPTURE(level);
      CAPTURE(seed);
      RandomGraph graph(seed);
      const CategoryBytes before = live();
      AdaptivePolicy adaptive(options);
      for (SavePolicy* policy : std::initializer_list<SavePolicy*>{&fixed, &adaptive}) {
        const Numbers first = gradients_of_batches(graph, policy, seed);
        const bool equal = gradients_of_batches(graph, policy, seed) == first;
        CHECK(equal);
        CHECK(finite(first));
        const bool clean = live() == before;
        CHECK(clean);
      }
    }
  }
}

TEST_CASE("random graphs: meta counts the bytes that cpu keeps") {
  for (uint64_t seed = 0; seed < kGraphs / 2; ++seed) {
    CAPTURE(seed);
    auto kept = [&](Device device) {
      RandomGraph graph(seed, {.device = device});
      FixedPolicy policy(keep("L1", true, 0));
      PolicyScope scope(&policy);
      const CategoryBytes before = live(device);
      begin_step(0);
      const Variables roots = graph.forward();
      CategoryBytes bytes = live(device);
      for (size_t c = 0; c < bytes.size(); ++c) bytes[c] -= before[c];
      return bytes;
    };
    const bool equal = kept(kCpu) == kept(kMeta);
    CHECK(equal);
  }
}

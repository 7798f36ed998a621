// Parameters, optimizers and comparisons for tests of what is shared out over the ranks.
#pragma once
#include <map>

#include "autograd/gradient.h"
#include "distributed/agreement.h"
#include "distributed/sharded_optimizer.h"
#include "optim/registry.h"
#include "tests/distributed/ranks.h"

namespace frugal::distributed {

inline CommunicatorPtr all_ranks() { return from_environment({.timeout = 60}); }

// Between -1 and 1, and quick to make.
inline Tensor numbers(const Shape& shape, uint64_t seed) {
  const Tensor x = Tensor::empty(shape);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (int64_t i = 0; i < x.numel(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x.mut<float>()[i] = static_cast<float>(state >> 40) * 0x1p-23f - 1;
  }
  return x;
}

// Parameters of which some are far larger than others, in two groups.
struct Parameters {
  NamedVariables decayed, plain;

  Parameters() {
    const auto add = [](NamedVariables& to, const char* name, const Shape& shape) {
      const Tensor value = numbers(shape, static_cast<uint64_t>(shape.numel()));
      to.emplace_back(name, Variable::parameter(value));
    };
    add(decayed, "conv.weight", {33, 3, 3, 8});
    add(decayed, "fc.weight", {300, 70});
    add(decayed, "a/b.weight", {1, 5});
    add(decayed, "table", {513, 512});  // more than a MiB
    add(plain, "fc.bias", {70});
    add(plain, "scale", {});
    add(plain, "long", {5003});
  }
  std::vector<ParameterGroup> groups() const { return {{decayed, 1, 0.01}, {plain, 0.5, 0.0}}; }
  NamedVariables all() const {
    NamedVariables both = decayed;
    both.insert(both.end(), plain.begin(), plain.end());
    return both;
  }
  // "scale" has none in the first step. The seed: the same on each rank, or not.
  void set_gradients(int step, int seed = 0) const {
    uint64_t i = 0;
    for (auto [name, parameter] : all()) {
      ++i;
      if (name == "scale" && step == 0) continue;
      parameter.set_grad(
          numbers(parameter.shape(), 100 * i + static_cast<uint64_t>(step + 1000 * seed)));
    }
  }
};

struct Kind {
  std::string name;
  bool is_split;
  ShardedOptimizer::Make make;
};

// All optimizers, with variants first.
inline std::vector<Kind> kinds() {
  using Groups = const std::vector<ParameterGroup>&;
  std::vector<Kind> all = {{"without momentum", true,
                            [](Groups g) {
                              return optim::make("sgd", g, {{"momentum", 0.0}});
                            }},
                           {"nesterov", true,
                            [](Groups g) {
                              return optim::make("sgd", g, {{"nesterov", true}});
                            }},
                           {"adamw", true, [](Groups g) { return optim::make("adamw", g); }}};
  for (const optim::Kind& kind : optim::kinds())
    if (kind.name != "sgd" && kind.name != "adamw") {
      const auto make = [name = kind.name](Groups g) {
        return optim::make(name, g, {}, {.full_precision = {"conv"}});
      };
      all.push_back({kind.name, make({})->elementwise(), make});
    }
  return all;
}

inline void check_same_bits(const Parameters& a, const Parameters& b) {
  const NamedVariables x = a.all(), y = b.all();
  for (size_t i = 0; i < x.size(); ++i) {
    CAPTURE(x[i].first);
    CHECK((bits_of(x[i].second.value()) == bits_of(y[i].second.value())));
  }
}

inline void check_same_state(const Optimizer& a, const Optimizer& b) {
  const auto x = a.state(), y = b.state();
  std::map<std::string, Tensor> others(y.begin(), y.end());
  CHECK(x.size() == y.size());
  for (const auto& [name, tensor] : x) {
    const auto& this_name = name;
    CAPTURE(this_name);
    REQUIRE(others.count(name) == 1);
    REQUIRE(describe(tensor) == describe(others[name]));
    CHECK((bits_of(tensor) == bits_of(others[name])));
  }
}

}  // namespace frugal::distributed

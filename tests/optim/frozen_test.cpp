// Parameters that are frozen, and thawed later.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/gradient.h"
#include "core/error.h"
#include "optim/averaged.h"
#include "optim/clip.h"
#include "optim/registry.h"
#include "tests/optim/samples.h"

using namespace frugal;
using namespace frugal::optim;

namespace {

using Maker = std::function<std::unique_ptr<Optimizer>(const std::vector<ParameterGroup>&)>;
const std::vector<std::pair<std::string, Maker>>& makers() {
  static const auto all = [] {
    std::vector<std::pair<std::string, Maker>> some;
    for (const Kind& kind : kinds())
      some.emplace_back(kind.name, [name = kind.name](const auto& groups) {
        return make(name, groups, {}, {.least_elements = 0});
      });
    some.emplace_back("averaged", [](const auto& groups) {
      return std::make_unique<Averaged>(make("adam", groups), groups[0].parameters, EmaOptions{});
    });
    return some;
  }();
  return all;
}

struct Some {
  std::vector<Variable> p;
  std::vector<ParameterGroup> groups;
  explicit Some(int count) : groups(1) {
    for (int i = 0; i < count; ++i) {
      p.push_back(Variable::parameter(normals({3, 4}, 7 + static_cast<uint64_t>(i), DType::f32)));
      groups[0].parameters.emplace_back("p" + std::to_string(i), p.back());
    }
  }
  std::vector<double> values(size_t i) const { return p[i].value().to_vector(); }
};

Tensor gradient(uint64_t seed) { return normals({3, 4}, seed, DType::f32); }

}  // namespace

TEST_CASE("optimizers leave frozen parameters alone, however many, and resume with them") {
  for (const auto& [name, make] : makers()) {
    const auto& this_name = name;
    CAPTURE(this_name);
    Some some(4), other(4);
    for (Some* each : {&some, &other})
      for (const size_t frozen : {1, 2}) each->p[frozen].set_requires_grad(false);
    const std::vector<double> before = some.values(1);
    const auto optimizer = make(some.groups);
    for (const size_t i : {0, 3}) some.p[i].set_grad(gradient(i));
    CHECK(clip_grad_norm(some.p, 1e9) > 0);
    clip_grad_value(some.p, 1e9);
    optimizer->step(0.1);
    CHECK(some.values(1) == before);
    CHECK(some.values(0) != other.values(0));
    const auto resumed = make(other.groups);
    resumed->load_state(optimizer->state());
    for (size_t i = 0; i < 4; ++i) other.p[i].set_value(ops::clone(some.p[i].value()));
    for (Some* each : {&some, &other})
      for (const size_t i : {0, 3}) each->p[i].set_grad(gradient(10 + i));
    optimizer->step(0.1);
    resumed->step(0.1);
    for (size_t i = 0; i < 4; ++i) CHECK(some.values(i) == other.values(i));
  }
}

TEST_CASE("a leaf is its parameter's, also after parameters were frozen and thawed") {
  for (const auto& [name, make] : makers()) {
    const auto& this_name = name;
    CAPTURE(this_name);
    Some some(3), whole(3);
    some.p[0].set_requires_grad(false);
    const auto optimizer = make(some.groups), expected = make(whole.groups);
    // New leaves may lie where old ones were: each parameter takes its neighbour's place.
    for (int round = 0; round < 8; ++round) {
      for (Variable& p : some.p) p.set_requires_grad(false);
      for (size_t i = 3; i-- > 0;)
        some.p[(i + static_cast<size_t>(round)) % 3].set_requires_grad(true);
      for (size_t i = 0; i < 3; ++i) {
        const Tensor g = gradient(static_cast<uint64_t>(3 * round) + i);
        some.p[i].set_grad(ops::clone(g));
        whole.p[i].set_grad(g);
        CHECK(optimizer->step_leaf(*some.p[i].accumulator(), 0.1));
        CHECK(expected->step_leaf(*whole.p[i].accumulator(), 0.1));
      }
      for (size_t i = 0; i < 3; ++i) REQUIRE(some.values(i) == whole.values(i));
    }
    Variable stranger = Variable::parameter(gradient(5));
    CHECK_FALSE(optimizer->step_leaf(*stranger.accumulator(), 0.1));
  }
}

TEST_CASE("optimizers refuse a parameter that comes twice, frozen or not, and a name that does") {
  for (const auto& [name, make] : makers()) {
    const auto& this_name = name;
    CAPTURE(this_name);
    Some some(2);
    std::vector<ParameterGroup> twice = some.groups, alike = some.groups;
    twice[0].parameters.emplace_back("again", some.p[1]);
    CHECK_THROWS_WITH_AS(make(twice),
                         doctest::Contains("expected each parameter once, got 'again'"), Error);
    some.p[1].set_requires_grad(false);
    CHECK_THROWS_WITH_AS(make(twice),
                         doctest::Contains("expected each parameter once, got 'again'"), Error);
    alike[0].parameters[1].first = "p0";
    CHECK_THROWS_WITH_AS(make(alike)->state(),
                         doctest::Contains("expected one parameter 'p0', got two"), Error);
  }
}

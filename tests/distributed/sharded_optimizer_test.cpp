#include "distributed/sharded_optimizer.h"

#include <map>

#include "autograd/gradient.h"
#include "core/memory.h"
#include "distributed/agreement.h"
#include "models/zoo/resnet_cifar.h"
#include "ops/dense/copy.h"
#include "optim/adafactor.h"
#include "optim/adam.h"
#include "optim/adam8bit.h"
#include "optim/averaged.h"
#include "optim/lamb.h"
#include "optim/lars.h"
#include "optim/sgd.h"
#include "tests/distributed/ranks.h"

namespace frugal::distributed {
namespace {

CommunicatorPtr all_ranks() { return from_environment({.timeout = 60}); }

// Between -1 and 1, and quick to make.
Tensor numbers(const Shape& shape, uint64_t seed) {
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
  // The same on each rank. "scale" has none in the first step.
  void set_gradients(int step) const {
    uint64_t i = 0;
    for (auto [name, parameter] : all()) {
      ++i;
      if (name == "scale" && step == 0) continue;
      parameter.set_grad(numbers(parameter.shape(), 100 * i + static_cast<uint64_t>(step)));
    }
  }
};

struct Kind {
  const char* name;
  bool is_split;
  ShardedOptimizer::Make make;
};

std::vector<Kind> kinds() {
  using namespace optim;
  using Groups = const std::vector<ParameterGroup>&;
  return {
      {"sgd", true, [](Groups g) { return std::make_unique<Sgd>(g, SgdOptions{.momentum = 0}); }},
      {"nesterov", true,
       [](Groups g) { return std::make_unique<Sgd>(g, SgdOptions{.nesterov = true}); }},
      {"adamw", true, [](Groups g) { return std::make_unique<Adam>(g); }},
      {"adam", true,
       [](Groups g) { return std::make_unique<Adam>(g, AdamOptions{.decoupled = false}); }},
      {"adam8bit", false,
       [](Groups g) {
         return std::make_unique<Adam8bit>(g, Adam8bitOptions{.full_precision = {"conv"}});
       }},
      {"adafactor", false, [](Groups g) { return std::make_unique<Adafactor>(g); }},
      {"lamb", false, [](Groups g) { return std::make_unique<Lamb>(g); }},
      {"lars", false, [](Groups g) { return std::make_unique<Lars>(g); }},
  };
}

void check_same_bits(const Parameters& a, const Parameters& b) {
  const NamedVariables x = a.all(), y = b.all();
  for (size_t i = 0; i < x.size(); ++i) {
    CAPTURE(x[i].first);
    CHECK((bits_of(x[i].second.value()) == bits_of(y[i].second.value())));
  }
}

void check_same_state(const Optimizer& a, const Optimizer& b) {
  const auto x = a.state(), y = b.state();
  std::map<std::string, Tensor> others(y.begin(), y.end());
  CHECK(x.size() == y.size());
  for (const auto& [name, tensor] : x) {
    CAPTURE(name);
    REQUIRE(others.count(name) == 1);
    REQUIRE(describe(tensor) == describe(others[name]));
    CHECK((bits_of(tensor) == bits_of(others[name])));
  }
}

constexpr double kRate = 0.01;

}  // namespace

TEST_CASE("a sharded optimizer gives the bits of one that is not") {
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    const Parameters whole, sharded;
    const std::unique_ptr<Optimizer> one = kind.make(whole.groups());
    ShardedOptimizer many(all_ranks(), sharded.groups(), kind.make);
    CHECK(many.elementwise() == kind.is_split);
    CHECK(many.state().empty());
    for (int step = 0; step < 3; ++step) {
      whole.set_gradients(step);
      sharded.set_gradients(step);
      one->step(kRate);
      many.step(kRate);
      check_same_bits(whole, sharded);
      one->zero_grad();
      many.zero_grad();
      CHECK(!sharded.decayed[0].second.has_grad());
    }
    check_same_state(*one, many);
  }
}

TEST_CASE("a state resumes on another number of ranks") {
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    // Begins sharded, goes on alone and ends sharded.
    const Parameters whole, first, second, third;
    const std::unique_ptr<Optimizer> one = kind.make(whole.groups());
    ShardedOptimizer a(all_ranks(), first.groups(), kind.make),
        b(alone(), second.groups(), kind.make), c(all_ranks(), third.groups(), kind.make);
    const Parameters* const parameters[] = {&first, &second, &third};
    Optimizer* const optimizers[] = {&a, &b, &c};
    for (int step = 0; step < 3; ++step) {
      if (step > 0) {
        const NamedVariables from = parameters[step - 1]->all();
        NamedVariables to = parameters[step]->all();
        for (size_t i = 0; i < from.size(); ++i)
          to[i].second.set_value(ops::clone(from[i].second.value()));
        optimizers[step]->load_state(optimizers[step - 1]->state());
      }
      whole.set_gradients(step);
      one->step(kRate);
      parameters[step]->set_gradients(step);
      optimizers[step]->step(kRate);
      check_same_bits(whole, *parameters[step]);
    }
    check_same_state(*one, c);
  }
}

TEST_CASE("single leaves are updated as in step()") {
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    const Parameters whole, sharded;
    const std::unique_ptr<Optimizer> one = kind.make(whole.groups());
    ShardedOptimizer many(all_ranks(), sharded.groups(), kind.make);
    whole.set_gradients(1);
    sharded.set_gradients(1);
    one->step(kRate);
    for (const auto& [name, parameter] : sharded.all())
      CHECK(many.step_leaf(*parameter.accumulator(), kRate));
    check_same_bits(whole, sharded);
    check_same_state(*one, many);
    const Variable stranger = Variable::parameter(Tensor::ones({3}));
    CHECK(!many.step_leaf(*stranger.accumulator(), kRate));
  }
}

TEST_CASE("the state of a rank is its share of the whole") {
  const auto state_bytes = [] { return allocator(kCpu).report().of(Category::optimizer); };
  models::Init init{Rng(1)};
  models::CifarResNet model(init, models::cifar_resnet_options("resnet20"));
  std::vector<ParameterGroup> groups = one_group(model.parameters());
  for (auto& [name, parameter] : groups[0].parameters)
    parameter.set_grad(Tensor::ones(parameter.shape()));
  const auto bytes_of = [&](const ShardedOptimizer::Make& make, CommunicatorPtr ranks) {
    const int64_t before = state_bytes();
    ShardedOptimizer optimizer(std::move(ranks), groups, make);
    optimizer.step(1e-3);
    return static_cast<double>(state_bytes() - before);
  };
  const double n = ranks().size();
  const ShardedOptimizer::Make adamw = [](const auto& g) {
    return std::make_unique<optim::Adam>(g);
  };
  const double share = bytes_of(adamw, all_ranks()) / bytes_of(adamw, alone());
  CHECK(share > 0.98 / n);
  CHECK(share < 1.02 / n);
  // Whole parameters fit less well: the largest of a ResNet-20 is 14 % of it.
  const ShardedOptimizer::Make lamb = [](const auto& g) {
    return std::make_unique<optim::Lamb>(g);
  };
  CHECK(bytes_of(lamb, all_ranks()) / bytes_of(lamb, alone()) < 1.15 / n);
}

TEST_CASE("an average goes around a sharded optimizer") {
  const Parameters whole, sharded;
  const ShardedOptimizer::Make make = kinds()[2].make;
  optim::Averaged one(make(whole.groups()), whole.all(), {});
  optim::Averaged many(std::make_unique<ShardedOptimizer>(all_ranks(), sharded.groups(), make),
                       sharded.all(), {});
  for (int step = 0; step < 2; ++step) {
    whole.set_gradients(step);
    sharded.set_gradients(step);
    one.step(kRate);
    many.step(kRate);
  }
  check_same_state(one, many);
}

TEST_CASE("a wrong state is refused on all ranks, and nothing changes") {
  const Kind kind = kinds()[2];
  const Parameters parameters;
  ShardedOptimizer optimizer(all_ranks(), parameters.groups(), kind.make);
  parameters.set_gradients(1);
  optimizer.step(kRate);
  Optimizer::NamedTensors before;
  for (const auto& [name, tensor] : optimizer.state())
    before.emplace_back(name, ops::clone(tensor));
  const auto refused = [&](Optimizer::NamedTensors state, const char* message) {
    CHECK_THROWS_WITH_AS(optimizer.load_state(state), doctest::Contains(message), Error);
    std::map<std::string, Tensor> now;
    for (const auto& [name, tensor] : optimizer.state()) now[name] = tensor;
    for (const auto& [name, tensor] : before) CHECK((bits_of(now[name]) == bits_of(tensor)));
  };
  Optimizer::NamedTensors wrong = before;
  wrong.emplace_back("m/other", Tensor::ones({2}));
  refused(wrong, "unexpected entry 'm/other'");
  // Only some ranks own these parameters.
  for (const char* name : {"m/table", "v/fc.bias", "m/scale"}) {
    wrong = before;
    for (auto& [entry, tensor] : wrong)
      if (entry == name) tensor = Tensor::ones({3});
    refused(wrong, fmt::format("expected '{}' to be", name).c_str());
    wrong = before;
    std::erase_if(wrong, [&](const auto& entry) { return entry.first == name; });
    refused(wrong, fmt::format("expected a state with '{}'", name).c_str());
  }
  if (ranks().size() == 1) return;
  ParameterGroup twice{parameters.decayed, 1, {}};
  twice.parameters.push_back(twice.parameters[0]);
  CHECK_THROWS_WITH_AS(ShardedOptimizer(all_ranks(), {twice}, kind.make),
                       doctest::Contains("[sharded_optimizer] expected each parameter once"),
                       Error);
}

}  // namespace frugal::distributed

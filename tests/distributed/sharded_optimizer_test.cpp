#include "distributed/sharded_optimizer.h"

#include "core/memory.h"
#include "models/zoo/resnet_cifar.h"
#include "ops/dense/copy.h"
#include "optim/averaged.h"
#include "optim/optimizers.h"
#include "tests/distributed/sharded_parameters.h"

namespace frugal::distributed {
namespace {

constexpr double kBaseRate = 0.01;

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
      one->step(kBaseRate);
      many.step(kBaseRate);
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
      one->step(kBaseRate);
      parameters[step]->set_gradients(step);
      optimizers[step]->step(kBaseRate);
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
    one->step(kBaseRate);
    for (const auto& [name, parameter] : sharded.all())
      CHECK(many.step_leaf(*parameter.accumulator(), kBaseRate));
    check_same_bits(whole, sharded);
    check_same_state(*one, many);
    const Variable stranger = Variable::parameter(Tensor::ones({3}));
    CHECK(!many.step_leaf(*stranger.accumulator(), kBaseRate));
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
    one.step(kBaseRate);
    many.step(kBaseRate);
  }
  check_same_state(one, many);
}

TEST_CASE("a wrong state is refused on all ranks, and nothing changes") {
  const Kind kind = kinds()[2];
  const Parameters parameters;
  ShardedOptimizer optimizer(all_ranks(), parameters.groups(), kind.make);
  parameters.set_gradients(1);
  optimizer.step(kBaseRate);
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

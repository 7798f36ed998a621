#include <doctest/doctest.h>

#include <cmath>

#include <memory>

#include "optim/averaged.h"
#include "optim/optimizers.h"
#include "optim/registry.h"

using namespace frugal;
using namespace frugal::optim;

namespace {

// As Module::parameters() gives it.
struct Named {
  std::string name;
  Variable* parameter;
};

}  // namespace

TEST_CASE("optimizers take a module's parameters as they are") {
  const auto check = [](auto make) {
    Variable a = Variable::parameter(Tensor::of({1, 2})), b = Variable::parameter(Tensor::of({3}));
    const std::vector<Named> parameters{{"a", &a}, {"b", &b}};
    const std::unique_ptr<Optimizer> optimizer = make(parameters);
    for (Variable* p : {&a, &b}) p->set_grad(Tensor::ones(p->shape()));
    optimizer->step(0.1);
    CHECK(a.value().item(0) < 1);
    CHECK(b.value().item(0) < 3);
    optimizer->zero_grad();
    CHECK(!a.has_grad());
    CHECK(!b.has_grad());
    const std::vector<double> before = a.value().to_vector();
    optimizer->step(0.1);
    CHECK(a.value().to_vector() == before);
  };
  check([](const auto& p) { return std::make_unique<Sgd>(p, SgdOptions{.momentum = 0}); });
  check([](const auto& p) { return std::make_unique<Sgd8bit>(p); });
  check([](const auto& p) { return std::make_unique<Adam>(p); });
  check([](const auto& p) { return std::make_unique<Adam8bit>(p); });
  for (const Kind& kind : kinds())
    check([&](const auto& p) { return kind.make(one_group(p), {}, {}); });
  check([](const auto& p) { return std::make_unique<Adafactor>(p); });
  check([](const auto& p) { return std::make_unique<Lamb>(p); });
  check([](const auto& p) { return std::make_unique<Lars>(p); });
  check([](const auto& p) {
    return std::make_unique<Averaged>(std::make_unique<Sgd>(p), named_variables(p), EmaOptions{});
  });
}

TEST_CASE("options by name: each optimizer takes those that it lists, and no others") {
  Variable p = Variable::parameter(Tensor::of({1, 2}));
  const std::vector<Named> named{{"p", &p}};
  const auto groups = one_group(named);
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    CHECK(make(kind.name, groups) != nullptr);
    for (const by_name::Key& key : kind.keys) {
      CAPTURE(key.name);
      CHECK_NOTHROW(make(kind.name, groups, {{key.name, kind.usual(key.name)}}));
      CHECK_THROWS_WITH_AS(make(kind.name, groups, {{key.name, "much"}}),
                           doctest::Contains(fmt::format("{}: expected", key.name).c_str()),
                           OptionError);
    }
    CHECK_THROWS_WITH_AS(make(kind.name, groups, {{"speed", 1}}),
                         doctest::Contains("speed: expected an option of"), OptionError);
    p.set_grad(Tensor::of({1, 1}));
    for (const double number : {-1.0, std::nan(""), HUGE_VAL}) {
      const auto refused = doctest::Contains("expected a rate of at least 0");
      CHECK_THROWS_WITH_AS(make(kind.name, groups)->step(number), refused, Error);
      CHECK_THROWS_WITH_AS(make(kind.name, groups)->step_leaf(*p.accumulator(), number), refused,
                           Error);
      auto scaled = groups, decayed = groups;
      scaled[0].lr_scale = number;
      decayed[0].weight_decay = number;
      CHECK_THROWS_WITH_AS(make(kind.name, scaled),
                           doctest::Contains("expected an lr_scale of at least 0"), Error);
      CHECK_THROWS_WITH_AS(make(kind.name, decayed),
                           doctest::Contains("expected a weight decay of at least 0"), Error);
    }
    CHECK(p.value().to_vector() == std::vector<double>{1, 2});
    Variable q = Variable::parameter(Tensor::of({3}));
    CHECK_THROWS_WITH_AS(make(kind.name, {{{{"p", p}, {"p", q}}}}),
                         doctest::Contains("expected one parameter 'p', got two"), Error);
    // A schedule can cycle a momentum exactly where there is one.
    const auto optimizer = make(kind.name, groups);
    if (kind.momentum().empty())
      CHECK_THROWS_AS(optimizer->set_momentum(0.5), Error);
    else
      CHECK_NOTHROW(optimizer->set_momentum(0.5));
  }
  CHECK_THROWS_WITH_AS(make("adamm", groups), doctest::Contains("name: expected an optimizer"),
                       OptionError);
}

TEST_CASE("the weight decay of the options holds for groups that name none") {
  const auto decayed = [](std::optional<double> own, double common) {
    Variable p = Variable::parameter(Tensor::of({1}));
    Sgd sgd({ParameterGroup{{{"p", p}}, 1, own}}, {.momentum = 0, .weight_decay = common});
    p.set_grad(Tensor::zeros({1}));
    sgd.step(0.5);
    return p.value().item();
  };
  CHECK(decayed({}, 0.5) == 0.75);
  CHECK(decayed(0, 0.5) == 1);
  CHECK(decayed(0.25, 0.5) == 0.875);
  CHECK(decayed({}, 0) == 1);
  CHECK_THROWS_WITH_AS(decayed({}, -1), doctest::Contains("weight decay of at least 0"), Error);
  const auto rates = [](auto make) {
    Variable p = Variable::parameter(Tensor::of({1}));
    const auto optimizer = make(std::vector<Named>{{"p", &p}});
    p.set_grad(Tensor::zeros({1}));
    optimizer->step(0.5);
    return p.value().item();
  };
  CHECK(rates([](const auto& p) {
          return std::make_unique<Adam>(p, AdamOptions{.weight_decay = 0.5});
        }) == 0.75);
  CHECK(rates([](const auto& p) {
          return std::make_unique<Sgd8bit>(p, Sgd8bitOptions{.sgd = {.weight_decay = 0.5}});
        }) == 0.75);
  CHECK(rates([](const auto& p) {
          return std::make_unique<Adam8bit>(p, Adam8bitOptions{.adam = {.weight_decay = 0.5}});
        }) == 0.75);
  CHECK(rates([](const auto& p) {
          return std::make_unique<Lamb>(p, LambOptions{.weight_decay = 0.5});
        }) < 1);
  CHECK(rates([](const auto& p) {
          return std::make_unique<Lars>(p, LarsOptions{.momentum = 0, .weight_decay = 0.5});
        }) == 0.75);
  CHECK(rates([](const auto& p) {
          return std::make_unique<Adafactor>(
              p, AdafactorOptions{.scale_parameter = false, .weight_decay = 0.5});
        }) == 0.75);
}

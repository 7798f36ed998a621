#include "compress/policies/fixed_policy.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "compress/policies/actnn_policy.h"
#include "compress/policies/budget_policy.h"
#include "compress/policies/levels.h"
#include "compress/policies/policy_kind.h"
#include "ops/dense/bitmask.h"
#include "tests/compress/policies/one_step.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

SaveInfo info_with(Rebuilt rebuilt) {
  SaveInfo info;
  info.op = "conv2d";
  info.rebuilt = rebuilt;
  return info;
}

FixedPolicyOptions options_of(std::string_view name, bool recipes) {
  FixedPolicyOptions options;
  options.bits = static_cast<int>(level(name).choice.bits());
  options.recipes = recipes;
  return options;
}

}  // namespace

TEST_CASE("each level decides as documented for each kind of rebuild") {
  const Tensor large = Tensor::empty({256, 65}, DType::f32, kMeta);
  using What = Decision::What;
  struct Row {
    std::string_view level;
    bool recipes;
    What none, exact, unbiased, biased;
  };
  const What raw = Decision::raw, rebuild = Decision::rebuild, packed = Decision::pack;
  for (const Row& row :
       std::initializer_list<Row>{{"L0", false, raw, raw, raw, raw},
                                  {"L0", true, raw, rebuild, raw, raw},
                                  {"L1", false, packed, packed, packed, packed},
                                  {"L1", true, packed, rebuild, rebuild, packed},
                                  {"L1.1", true, packed, rebuild, rebuild, packed},
                                  {"L1.2", true, packed, rebuild, rebuild, packed}}) {
    CAPTURE(row.level);
    CAPTURE(row.recipes);
    FixedPolicy policy(options_of(row.level, row.recipes));
    CHECK(policy.decide(info_with(Rebuilt::none), large).what == row.none);
    CHECK(policy.decide(info_with(Rebuilt::exact), large).what == row.exact);
    CHECK(policy.decide(info_with(Rebuilt::unbiased), large).what == row.unbiased);
    CHECK(policy.decide(info_with(Rebuilt::biased), large).what == row.biased);
  }
}

TEST_CASE("levels set the width and the seed reaches the codec") {
  const Tensor large = Tensor::empty({256, 65}, DType::f32, kMeta);
  for (const auto& [name, bits] : std::initializer_list<std::pair<std::string_view, int>>{
           {"L1", 4}, {"L1.1", 8}, {"L1.2", 2}}) {
    FixedPolicyOptions options = options_of(name, true);
    options.seed = 42;
    FixedPolicy policy(options);
    const Decision decision = policy.decide({}, large);
    REQUIRE(decision.what == Decision::pack);
    CHECK(decision.codec == &policy.codec());
    CHECK(policy.codec().options().bits == bits);
    CHECK(policy.codec().options().seed == 42);
    CHECK(policy.codec().options().rounding == Rounding::stochastic);
  }
}

TEST_CASE("bits replace the level's") {
  const Tensor large = Tensor::empty({256, 65}, DType::f32, kMeta);
  for (std::string_view level : {"L0", "L1"}) {
    FixedPolicyOptions options = options_of(level, true);
    options.bits = 3;
    FixedPolicy policy(options);
    CHECK(policy.bits() == 3);
    CHECK(policy.decide({}, large).what == Decision::pack);
    CHECK(policy.codec().options().bits == 3);
  }
}

TEST_CASE("groups along rows reach the codecs of every width, which carry no sign then") {
  const Tensor x = Tensor::full({256, 16}, 1);
  const Sign sign{ops::empty_bitmask(x.shape(), kCpu), 0};
  std::fill_n(sign.mask.mut<uint8_t>(), sign.mask.numel(), uint8_t{0xff});
  FixedPolicyOptions options;
  options.min_elements = 0;
  const auto packed = [&](SavePolicy& policy) {
    auto all = step(policy, {x}, &sign);
    return std::move(all.at(0));
  };
  const auto shared = [](const Packed& of) {
    return dynamic_cast<const Quantized&>(of).layout().shared;
  };
  const auto check = [&](GroupAxis axis) {
    CAPTURE(static_cast<int>(axis));
    const bool rows = axis == GroupAxis::row;
    options.axis = axis;
    FixedPolicy fixed(options);
    AdaptivePolicy adaptive({.keep = options});
    BudgetPolicyOptions of;
    of.keep = options;
    BudgetPolicy budget(of);
    BudgetPlan plan;
    plan.mode = BudgetPlan::mixed;
    budget.adopt(plan);
    for (SavePolicy* policy : std::initializer_list<SavePolicy*>{&fixed, &adaptive, &budget}) {
      CHECK(shared(*packed(*policy)) == rows);
      CHECK(packed(*policy)->carries_sign() != rows);
    }
    fixed.set_bits(2);
    CHECK(shared(*packed(fixed)) == rows);
    CHECK(adaptive.items().at(0).has_sign != rows);
  };
  check(GroupAxis::column);
  check(GroupAxis::row);
}

TEST_CASE("a step trains with groups along rows, masks beside the codes") {
  Variable w = Variable::parameter(Tensor::full({8, 8}, 0.1));
  std::vector<float> values(200 * 8);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i % 8) - 3.5f + 0.01f * static_cast<float>(i / 8 % 7);
  const Variable x(Tensor::from(values, {200, 8}));
  const auto gradient = [&](SavePolicy* policy) {
    w.zero_grad();
    begin_step(0);
    PolicyScope scope(policy);
    const Variable h = relu(linear(x, w));
    backward(sum(mul(h, linear(h, w))));
    return w.grad().to_vector();
  };
  FixedPolicyOptions options;
  options.min_elements = 0;
  options.bits = 8;
  options.axis = GroupAxis::row;
  FixedPolicy policy(options);
  const auto exact = gradient(nullptr), rows = gradient(&policy);
  double error = 0, norm = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += (rows[i] - exact[i]) * (rows[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  CHECK(error > 0);
  CHECK(error < 1e-3 * norm);
}

TEST_CASE("the width can change in mid-run") {
  const Tensor large = Tensor::empty({256, 65}, DType::f32, kMeta);
  FixedPolicyOptions options = options_of("L1", true);
  options.group = 128;
  options.seed = 7;
  FixedPolicy policy(options);
  policy.set_bits(2);
  CHECK(policy.bits() == 2);
  CHECK(policy.codec().options().bits == 2);
  CHECK(policy.codec().options().group == 128);
  CHECK(policy.codec().options().seed == 7);
  CHECK(policy.decide(info_with(Rebuilt::none), large).codec == &policy.codec());
  SaveInfo curved = info_with(Rebuilt::none);
  curved.curved = true;
  const auto* wider = dynamic_cast<const Quantizer*>(policy.decide(curved, large).codec);
  CHECK(wider->options().bits == 4);
  CHECK(wider->options().group == 128);
  CHECK(wider->options().seed == 7);
  CHECK_THROWS_AS(policy.set_bits(0), Error);
  CHECK_THROWS_AS(policy.set_bits(17), Error);
  CHECK_THROWS_AS(FixedPolicy(options_of("L0", true)).set_bits(4), Error);
}

TEST_CASE("a recipe passes through no more than the chain's multiple of its own elements") {
  const Tensor large = Tensor::empty({256, 65}, DType::f32, kMeta);
  for (double chain : {0.0, 2.0}) {
    FixedPolicyOptions options = options_of("L1", true);
    options.chain = chain;
    FixedPolicy policy(options);
    SaveInfo info = info_with(Rebuilt::unbiased);
    info.recipe_elements = static_cast<int64_t>(chain) * large.numel();
    const Decision within = policy.decide(info, large);
    CHECK(within.what == Decision::rebuild);
    CHECK(within.codec == &policy.codec());  // how it waits once rebuilt
    info.recipe_elements += 1;
    CHECK(policy.decide(info, large).what == Decision::pack);
  }
  FixedPolicy lossless(options_of("L0", true));
  CHECK(lossless.decide(info_with(Rebuilt::exact), large).codec == nullptr);
}

TEST_CASE("a rebuild that needs so many bits has sources that have them, or is not taken") {
  const Tensor large = Tensor::empty({256, 65}, DType::f32, kMeta);
  SaveInfo source = info_with(Rebuilt::none), rebuilt = info_with(Rebuilt::unbiased);
  source.source_bits = rebuilt.least_bits = 3;
  for (int bits : {1, 2, 3, 4, 8}) {
    CAPTURE(bits);
    FixedPolicyOptions options = options_of("L1", true);
    options.bits = bits;
    FixedPolicy policy(options);
    const auto width_of = [&](SavePolicy& with) {
      return dynamic_cast<const Quantizer&>(*with.decide(source, large).codec).options().bits;
    };
    CHECK(width_of(policy) == std::max(bits, 3));
    rebuilt.told_sources = true;
    CHECK(policy.decide(rebuilt, large).what == Decision::rebuild);
    rebuilt.told_sources = false;  // then the sources have `bits`
    CHECK((policy.decide(rebuilt, large).what == Decision::rebuild) == (bits >= 3));
    options.recipes = false;
    FixedPolicy plain(options);
    CHECK(width_of(plain) == bits);
  }
}

TEST_CASE("policies of many widths rebuild where all sources were told, or have the bits anyway") {
  const Tensor large = Tensor::empty({256, 65}, DType::f32, kMeta);
  for (const Rebuilt quality : {Rebuilt::unbiased, Rebuilt::corrected})
    for (const bool told : {true, false})
      for (const int fewest : {1, 2, 3}) {
        CAPTURE(told);
        CAPTURE(fewest);
        SaveInfo info = info_with(quality);
        info.least_bits = 3;
        info.told_sources = info.told_curved = told;
        const bool enough = quality == Rebuilt::unbiased && fewest >= 3;
        const Rebuilt expected = told || enough ? quality : Rebuilt::biased;
        CHECK(info.rebuilt_with(fewest) == expected);
        AdaptiveOptions adaptive;
        ActnnOptions mixed;
        adaptive.average = mixed.average = 8;
        adaptive.keep.recipes = mixed.keep.recipes = mixed.mixed = true;
        adaptive.min_bits = mixed.min_bits = fewest;
        const auto what = expected == Rebuilt::biased ? Decision::pack : Decision::rebuild;
        CHECK(AdaptivePolicy(adaptive).decide(info, large).what == what);
        CHECK(ActnnPolicy(mixed).decide(info, large).what == what);
      }
}

TEST_CASE("recipes whose bias is corrected read tensors of 4 bits and more") {
  const Tensor large = Tensor::empty({256, 65}, DType::f32, kMeta);
  SaveInfo curved = info_with(Rebuilt::none), corrected = info_with(Rebuilt::corrected);
  curved.curved = true;
  const auto width_of = [&](SavePolicy& policy) {
    const Decision decision = policy.decide(curved, large);
    REQUIRE(decision.what == Decision::pack);
    return dynamic_cast<const Quantizer&>(*decision.codec).options().bits;
  };
  for (int bits : {1, 2, 3, 4, 8}) {
    CAPTURE(bits);
    FixedPolicyOptions options = options_of("L1", true);
    options.bits = bits;
    FixedPolicy policy(options);
    // With 1 bit, input and output of gelu take less than 4 bits.
    CHECK(width_of(policy) == (bits == 1 ? 1 : std::max(bits, 4)));
    corrected.told_curved = true;
    CHECK((policy.decide(corrected, large).what == Decision::rebuild) == (bits > 1));
    corrected.told_curved = false;  // then the sources have `bits`
    CHECK((policy.decide(corrected, large).what == Decision::rebuild) == (bits >= 4));
    corrected.told_curved = true;
    for (const auto& without : {&FixedPolicyOptions::recipes, &FixedPolicyOptions::corrected}) {
      FixedPolicyOptions fewer = options;
      fewer.*without = false;
      FixedPolicy plain(fewer);
      CHECK(width_of(plain) == bits);
      CHECK(plain.decide(corrected, large).what == Decision::pack);
    }
    options.rounding = Rounding::nearest;  // nobody knows its variance
    FixedPolicy nearest(options);
    CHECK(width_of(nearest) == bits);
  }
}

TEST_CASE("signs go into codes or into masks, and biased rebuilds are never used") {
  const Tensor large = Tensor::empty({256, 65}, DType::f32, kMeta);
  for (Signs signs : {Signs::codes, Signs::masks}) {
    FixedPolicyOptions options = options_of("L1", true);
    options.signs = signs;
    FixedPolicy policy(options);
    CHECK(policy.decide({}, large).carry_sign == (signs == Signs::codes));
    CHECK(policy.decide(info_with(Rebuilt::biased), large).what == Decision::pack);
  }
}

TEST_CASE("the batch, other dtypes and small tensors stay raw") {
  FixedPolicy policy;
  const auto what = [&](const Tensor& x) { return policy.decide({}, x).what; };
  CHECK(what(Tensor::empty({16385, 1}, DType::f32, kMeta)) == Decision::pack);
  CHECK(what(Tensor::empty({16384, 1}, DType::f32, kMeta)) == Decision::raw);
  CHECK(what(Tensor::empty({8, 2049}, DType::f32, kMeta)) == Decision::pack);
  CHECK(what(Tensor::empty({7, 1, 1, 4096}, DType::f32, kMeta)) == Decision::raw);
  CHECK(what(Tensor::empty({100000}, DType::f32, kMeta)) == Decision::raw);
  CHECK(what(Tensor::empty({100000}, DType::i64, kMeta)) == Decision::raw);
  CHECK(what(Tensor::empty({100000}, DType::u8, kMeta)) == Decision::raw);
  CHECK(what(Tensor::empty({1000, 100}, DType::bf16, kMeta)) == Decision::pack);
  {
    CategoryScope scope(Category::input);
    const Tensor batch = Tensor::empty({100000}, DType::f32, kMeta);
    CHECK(what(batch) == Decision::raw);
    CHECK(policy.decide(info_with(Rebuilt::exact), batch).what == Decision::raw);
  }
  FixedPolicyOptions options;
  options.min_elements = 0;
  FixedPolicy all(options);
  CHECK(all.decide({}, Tensor::empty({8, 1}, DType::f32, kMeta)).what == Decision::pack);
}

TEST_CASE("a level's name gives the options of its policy, and an unknown one lists the others") {
  constexpr PolicyKind kGact = PolicyKind::gact, kActnn = PolicyKind::actnn;
  const auto actnn = [](std::string_view name) {
    return std::get<ActnnOptions>(level(name, PolicyKind::actnn).choice.policy);
  };
  CHECK(level("L1.2").choice.bits() == 2);
  CHECK(levels(kGact).size() == 10);
  CHECK(levels(kActnn).size() == 7);
  CHECK(level("L2.1").choice.is_adaptive());
  CHECK(level("L3").offload);
  CHECK(level("L3", kGact).choice.bits() == 4);
  CHECK(!level("L3", kActnn).offload);
  CHECK(level("L3", kActnn).choice.bits() == 2);
  CHECK(actnn("L1").products_only);
  CHECK(level("L2.5", kActnn).choice.is_adaptive());
  CHECK(!actnn("L2.5").by_sample);
  CHECK(actnn("L3").by_sample);
  CHECK(level("CB1").checkpointing);
  for (const PolicyKind policy : {kGact, kActnn})
    for (const Named& each : levels(policy))
      CHECK(level(each.name, policy).name == (each.same_as.empty() ? each.name : each.same_as));
  CHECK(level("CB2").name == "CB1");
  CHECK(level("L5", kActnn).name == "L4");
  CHECK_THROWS_WITH_AS(level("L6", kActnn), doctest::Contains("[actnn] expected a level of L0"),
                       Error);
  CHECK_THROWS_WITH_AS(level("L5"),
                       doctest::Contains("expected a level of L0 (activations are kept raw), L1 "
                                         "(activations in 4 bits), L1.1"),
                       Error);
  CHECK_THROWS_AS(FixedPolicy(options_of("l1", true)), Error);
  FixedPolicyOptions options;
  options.bits = 17;
  CHECK_THROWS_WITH_AS(FixedPolicy{options}, "[quantize] expected 1 to 16 bits, got 17", Error);
  options = {};
  options.min_elements = -1;
  CHECK_THROWS_WITH_AS(FixedPolicy{options}, "[compression] expected min_elements >= 0, got -1",
                       Error);
  options.min_elements = 0;
  options.chain = -1;
  CHECK_THROWS_WITH_AS(FixedPolicy{options}, "[compression] expected chain >= 0, got -1", Error);
}

#include "compress/policies/budget_policy.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "compress/policies/allocate.h"
#include "compress/policies/offload_policy.h"
#include "ops/dense/bitmask.h"
#include "tests/compress/policies/budget_samples.h"
#include "tests/compress/policies/one_step.h"

using namespace frugal;
using namespace frugal::compress;
using Item = AdaptivePolicy::Item;
constexpr int kRaw = AdaptivePolicy::kRaw;

TEST_CASE("a tensor is kept as the plan says") {
  BudgetPolicy policy(small_budget());
  const std::vector<Tensor> tensors{waves({64, 8}), waves({64, 8}), waves({128, 8}), waves({4})};
  CHECK_THROWS_AS(step(policy, tensors), Error);  // no plan yet
  policy.adopt(mixed({{0, 3}, {1, kRaw}}));
  CHECK(policy.slice_bytes() == SavePolicy::kSliceBytes);
  const auto packed = step(policy, tensors);
  REQUIRE(packed.size() == 2);  // one is planned raw, one is small
  auto bytes = [&](uint64_t seq) {
    return dynamic_cast<const Quantized&>(*packed.at(seq)).payload().numel();
  };
  CHECK(bytes(0) == Quantizer({3}).packed_bytes({64, 8}));
  CHECK(bytes(2) == Quantizer({4}).packed_bytes({128, 8}));  // the plan does not know it
  const auto items = policy.items();
  REQUIRE(items.size() == 3);
  CHECK(items[1].bits == kRaw);
  CHECK(items[1].raw_bytes == 64 * 8 * 4);
  CHECK(AdaptivePolicy::variance(items[1], kRaw) == 0);
  BudgetPlan plain;
  plain.slice_bytes = 0;
  policy.adopt(plain);
  CHECK(step(policy, tensors).empty());
  CHECK(policy.slice_bytes() == 0);
}

TEST_CASE("plain and exact plans keep everything without loss, recipes only where they are exact") {
  BudgetPolicy policy(small_budget());
  const Tensor x = waves({64, 8});
  SaveInfo info;
  info.rebuilt = Rebuilt::exact;
  policy.adopt({});
  CHECK(policy.decide(info, x).what == Decision::raw);
  BudgetPlan exact;
  exact.mode = BudgetPlan::exact;
  policy.adopt(exact);
  CHECK(policy.decide(info, x).what == Decision::rebuild);
  CHECK(policy.decide(info, x).codec == nullptr);  // what waits is raw
  info.rebuilt = Rebuilt::unbiased;
  CHECK(policy.decide(info, x).what == Decision::raw);
}

TEST_CASE("a plain plan rebuilds nothing and remembers nothing of an earlier one") {
  BudgetPolicy policy(small_budget());
  const Tensor x = waves({64, 8});
  SaveInfo info;
  info.rebuilt = Rebuilt::exact;
  BudgetPlan exact;
  exact.mode = BudgetPlan::exact;
  policy.adopt(exact);
  policy.decide(info, x);
  CHECK(policy.recipes().size() == 1);
  policy.adopt({});
  policy.decide(info, x);
  CHECK(policy.recipes().empty());
}

TEST_CASE("only mixed plans are lossy") {
  BudgetPolicy policy(small_budget());
  BudgetPlan exact;
  exact.mode = BudgetPlan::exact;
  policy.adopt({});
  CHECK(!policy.lossy());
  policy.adopt(exact);
  CHECK(!policy.lossy());
  policy.adopt(mixed({}));
  CHECK(policy.lossy());
}

TEST_CASE("bytes go where they matter, and what is left over makes tensors raw") {
  BudgetPolicy policy(small_budget());
  policy.adopt(mixed({}));
  step(policy, {waves({256, 8}), waves({256, 8}), waves({256, 8})});
  const auto items = policy.items();
  const int64_t four = Quantizer({4}).packed_bytes({256, 8}), raw = 256 * 8 * 4;
  auto planned = [&](int64_t bytes) {
    BudgetPlan plan = mixed({});
    REQUIRE(policy.allocate(items, bytes, plan));
    int64_t taken = 0;
    for (const Item& item : items) taken += policy.adaptive().bytes(item, plan.bits.at(item.seq));
    CHECK(taken <= bytes);
    return plan;
  };
  // Equal items, before anything is measured.
  for (const auto& [seq, bits] : planned(3 * four).bits) CHECK(bits == 4);
  for (const auto& [seq, bits] : planned(3 * raw).bits) CHECK(bits == kRaw);
  // 16 bits differ from raw in nothing that matters, but take time: two of them become raw.
  int raws = 0;
  const int64_t most = Quantizer({16}).packed_bytes({256, 8});
  for (const auto& [seq, bits] : planned(2 * raw + most).bits) raws += bits == kRaw;
  CHECK(raws == 2);
  double last = INFINITY;
  for (int64_t bytes = 3 * four; bytes < 3 * raw; bytes += raw / 8) {
    const double variance = BudgetPolicy::variance(items, planned(bytes));
    CHECK(variance <= last * (1 + 1e-3) + 3 * 2048 * step_variance(16));
    last = variance;
  }
  BudgetPlan none = mixed({{0, 9}});
  CHECK(!policy.allocate(items, four / 2, none));
  CHECK(none.bits.at(0) == 9);
  policy.adaptive().measured(0, 1, 1);
  policy.adaptive().measured(2, 1e6, 1);
  BudgetPlan measured = mixed({});
  CHECK(policy.allocate(policy.items(), 3 * four, measured));
  CHECK(measured.bits.at(0) < measured.bits.at(1));  // the one in the middle counts like their mean
  CHECK(measured.bits.at(1) <= measured.bits.at(2));
}

TEST_CASE("the bytes and the variance that were predicted are those of the packed tensors") {
  BudgetPolicy policy(small_budget());
  policy.adopt(mixed({}));
  const Tensor x = waves({64, 8}), mask = ops::empty_bitmask({64, 8}, kCpu);
  std::fill_n(Tensor(mask).mut<uint8_t>(), mask.numel(), uint8_t{0x5a});
  const Sign sign{mask, 0};
  step(policy, {x}, &sign);
  const auto items = policy.items();
  REQUIRE(items.size() == 1);
  CHECK(policy.adaptive().least_bits(items[0]) == 2);  // codes of 1 bit carry no sign
  for (int bits : {2, 5, 16}) {
    BudgetPlan plan = mixed({{0, bits}});
    policy.adopt(plan);
    const auto packed = step(policy, {x}, &sign);
    CHECK(dynamic_cast<const Quantized&>(*packed.at(0)).payload().numel() ==
          policy.adaptive().bytes(items[0], bits));
    // Nothing was measured: 1 an element.
    CHECK(BudgetPolicy::variance(items, plan) ==
          doctest::Approx(512 * AdaptivePolicy::variance(items[0], bits)));
  }
  CHECK(policy.adaptive().bytes(items[0], kRaw) == 512 * 4 + 512 / 8);
}

TEST_CASE("tensors before a number go to the file and come back as they were") {
  const auto inner = std::make_shared<BudgetPolicy>(small_budget());
  OffloadPolicy moves(inner, {.directory = std::filesystem::temp_directory_path(), .window = 0});
  BudgetPolicy &policy = *inner, stays(small_budget());
  BudgetPlan plan = mixed({{0, 3}, {1, 5}});
  stays.adopt(plan);
  plan.moved = 1;
  policy.adopt(plan);
  const std::vector<Tensor> tensors{waves({64, 8}), waves({64, 8})};
  const auto a = step(moves, tensors), b = step(stays, tensors);
  CHECK(dynamic_cast<const Movable*>(b.at(0).get()) != nullptr);
  CHECK(dynamic_cast<const Movable*>(a.at(0).get()) == nullptr);
  CHECK(dynamic_cast<const Movable*>(a.at(1).get()) != nullptr);
  for (uint64_t seq : {0u, 1u})
    CHECK(a.at(seq)->unpack().to_vector() == b.at(seq)->unpack().to_vector());
  // Moved ones take no bytes of the budget.
  const auto items = policy.items();
  REQUIRE(items.size() == 2);
  CHECK(policy.allocate(items, policy.adaptive().bytes(items[1], 2), plan));
  CHECK(plan.bits.at(0) == 8);
  CHECK(plan.bits.at(1) == 2);
  CHECK_THROWS_AS(stays.adopt(plan), Error);  // nothing around it moves tensors
}

TEST_CASE("a plan survives in checkpoints, and what no run writes is refused") {
  BudgetPolicy a(small_budget()), b(small_budget());
  CHECK(a.learned().empty());
  CHECK(!a.state());
  b.restore_learned({});
  CHECK(!b.plan());
  BudgetPlan plan = mixed({{0, 3}, {2, kRaw}});
  plan.slice_bytes = 12345;
  plan.waiting_bits = 6;
  plan.margin = 77;
  a.adopt(plan);
  const Learned learned = a.learned();
  b.restore_learned(learned);
  REQUIRE(b.plan());
  CHECK(b.plan()->bits == plan.bits);
  CHECK(b.plan()->margin == 77);
  CHECK((b.learned() == learned));
  CHECK(b.slice_bytes() == 12345);
  const auto refuses = [&](const auto& change, const char* message) {
    Learned wrong = learned;
    change(wrong);
    CHECK_THROWS_WITH_AS(b.restore_learned(wrong), doctest::Contains(message), Error);
    CHECK((b.learned() == learned));
  };
  refuses([](Learned& l) { l.policy = "actnn"; }, "[budget] expected what version 1");
  refuses([](Learned& l) { l.version = 2; }, "[budget] expected what version 1");
  refuses([](Learned& l) { l.lists.erase("margin"); },
          "[budget] expected the list \"margin\" in what was learned, got none");
  refuses([](Learned& l) { l.lists["other"] = {1}; },
          "[budget] expected no list \"other\" in what was learned, got one of 1 numbers");
  refuses(
      [](Learned& l) {
        l.lists["mode"] = {1, 2};
      },
      "[budget] expected 1 numbers as \"mode\" of what was learned, got 2");
  refuses(
      [](Learned& l) {
        l.lists["tensors"] = {0, 0};
      },
      "[budget] expected each tensor once in \"tensors\" of what was learned, got 0 twice");
  refuses([](Learned& l) { l.lists["bits"][0] = 4; }, "for tensor 0, got 4 of 3");
  for (const auto& each : std::vector<std::pair<const char*, double>>{{"mode", 3},
                                                                      {"mode", NAN},
                                                                      {"slice_bytes", 0.5},
                                                                      {"slice_bytes", -1},
                                                                      {"waiting_bits", 0},
                                                                      {"waiting_bits", 17},
                                                                      {"moved", 1e300},
                                                                      {"margin", -1},
                                                                      {"fineness", 0.5},
                                                                      {"fineness", 17},
                                                                      {"tensors", -1},
                                                                      {"plan_bits", 17},
                                                                      {"plan_bits", 0},
                                                                      {"bits", 33}})
    refuses([&](Learned& l) { l.lists[each.first][0] = each.second; }, "[budget] expected");
}

TEST_CASE("widths that there are not are refused") {
  AdaptivePolicy policy{AdaptiveOptions{}};
  for (int bits : {0, 17, 31, 33}) CHECK_THROWS_AS(policy.set_bits(0, bits), Error);
  for (int bits : {0, 17}) CHECK_THROWS_AS(policy.set_waiting_bits(bits), Error);
}

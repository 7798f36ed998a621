// A budget that counts on what entropy coding saves.
#include <doctest/doctest.h>

#include <cmath>

#include "compress/entropy/coded_sizes.h"
#include "compress/policies/budget_policy.h"
#include "compress/policies/entropy_policy.h"
#include "compress/policies/offload_policy.h"
#include "tests/compress/offload/offload_samples.h"
#include "tests/compress/policies/budget_samples.h"
#include "tests/compress/policies/one_step.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;
using Item = AdaptivePolicy::Item;

namespace {

// A budget policy whose tensors are coded.
struct Coding {
  std::shared_ptr<BudgetPolicy> policy = std::make_shared<BudgetPolicy>(small_budget());
  std::shared_ptr<EntropyPolicy> outer =
      std::make_shared<EntropyPolicy>(policy, EntropyOptions{.min_bytes = 0});
};

// `share` of its elements are not 0.
Tensor sparse(const Shape& shape, float share = 0.1f) {
  std::vector<float> x(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = uniform({3, 0}, i) < share ? uniform({4, 0}, i) : 0.0f;
  return Tensor::from(x, shape);
}

}  // namespace

TEST_CASE("sizes: the most of this period and the last, at the widest width that was seen") {
  CodedSizes sizes;
  CHECK(!sizes.most(1, 16));
  sizes.saw(1, {4, 100});
  sizes.saw(1, {4, 120});
  sizes.saw(1, {4, 90});
  sizes.saw(1, {6, 200});
  CHECK(!sizes.most(1, 3));
  CHECK(sizes.most(1, 4)->bytes == 120);
  CHECK(sizes.most(1, 5)->bits == 4);
  CHECK(sizes.most(1, 9)->bytes == 200);
  CodedSizes other;
  other.restore(sizes.entries());
  CHECK((other.entries() == sizes.entries()));
  sizes.next_period();
  CHECK(sizes.most(1, 4)->bytes == 120);
  sizes.saw(1, {4, 70});
  CHECK(sizes.most(1, 4)->bytes == 120);
  sizes.next_period();
  CHECK(sizes.most(1, 4)->bytes == 70);
  CHECK(sizes.most(1, 6)->bits == 4);  // 6 was long ago
  sizes.next_period();
  sizes.next_period();
  CHECK(!sizes.most(1, 16));
  for (const CodedSizes::Entry& wrong :
       std::vector<CodedSizes::Entry>{{1, 17, 3, 3}, {1, 0, 3, 3}, {1, 4, -3, 3}, {1, 4, 3, -3}})
    CHECK_THROWS_AS(other.restore({wrong}), Error);
}

TEST_CASE("what coding saved buys bits, as far as it was seen") {
  const Coding coding;
  BudgetPolicy& policy = *coding.policy;
  const std::vector<Tensor> tensors{sparse({4096, 16}, 0.2f), sparse({4096, 16}, 0.3f)};
  policy.adopt(mixed({{0, 4}, {1, 4}}));
  const auto packed = step(*coding.outer, tensors);
  const auto items = policy.items();
  REQUIRE(items.size() == 2);
  for (const Item& item : items) {
    const int64_t plain = policy.adaptive().bytes(item, 4),
                  took = coded_bytes(*packed.at(item.seq));
    CHECK(took < plain * 3 / 4);
    CHECK(policy.bytes(item, 4) >= took);
    CHECK(policy.bytes(item, 4) <= took + plain / 50);
    // Fewer bits: nothing is known. More: half of what was saved.
    CHECK(policy.bytes(item, 3) == policy.adaptive().bytes(item, 3));
    const int64_t wider = policy.adaptive().bytes(item, 6);
    CHECK(policy.bytes(item, 6) >= wider - (plain - took) / 2);
    CHECK(policy.bytes(item, 6) < wider);
    CHECK(policy.bytes(item, AdaptivePolicy::kRaw) == item.raw_bytes);
  }
  BudgetPolicy plain(small_budget());
  plain.adopt(mixed({{0, 4}, {1, 4}}));
  step(plain, tensors);
  const int64_t budget = 2 * policy.adaptive().bytes(items[0], 4);
  BudgetPlan more = mixed({}), fewer = mixed({});
  REQUIRE(policy.allocate(items, budget, more));
  REQUIRE(plain.allocate(plain.items(), budget, fewer));
  CHECK(fewer.coded.empty());
  CHECK(BudgetPolicy::variance(items, more) < BudgetPolicy::variance(items, fewer));
  for (const Item& item : items) {
    CHECK(more.bits.at(item.seq) > fewer.bits.at(item.seq));
    CHECK(more.coded.at(item.seq) == policy.bytes(item, more.bits.at(item.seq)));
  }
  policy.adopt(more);
  int64_t all = 0;
  for (const auto& [seq, each] : step(*coding.outer, tensors)) all += coded_bytes(*each);
  CHECK(all <= budget);
}

TEST_CASE("what goes to a file is coded before, and comes back as it was") {
  const TempFolder folder;
  const Coding coding;
  BudgetPolicy& policy = *coding.policy;
  OffloadPolicy moves(coding.outer, {.directory = folder.path(), .window = 0});
  BudgetPolicy stays(small_budget());
  BudgetPlan plan = mixed({{0, 4}, {1, 8}});
  stays.adopt(plan);
  plan.moved = 1;
  policy.adopt(plan);
  const std::vector<Tensor> tensors{sparse({4096, 16}), sparse({4096, 16})};
  const auto a = step(moves, tensors), b = step(stays, tensors);
  for (uint64_t seq : {0u, 1u})
    CHECK(a.at(seq)->unpack().to_vector() == b.at(seq)->unpack().to_vector());
  const auto items = policy.items();
  REQUIRE(policy.sizes().most(0, 4));
  CHECK(policy.sizes().most(0, 4)->bytes < policy.adaptive().bytes(items[0], 4) / 2);
  // A plan may code nothing of it, too.
  policy.plan_codes(false);
  policy.limit(items, plan);
  CHECK(plan.coded == std::map<uint64_t, int64_t>{{0, 0}, {1, 0}});
  policy.adopt(plan);
  policy.sizes() = {};
  step(moves, tensors);
  CHECK(policy.sizes().empty());
}

TEST_CASE("tensors that code worse than expected take fewer bits, never more bytes") {
  const Coding coding;
  BudgetPolicy& policy = *coding.policy;
  policy.adopt(mixed({{0, 4}}));
  step(*coding.outer, {sparse({4096, 16})});
  BudgetPlan plan = mixed({{0, 4}});
  policy.limit(policy.items(), plan);
  policy.adopt(plan);
  CHECK(!policy.drifted());
  const int64_t most = plan.coded.at(0);
  CHECK(coded_bytes(*step(*coding.outer, {sparse({4096, 16})}).at(0)) <= most);
  CHECK(!policy.drifted());
  // Ever less to save, down to nothing.
  for (const float share : {0.2f, 0.4f, 1.0f}) {
    CAPTURE(share);
    const int64_t before = policy.sizes().most(0, 4)->bytes;
    const auto packed = step(*coding.outer, {sparse({4096, 16}, share)});
    CHECK(coded_bytes(*packed.at(0)) <= most);
    CHECK(policy.drifted());
    CHECK(!policy.drifted());
    CHECK(policy.sizes().most(0, 4)->bytes > before);
    double worst = 0;
    const Tensor x = sparse({4096, 16}, share), y = packed.at(0)->unpack();
    for (int64_t i = 0; i < x.numel(); ++i)
      worst = std::max(worst, std::abs(x.item(i) - y.item(i)));
    CHECK(worst < 1.01);
  }
  // What drifted is what the next plan has.
  policy.limit(policy.items(), plan);
  policy.adopt(plan);
  CHECK(plan.coded.at(0) == policy.adaptive().bytes(policy.items()[0], 4));
  CHECK(coded_bytes(*step(*coding.outer, {sparse({4096, 16}, 1)}).at(0)) <= plan.coded.at(0));
  CHECK(!policy.drifted());
  // Probes leave no trace.
  const Learned known = policy.learned();
  const AdaptivePolicy::Probe probe(policy.adaptive());
  step(*coding.outer, {sparse({2048, 16}, 0.01f)});
  CHECK((policy.learned() == known));
}

TEST_CASE("a tensor that is packed again at fewer bits is rounded anew") {
  AdaptiveOptions options;
  options.keep.min_elements = 0;
  AdaptivePolicy policy(options);
  const Tensor x = sparse({4096, 16}, 1);
  SaveInfo info;
  info.step = 3;
  // Roundings by one stream go up together: their errors at 4 and 3 bits would depend on each
  // other.
  const auto error = [&](const Packed& packed) {
    std::vector<double> errors = packed.unpack().to_vector();
    for (size_t i = 0; i < errors.size(); ++i) errors[i] -= x.item(static_cast<int64_t>(i));
    return errors;
  };
  const auto correlation = [](const std::vector<double>& a, const std::vector<double>& b) {
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      ab += a[i] * b[i];
      aa += a[i] * a[i];
      bb += b[i] * b[i];
    }
    return ab / std::sqrt(aa * bb);
  };
  QuantizeOptions first, narrower;
  first.bits = 4;
  narrower.bits = 3;
  const std::vector<double> once = error(*Quantizer(first).pack(x, info));
  const std::vector<double> again = error(*policy.pack_again(x, info, 3));
  CHECK(correlation(once, error(*Quantizer(narrower).pack(x, info))) > 0.05);
  CHECK(std::abs(correlation(once, again)) < 0.02);
  CHECK(std::abs(correlation(again, error(*policy.pack_again(x, info, 2)))) < 0.02);
  CHECK(again == error(*policy.pack_again(x, info, 3)));
}

TEST_CASE("on meta, tensors take what is expected of them, and what decoding takes") {
  const Coding coding;
  BudgetPolicy& policy = *coding.policy;
  policy.adopt(mixed({{0, 4}}));
  step(*coding.outer, {sparse({4096, 16})});
  BudgetPlan plan = mixed({{0, 4}});
  policy.limit(policy.items(), plan);
  policy.adopt(plan);
  const auto live = [](Category c) { return allocator(kMeta).report().of(c); };
  const int64_t packed_before = live(Category::packed), work_before = live(Category::workspace);
  {
    const auto packed = step(*coding.outer, {Tensor::empty({4096, 16}, DType::f32, kMeta)});
    CHECK(coded_bytes(*packed.at(0)) == plan.coded.at(0));
    CHECK(live(Category::packed) - packed_before >= plan.coded.at(0));
    CHECK(live(Category::packed) - packed_before < plan.coded.at(0) + 64);
    CHECK(packed.at(0)->unpack().device() == kMeta);
    CHECK(live(Category::workspace) - work_before >= policy.adaptive().bytes(policy.items()[0], 4));
  }
  CHECK(live(Category::packed) == packed_before);
  CHECK(live(Category::workspace) == work_before);
}

TEST_CASE("a plan may code nothing, or some tensors only") {
  const Coding coding;
  BudgetPolicy& policy = *coding.policy;
  policy.adopt(mixed({{0, 4}, {1, 4}}));
  const std::vector<Tensor> tensors{sparse({4096, 16}), sparse({4096, 16})};
  step(*coding.outer, tensors);
  const auto items = policy.items();
  policy.plan_codes(false);
  CHECK(policy.bytes(items[0], 4) == policy.adaptive().bytes(items[0], 4));
  BudgetPlan plan = mixed({{0, 4}, {1, 4}});
  policy.limit({items[0]}, plan);
  policy.plan_codes(true);
  policy.limit({items[1]}, plan);
  policy.adopt(plan);
  const auto packed = step(*coding.outer, tensors);
  CHECK(coded_bytes(*packed.at(0)) == policy.adaptive().bytes(items[0], 4));
  CHECK(coded_bytes(*packed.at(1)) <= plan.coded.at(1));
  CHECK(!policy.drifted());
}

TEST_CASE("sizes and limits survive in checkpoints, as do recipes that are kept") {
  const Coding coding, other;
  BudgetPolicy &a = *coding.policy, &b = *other.policy;
  BudgetPlan plan = mixed({{0, 4}, {3, 5}});
  plan.kept = {1, 2};
  a.adopt(plan);
  step(*coding.outer, {sparse({4096, 16})});
  plan.coded = {{0, 12345}};
  a.adopt(plan);
  const Learned learned = a.learned();
  b.restore_learned(learned);
  CHECK((b.learned() == learned));
  CHECK(b.plan()->kept == plan.kept);
  CHECK(b.plan()->coded == plan.coded);
  CHECK(b.plan()->bits == plan.bits);
  CHECK((b.sizes().entries() == a.sizes().entries()));
  CHECK(!b.sizes().empty());
  for (const char* list : {"coded", "coded_bytes", "sizes", "sizes_bits", "sizes_now"}) {
    CAPTURE(std::string(list));
    Learned wrong = learned;
    wrong.lists[list].pop_back();
    CHECK_THROWS_AS(b.restore_learned(wrong), Error);
  }
  for (const auto& each : std::vector<std::pair<const char*, double>>{
           {"coded_bytes", -1}, {"kept", 0.5}, {"sizes_bits", 17}, {"sizes_now", -1}}) {
    CAPTURE(std::string(each.first));
    Learned wrong = learned;
    wrong.lists[each.first][0] = each.second;
    CHECK_THROWS_AS(b.restore_learned(wrong), Error);
  }
  CHECK((b.learned() == learned));
}

TEST_CASE("recipes that the plan keeps are raw") {
  const Coding coding;
  BudgetPolicy& policy = *coding.policy;
  const Tensor x = sparse({64, 8});
  SaveInfo info;
  info.rebuilt = Rebuilt::unbiased;
  info.recipe_elements = 10;
  BudgetPlan plan = mixed({});
  policy.adopt(plan);
  CHECK(policy.decide(info, x).what == Decision::rebuild);
  info.seq = 1;
  info.rebuilt = Rebuilt::exact;
  CHECK(policy.decide(info, x).what == Decision::rebuild);
  REQUIRE(policy.recipes().size() == 2);
  CHECK(policy.recipes()[0].lossy);
  CHECK(!policy.recipes()[1].lossy);
  CHECK(policy.recipes()[0].rebuilt == 64 * 8 + 10);
  CHECK(policy.recipes()[0].raw_bytes == 64 * 8 * 4);
  for (const auto mode : {BudgetPlan::mixed, BudgetPlan::exact}) {
    plan.mode = mode;
    plan.kept = {1};
    policy.adopt(plan);
    CHECK(policy.decide(info, x).what == Decision::raw);
    plan.kept = {};
    policy.adopt(plan);
    CHECK(policy.decide(info, x).what == Decision::rebuild);
  }
}

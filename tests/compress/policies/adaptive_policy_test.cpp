#include "compress/policies/adaptive_policy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/dense/bitmask.h"
#include "tests/compress/policies/one_step.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

AdaptiveOptions adaptive_options(double average) {
  AdaptiveOptions options;
  options.average = average;
  options.keep.min_elements = 100;
  return options;
}

int64_t bytes(const Packed& packed) {
  return dynamic_cast<const Quantized&>(packed).payload().numel();
}

}  // namespace

TEST_CASE("before anything is measured, every tensor has the average") {
  AdaptivePolicy policy(adaptive_options(2));
  const auto packed = step(policy, {waves({64, 8}), waves({4}), waves({128, 8})});
  CHECK(packed.size() == 2);  // the small one is raw
  const auto items = policy.items();
  REQUIRE(items.size() == 2);
  CHECK(items[0].seq == 0);
  CHECK(items[1].seq == 2);
  CHECK(items[1].elements == 1024);
  for (const auto& item : items) CHECK(item.bits == 2);
  CHECK(bytes(*packed.at(0)) == Quantizer({2}).packed_bytes({64, 8}));
  policy.allocate();  // nothing was measured
  CHECK(policy.average_bits() == 2);
}

TEST_CASE("bits go where they matter, within the average") {
  AdaptivePolicy policy(adaptive_options(4));
  const std::vector<Tensor> tensors{waves({256, 8}), waves({256, 8}), waves({256, 8})};
  step(policy, tensors);
  policy.measured(0, 100, 7);
  policy.measured(1, 1, 7);
  policy.measured(2, 0.01, 7);
  const double before = policy.predicted_variance();
  CHECK(before == doctest::Approx(101.01 / 225));
  policy.allocate();
  const auto items = policy.items();
  CHECK(items[0].bits > items[1].bits);
  CHECK(items[1].bits > items[2].bits);
  CHECK(policy.average_bits() <= 4);
  CHECK(policy.predicted_variance() < before / 10);
  CHECK(items[0].measured == 7);
  int64_t total = 0;
  for (const auto& [seq, packed] : step(policy, tensors)) total += bytes(*packed);
  CHECK(total <= 3 * Quantizer({4}).packed_bytes({256, 8}));
}

TEST_CASE("greedy widths are those of the published program, within the average of codes") {
  AdaptiveOptions options = adaptive_options(4);
  options.greedy = true;
  AdaptivePolicy policy(options);
  const std::vector<Tensor> tensors{waves({256, 8}), waves({256, 8}), waves({256, 8}),
                                    waves({64, 8})};
  step(policy, tensors);
  policy.measured(0, 100, 7);
  policy.measured(1, 1, 7);
  policy.measured(2, 0.01, 7);
  policy.measured(3, 1e5, 7);
  policy.allocate();
  const std::vector<AdaptivePolicy::Item> items = policy.items();
  for (const auto& item : items) {
    const std::vector<int> widths = {1, 2, 4, 8, AdaptivePolicy::kRaw};
    CHECK(std::find(widths.begin(), widths.end(), item.bits) != widths.end());
  }
  CHECK(policy.average_bits() <= 4);
  REQUIRE(items.size() == 4);
  CHECK(items[0].bits == 4);  // item 3 leaves raw only after this step
  CHECK(items[1].bits == 2);
  CHECK(items[2].bits == 1);
  CHECK(items[3].bits == 8);
  AdaptivePolicy other(options);
  other.restore(policy.state());
  CHECK(other.items() == items);
}

TEST_CASE("before anything is measured, tensors have the average, between two widths") {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 10; ++i) tensors.push_back(waves({256 + 64 * (i % 3), 8}));
  for (const double average : {2.1, 2.5, 2.9, 4.0}) {
    AdaptivePolicy policy(adaptive_options(average));
    step(policy, tensors);
    CHECK(policy.average_bits() == doctest::Approx(average).epsilon(0.05));
    for (const auto& item : policy.items())
      CHECK((item.bits == std::floor(average) || item.bits == std::ceil(average)));
  }
}

TEST_CASE("the average can change in mid-run") {
  const std::vector<Tensor> tensors = {waves({256, 8}), waves({256, 8})};
  AdaptivePolicy policy(adaptive_options(4));
  step(policy, tensors);
  policy.set_average(2.5);  // nothing is measured yet: widths around it, as many of each
  CHECK(policy.average() == 2.5);
  CHECK(policy.average_bits() == 2.5);
  policy.measured(0, 100, 1);
  policy.measured(1, 1, 1);
  policy.set_average(5);
  CHECK(policy.average_bits() > 4.4);
  CHECK(policy.average_bits() <= 5);
  CHECK(policy.items()[0].bits > policy.items()[1].bits);
  CHECK(bytes(*step(policy, tensors).at(0)) ==
        Quantizer({policy.items()[0].bits}).packed_bytes({256, 8}));
  CHECK_THROWS_AS(policy.set_average(0.5), Error);
  CHECK_THROWS_AS(policy.set_average(17), Error);
}

TEST_CASE("tensors that were never measured count like the mean of the others") {
  AdaptivePolicy policy(adaptive_options(4));
  step(policy, {waves({256, 8}), waves({256, 8})});
  policy.measured(0, 3, 0);
  policy.allocate();
  for (const auto& item : policy.items()) CHECK(item.bits == 4);
}

TEST_CASE("the relative variance of a width counts the codes that a sign takes") {
  AdaptivePolicy::Item plain, relu, residual;
  relu.has_sign = residual.has_sign = true;
  residual.slope = 1;
  CHECK(AdaptivePolicy::variance(plain, 1) == 1);
  CHECK(AdaptivePolicy::variance(plain, 4) == doctest::Approx(1.0 / 225));
  // 3 codes each, in 1 and in 15 of 16 rows; 2 and 14; 26 and 230; errors count 1/729 and 1.
  CHECK(AdaptivePolicy::variance(relu, 2) ==
        doctest::Approx((0.25 + 0.6 / 16) * 16 / 15 + (0.25 + 0.6 * 15 / 16) * 16 / 729));
  CHECK(AdaptivePolicy::variance(relu, 4) == doctest::Approx(1.0 / 169 + 1.0 / 729));
  CHECK(AdaptivePolicy::variance(relu, 8) == doctest::Approx(1.0 / 229 / 229 + 1.0 / 729 / 625));
  CHECK(AdaptivePolicy::variance(residual, 2) == doctest::Approx(2));
  AdaptivePolicy policy(adaptive_options(4));
  const Tensor x = waves({64, 8}), mask = ops::empty_bitmask({64, 8}, kCpu);
  std::fill_n(Tensor(mask).mut<uint8_t>(), mask.numel(), uint8_t{0x5a});
  const Sign sign{mask, 0};
  step(policy, {x}, &sign);
  CHECK(policy.items().at(0).has_sign);
}

TEST_CASE("a probe repeats the step's decisions with one tensor rounded otherwise") {
  AdaptivePolicy policy(adaptive_options(4));
  const std::vector<Tensor> tensors{waves({64, 8}), waves({64, 8}), waves({32})};
  const auto plain = step(policy, tensors);
  auto same = [&](const auto& others, uint64_t seq) {
    return plain.at(seq)->unpack().to_vector() == others.at(seq)->unpack().to_vector();
  };
  {
    const AdaptivePolicy::Probe probe(policy);
    const auto again = step(policy, tensors);
    CHECK(same(again, 0));
    CHECK(same(again, 1));
    CHECK_THROWS_AS(AdaptivePolicy::Probe(policy, 0), Error);
  }
  {
    const AdaptivePolicy::Probe probe(policy, 1);
    const auto other = step(policy, tensors);
    CHECK(same(other, 0));
    CHECK(!same(other, 1));
    // Smaller batches: below min_elements, and packed all the same.
    const auto part = step(policy, {waves({8, 8}), waves({8, 8}), waves({4})});
    CHECK(part.size() == 2);
  }
  CHECK(policy.items().at(0).elements == 512);
  CHECK(same(step(policy, tensors), 1));
}

TEST_CASE("a probe keeps raw what is raw by now, and packs what no longer is") {
  AdaptivePolicy policy(adaptive_options(4));
  const std::vector<Tensor> tensors{waves({64, 8}), waves({64, 8})};
  policy.set_bits(1, AdaptivePolicy::kRaw);
  CHECK(step(policy, tensors).size() == 1);
  policy.set_bits(0, AdaptivePolicy::kRaw);  // a new plan, before the next step
  policy.set_bits(1, 3);
  const AdaptivePolicy::Probe probe(policy);
  const auto packed = step(policy, tensors);
  REQUIRE(packed.size() == 1);
  CHECK(bytes(*packed.at(1)) == Quantizer({3}).packed_bytes({64, 8}));
}

TEST_CASE("the policy goes on where it was") {
  const std::vector<Tensor> tensors{waves({256, 8}), waves({128, 8})};
  AdaptivePolicy a(adaptive_options(3)), b(adaptive_options(3));
  step(a, tensors);
  a.measured(0, 5, 1);
  a.measured(1, 0.25, 2);
  a.allocate();
  b.restore(a.state());
  const auto x = step(a, tensors), y = step(b, tensors);
  for (uint64_t seq : {0u, 1u})
    CHECK(x.at(seq)->unpack().to_vector() == y.at(seq)->unpack().to_vector());
  a.allocate();
  b.allocate();
  CHECK(a.predicted_variance() == b.predicted_variance());
  CHECK(b.items()[1].measured == 2);
}

TEST_CASE("the policy goes on where it was after a smaller step") {
  const std::vector<Tensor> whole{waves({256, 8}), waves({128, 8}), waves({64, 8})};
  const std::vector<Tensor> part{waves({96, 8}), waves({48, 8})};
  AdaptivePolicy a(adaptive_options(3.5)), b(adaptive_options(2));
  step(a, whole);
  a.measured(0, 5, 1);
  a.measured(2, 0.25, 2);
  a.set_average(3);
  step(a, part);
  a.set_bits(7, 5);  // a plan does this for a tensor that no step has had yet
  b.restore(a.state());
  CHECK(b.average() == 3);
  CHECK(b.items() == a.items());
  CHECK(b.items().size() == 2);
  CHECK(b.state().items == a.state().items);
  CHECK(b.state().decisions == a.state().decisions);
  CHECK(b.average_bits() == a.average_bits());
  {  // What repeats the last step has its decisions.
    const AdaptivePolicy::Probe x(a), y(b);
    const auto p = step(a, whole), q = step(b, whole);
    REQUIRE(p.size() == q.size());
    for (const auto& [seq, packed] : p)
      CHECK(packed->unpack().to_vector() == q.at(seq)->unpack().to_vector());
  }
  a.allocate();
  b.allocate();
  CHECK(b.state().items == a.state().items);
}

TEST_CASE("a state with impossible values is refused and changes nothing") {
  AdaptivePolicy policy(adaptive_options(3));
  step(policy, {waves({256, 8}), waves({128, 8})});
  const AdaptivePolicy::State good = policy.state();
  {
    // What checkpoints keep says all.
    const Learned learned = policy.learned();
    const AdaptivePolicy::State again = AdaptivePolicy::State::read(learned);
    CHECK(again.average == good.average);
    CHECK(again.items == good.items);
    CHECK(again.decisions == good.decisions);
    AdaptivePolicy::State read_by_products = good;
    read_by_products.items[1].source_bits = 3;
    CHECK(AdaptivePolicy::State::read(read_by_products.write()).items == read_by_products.items);
    Learned wrong = learned;
    wrong.lists["bits"].push_back(4);
    CHECK_THROWS_AS(policy.restore_learned(wrong), Error);
    wrong = learned;
    wrong.policy = "other";
    CHECK_THROWS_AS(policy.restore_learned(wrong), Error);
    CHECK((policy.learned() == learned));
  }
  const auto refused = [&](const std::function<void(AdaptivePolicy::State&)>& change) {
    AdaptivePolicy::State wrong = good;
    change(wrong);
    CHECK_THROWS_AS(policy.restore(wrong), Error);
    CHECK(policy.state().items == good.items);
    CHECK(policy.state().decisions == good.decisions);
  };
  for (const double average : {0.0, -1.0, 17.0, std::nan("")})
    refused([&](auto& s) { s.average = average; });
  for (const int bits : {0, 17, -1, 33}) refused([&](auto& s) { s.items[0].bits = bits; });
  for (const double c : {-1.0, HUGE_VAL, std::nan("")})
    refused([&](auto& s) { s.items[0].sensitivity = c; });
  for (const double slope : {-1.0, HUGE_VAL, std::nan("")})
    refused([&](auto& s) { s.items[0].slope = slope; });
  refused([](auto& s) { s.items[0].elements += 1; });
  refused([](auto& s) { s.items[0].shape[0] = -256; });
  refused([](auto& s) { s.items[0].shape = Shape{int64_t{1} << 40, int64_t{1} << 40}; });
  refused([](auto& s) { s.items[0].raw_bytes = -1; });
  for (const int bits : {-1, 17}) refused([&](auto& s) { s.items[0].source_bits = bits; });
  refused([](auto& s) { s.items[0].measured = -2; });
  refused([](auto& s) { s.items.push_back(AdaptivePolicy::Item(s.items[0])); });
  refused([](auto& s) { s.decisions.push_back(s.decisions[0]); });
  refused([](auto& s) { s.decisions[0].packs = false; });
  refused([](auto& s) { s.decisions[0].what = static_cast<Decision::What>(3); });
}

TEST_CASE("impossible averages and sensitivities are refused") {
  CHECK_THROWS_AS(AdaptivePolicy(adaptive_options(0.5)), Error);
  CHECK_THROWS_AS(AdaptivePolicy(adaptive_options(17)), Error);
  AdaptiveOptions narrow = adaptive_options(4);
  narrow.max_bits = 3;
  CHECK_THROWS_AS(AdaptivePolicy{narrow}, Error);
  AdaptivePolicy policy(adaptive_options(4));
  step(policy, {waves({64, 8})});
  CHECK_THROWS_AS(policy.measured(9, 1, 0), Error);
  CHECK_THROWS_AS(policy.measured(0, -1, 0), Error);
  CHECK_THROWS_AS(policy.measured(0, NAN, 0), Error);
}

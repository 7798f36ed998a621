
#include <doctest/doctest.h>

#include <filesystem>

#include "compress/policies/acgc_policy.h"
#include "compress/policies/actnn_policy.h"
#include "compress/policies/adaptive_policy.h"
#include "compress/policies/budget_policy.h"
#include "compress/policies/choice.h"
#include "compress/policies/entropy_policy.h"
#include "compress/policies/offload_policy.h"
#include "core/error.h"

namespace frugal::compress {
namespace {

// The policy that the options make. It must be of this class.
template <class Policy, class Options>
std::unique_ptr<Policy> made_of(const Options& options) {
  std::unique_ptr<SavePolicy> policy = make_policy({.policy = options}, kCpu, 9);
  auto* found = dynamic_cast<Policy*>(policy.get());
  REQUIRE(found != nullptr);
  policy.release();
  return std::unique_ptr<Policy>(found);
}

TEST_CASE("options of a policy make that policy, with these options") {
  const FixedPolicyOptions keep{
      .bits = 3, .group = 64, .slice_bytes = 4096, .rounding = Rounding::nearest};
  const auto fixed = made_of<FixedPolicy>(keep);
  CHECK(fixed->bits() == 3);
  CHECK(fixed->slice_bytes() == 4096);
  CHECK(fixed->codec().options().bits == 3);
  CHECK(fixed->codec().options().group == 64);
  CHECK(fixed->codec().options().rounding == Rounding::nearest);
  CHECK(fixed->codec().options().seed == 9);
  CHECK(made_of<FixedPolicy>(FixedPolicyOptions{.bits = 0})->lossy() == false);

  const auto adaptive =
      made_of<AdaptivePolicy>(AdaptiveOptions{.average = 5, .min_bits = 2, .max_bits = 7});
  CHECK(adaptive->average() == 5);
  CHECK(adaptive->fineness_range().least == 2);
  CHECK(adaptive->fineness_range().most == 7);
  CHECK(made_of<AdaptivePolicy>(AdaptiveOptions{.keep = keep})->fineness() == 0);  // to nearest

  const ActnnOptions mixed{.average = 2.5, .mixed = true, .interval = 6};
  const auto actnn = made_of<ActnnPolicy>(mixed);
  CHECK(actnn->average() == 2.5);
  CHECK(actnn->learns_at(6));
  CHECK(!actnn->learns_at(7));
  CHECK(!made_of<ActnnPolicy>(ActnnOptions{.interval = 6})->learns_at(6));  // one width

  const auto acgc = made_of<AcgcPolicy>(AcgcOptions{.e = 0.5, .interval = 6});
  CHECK(acgc->e() == 0.5);
  acgc->restore({.last_step = 4, .e = 0.5, .fineness = acgc->fineness(), .bounds2 = {}});
  CHECK(!acgc->learns_at(9));
  CHECK(acgc->learns_at(10));
  CHECK(acgc->fineness() > 0);
  CHECK(made_of<AcgcPolicy>(AcgcOptions{.rounding = Rounding::nearest})->fineness() == 0);

  CHECK(made_of<BudgetPolicy>(BudgetPolicyOptions{})->adaptive().fineness() > 0);
  CHECK(made_of<BudgetPolicy>(BudgetPolicyOptions{.keep = keep})->adaptive().fineness() == 0);
}

TEST_CASE("entropy coding wraps the policy, and a file wraps both") {
  Choice options{.policy = AdaptiveOptions{}, .entropy = true};
  options.offload = OffloadOptions{.directory = std::filesystem::temp_directory_path().string()};
  const auto policy = make_policy(options, kCpu, 0);
  auto* offload = dynamic_cast<OffloadPolicy*>(policy.get());
  REQUIRE(offload != nullptr);
  auto* entropy = dynamic_cast<EntropyPolicy*>(&offload->inner());
  REQUIRE(entropy != nullptr);
  CHECK(dynamic_cast<AdaptivePolicy*>(&entropy->inner()) != nullptr);
  options.offload->directory = "/nowhere";
  CHECK_THROWS_AS(make_policy(options, kCpu, 0), Error);
}

TEST_CASE("a device decides rounding and slices") {
  const auto keep = [](const FixedPolicyOptions& options, Device device) {
    return std::get<AdaptiveOptions>(
               on_device({.policy = AdaptiveOptions{.keep = options}}, device).policy)
        .keep;
  };
  CHECK(keep({}, kCpu).rounding == Rounding::dithered);
  CHECK(keep({}, kCpu).slice_bytes == SavePolicy::kSliceBytes);
  const Device cuda{DeviceType::cuda, 0};
  CHECK(keep({}, cuda).rounding == Rounding::stochastic);
  CHECK(*keep({}, cuda).slice_bytes > SavePolicy::kSliceBytes);
  const FixedPolicyOptions own{.slice_bytes = 7, .rounding = Rounding::nearest};
  CHECK(keep(own, cuda) == own);
}

}  // namespace
}  // namespace frugal::compress

#include "compress/policies/make_policy.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "compress/policies/acgc_policy.h"
#include "compress/policies/actnn_policy.h"
#include "compress/policies/entropy_policy.h"
#include "compress/policies/offload_policy.h"
#include "core/error.h"

namespace frugal::compress {
namespace {

template <class Policy, class Options>
bool makes(const Options& options) {
  const auto policy = make_policy({.policy = options}, kCpu, 0);
  return dynamic_cast<Policy*>(policy.get()) != nullptr;
}

TEST_CASE("options of a policy make that policy") {
  CHECK(makes<FixedPolicy>(FixedPolicyOptions{}));
  CHECK(makes<AdaptivePolicy>(AdaptiveOptions{}));
  CHECK(makes<ActnnPolicy>(ActnnOptions{}));
  CHECK(makes<AcgcPolicy>(AcgcOptions{}));
  CHECK(makes<BudgetPolicy>(BudgetPolicyOptions{}));
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

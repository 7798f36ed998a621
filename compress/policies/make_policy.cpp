#include "compress/policies/make_policy.h"

#include <type_traits>

#include "compress/policies/entropy_policy.h"

namespace frugal::compress {
namespace {

std::unique_ptr<SavePolicy> made(const FixedPolicyOptions& options) {
  return std::make_unique<FixedPolicy>(options);
}
std::unique_ptr<SavePolicy> made(const AdaptiveOptions& options) {
  return std::make_unique<AdaptivePolicy>(options);
}
std::unique_ptr<SavePolicy> made(const ActnnOptions& options) {
  return std::make_unique<ActnnPolicy>(options);
}
std::unique_ptr<SavePolicy> made(const AcgcOptions& options) {
  return std::make_unique<AcgcPolicy>(options);
}
std::unique_ptr<SavePolicy> made(const BudgetPolicyOptions& options) {
  return std::make_unique<BudgetPolicy>(options);
}

const FixedPolicyOptions& keep_in(const PolicyOptions& options) {
  return std::visit(
      [](const auto& policy) -> const FixedPolicyOptions& {
        if constexpr (std::is_same_v<std::decay_t<decltype(policy)>, FixedPolicyOptions>)
          return policy;
        else
          return policy.keep;
      },
      options.policy);
}

}  // namespace

std::unique_ptr<SavePolicy> make_policy(const PolicyOptions& options) {
  std::unique_ptr<SavePolicy> policy =
      std::visit([](const auto& of) { return made(of); }, options.policy);
  if (options.entropy) policy = std::make_unique<EntropyPolicy>(std::move(policy));
  if (options.profile != nullptr)
    policy = std::make_unique<ProfiledPolicy>(std::move(policy), *options.profile);
  if (!options.offload) return policy;
  return std::make_unique<OffloadPolicy>(std::move(policy), *options.offload,
                                         keep_in(options).min_elements);
}

FixedPolicyOptions defaults_on(Device device) {
  FixedPolicyOptions options;
  options.rounding = Rounding::dithered;
  if (device.type == DeviceType::cuda) {
    // Drawing the dither again would bound the time of unpacking.
    options.rounding = Rounding::stochastic;
    // Kernels on 8 MiB last about as long as it takes to launch them, and a large activation has a
    // hundred of such slices. On 64 MiB they last ten times as long, at a thousandth of a GPU's
    // memory.
    options.slice_bytes = int64_t{64} << 20;
  }
  return options;
}

}  // namespace frugal::compress

#include "compress/policies/choice.h"

#include "compress/policies/acgc_policy.h"
#include "compress/policies/actnn_policy.h"
#include "compress/policies/adaptive_policy.h"
#include "compress/policies/budget_policy.h"
#include "compress/policies/entropy_policy.h"
#include "compress/policies/offload_policy.h"
#include "compress/policies/width_profile.h"

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

}  // namespace

std::unique_ptr<SavePolicy> make_policy(const Choice& choice, Device device, uint64_t seed) {
  Choice seeded = on_device(choice, device);
  seeded.keep().seed = seed;
  std::unique_ptr<SavePolicy> policy = std::visit(
      [&](const auto& options) -> std::unique_ptr<SavePolicy> {
        if constexpr (std::is_same_v<std::decay_t<decltype(options)>, OwnPolicy>)
          return options.make(device, seed);
        else
          return made(options);
      },
      seeded.policy);
  FRUGAL_CHECK(policy != nullptr, "[compression] expected a policy of one's own, got none");
  if (choice.entropy) policy = std::make_unique<EntropyPolicy>(std::move(policy));
  if (choice.profile != nullptr)
    policy = std::make_unique<ProfiledPolicy>(std::move(policy), *choice.profile);
  if (!choice.offload) return policy;
  return std::make_unique<OffloadPolicy>(std::move(policy), *choice.offload,
                                         choice.keep().min_elements,
                                         device == kMeta ? kMeta : kCpu);
}

Rounding rounding_on(Device device) {
  // On CUDA, drawing the dither again would bound the time of unpacking.
  return device.type == DeviceType::cuda ? Rounding::stochastic : Rounding::dithered;
}

int64_t slice_bytes_on(Device device) {
  // On CUDA, kernels on 8 MiB last about as long as it takes to launch them, and a large activation
  // has a hundred of such slices. On 64 MiB they last ten times as long, at a thousandth of a GPU's
  // memory.
  return device.type == DeviceType::cuda ? int64_t{64} << 20 : SavePolicy::kSliceBytes;
}

Choice on_device(Choice choice, Device device) {
  FixedPolicyOptions& keep = choice.keep();
  if (!keep.rounding) keep.rounding = rounding_on(device);
  if (!keep.slice_bytes) keep.slice_bytes = slice_bytes_on(device);
  return choice;
}

}  // namespace frugal::compress

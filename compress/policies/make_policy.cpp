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

template <class Options>
auto& keep_in(Options& options) {
  return std::visit(
      [](auto& policy) -> auto& {
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

PolicyOptions on_device(PolicyOptions options, Device device) {
  FixedPolicyOptions& keep = keep_in(options);
  if (!keep.rounding) keep.rounding = rounding_on(device);
  if (!keep.slice_bytes) keep.slice_bytes = slice_bytes_on(device);
  return options;
}

}  // namespace frugal::compress

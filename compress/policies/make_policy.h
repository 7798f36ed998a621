// A policy with all that wraps it, from options: the way that the library and the program share.
#pragma once
#include <memory>
#include <optional>
#include <variant>

#include "compress/policies/acgc_policy.h"
#include "compress/policies/actnn_policy.h"
#include "compress/policies/adaptive_policy.h"
#include "compress/policies/budget_policy.h"
#include "compress/policies/fixed_policy.h"
#include "compress/policies/offload_policy.h"
#include "compress/policies/width_profile.h"

namespace frugal::compress {

struct PolicyOptions {
  std::variant<FixedPolicyOptions, AdaptiveOptions, ActnnOptions, AcgcOptions, BudgetPolicyOptions>
      policy;
  bool entropy = false;                              // packed bytes are coded without loss
  std::shared_ptr<const WidthProfile> profile = {};  // the widths of steps on meta
  std::optional<OffloadOptions> offload = {};        // packed bytes are moved to a file
};

// Errors: those of the policy, and of its file.
std::unique_ptr<SavePolicy> make_policy(const PolicyOptions& options);

// What suits a device, where options leave rounding and slices open.
Rounding rounding_on(Device device);
int64_t slice_bytes_on(Device device);
// The same options, with what suits the device where they leave it open.
PolicyOptions on_device(PolicyOptions options, Device device);

}  // namespace frugal::compress

// From the configuration to the choice of how activations are kept.
#pragma once
#include "apps/config/config.h"
#include "compress/policies/choice.h"

namespace frugal::apps {

// What a configuration leaves open before resolve() is open in the choice, too.
// Errors (ConfigError): rounding or groups that the policy cannot use.
compress::Choice make_choice(const CompressionConfig& config);

// What steps on meta take an element to need with policy acgc, without a profile.
double assumed_acgc_bits(const CompressionConfig& config);

}  // namespace frugal::apps

// A choice becomes the policy that keeps activations, with all that wraps it.
#pragma once
#include <memory>

#include "compress/policies/choice.h"

namespace frugal::compress {

// `seed` drives the rounding. On `meta`, where no bytes are moved, the policy takes no memory for a
// file. Errors: those of the policy, and of its file.
std::unique_ptr<SavePolicy> make_policy(const Choice& choice, Device device, uint64_t seed);

// What suits a device, where a choice leaves rounding and slices open.
Rounding rounding_on(Device device);
int64_t slice_bytes_on(Device device);
// Returns the choice with what suits the device, where it leaves rounding and slices open.
Choice on_device(Choice choice, Device device);

}  // namespace frugal::compress

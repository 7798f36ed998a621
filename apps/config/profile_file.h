// Profiles of widths in files (compress/policies/width_profile.h): `frugal bench step
// --record-profile` writes one, and compression.advanced.profile names one for steps on `meta`.
#pragma once
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "compress/policies/width_profile.h"

namespace frugal::apps {

// A run and the bytes of its packed tensors.
struct RecordedRun {
  Config config;  // as resolve() leaves it
  compress::WidthProfile profile;
};

// Errors: a file that cannot be written.
void write_profiles(const std::string& path, const std::vector<RecordedRun>& runs);

// The profile of a run like this one: the same network, and the same keys of those that decide
// which tensors are packed and in how many bits. Batches and the device may differ. Errors
// (ConfigError): a file that is no profile; no such run in it, naming the key that differs.
compress::WidthProfile read_profile(const std::string& path, const Config& config);

// What widths a step on `meta` counts with, where they depend on values: those of a profile, or an
// average; empty: they do not. REQUIRES: `config` as resolve() leaves it.
std::string widths_on_meta(const Config& config);

// Gives that text where the bytes of a run may be others, and says what the first step of a run
// takes; empty elsewhere.
std::string assumed_on_meta(const Config& config);

}  // namespace frugal::apps

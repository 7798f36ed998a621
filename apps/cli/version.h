// The version that `frugal --version`, summaries and checkpoints carry.
#pragma once

namespace frugal::apps {

#ifndef FRUGAL_VERSION
#error "FRUGAL_VERSION comes from the build"
#endif
inline constexpr const char* kVersion = FRUGAL_VERSION;

}  // namespace frugal::apps

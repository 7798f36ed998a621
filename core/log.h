// Logging through spdlog to stderr. Level from FRUGAL_LOG (trace, debug, info, warn, error, off);
// default info.
#pragma once
#include <spdlog/spdlog.h>

namespace frugal {

spdlog::logger& log();

}  // namespace frugal

// Numbers of bytes as people write them.
#pragma once
#include <cstdint>
#include <string>

namespace frugal::train {

std::string readable_bytes(int64_t bytes);  // "12.3 MiB"

// "2 GiB", "512MB", "1048576" as bytes. REQUIRES: matches kBytesPattern. Errors: 8 EiB or more,
// OptionError with `path`.
inline constexpr const char* kBytesPattern = "^[0-9]+([.][0-9]+)? *([KMGT]i?B|B)?$";
int64_t parse_bytes(const std::string& text, const std::string& path = "memory_limit");

}  // namespace frugal::train

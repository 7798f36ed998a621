// Numbers of bytes as people write them.
#pragma once
#include <cstdint>
#include <string>

namespace frugal::train {

std::string readable_bytes(int64_t bytes);  // "12.3 MiB"
// Three digits and a unit: "5.95G", "512M", "64"; K, M, G and T are powers of 1024.
std::string short_bytes(int64_t bytes);
std::string round_bytes(double bytes);    // for the ticks of an axis: "256 MiB", "1.5 GiB"
std::string decimal_bytes(double bytes);  // as papers write them: "5.28 GB", "4.0 MB"

// Gives the bytes of "2 GiB", "512MB", "4 kB", "1G" or "1048576". KB, MB, GB and TB are powers of
// 1000. KiB, MiB, GiB and TiB are powers of 1024, and so are K, M, G and T, as in short_bytes().
// Capitals do not count.
// REQUIRES: matches kBytesPattern. Errors: 8 EiB or more, OptionError with `path`.
inline constexpr const char* kBytesPattern = "^[0-9]+([.][0-9]+)? *([kKmMgGtT]([iI]?[bB])?|[bB])?$";
int64_t parse_bytes(const std::string& text, const std::string& path = "memory_limit");

}  // namespace frugal::train

// SHA-256 sums as 64 hexadecimal digits. Ref: FIPS 180-4.
#pragma once
#include <string>
#include <string_view>

namespace frugal::data {

std::string sha256_hex(std::string_view text);
std::string sha256_of_file(const std::string& path);  // Errors: the file cannot be read

}  // namespace frugal::data

// SHA-256. Ref: FIPS 180-4.
#pragma once
#include <string>
#include <string_view>

namespace frugal::apps {

std::string sha256_hex(std::string_view text);  // 64 hexadecimal digits

}  // namespace frugal::apps

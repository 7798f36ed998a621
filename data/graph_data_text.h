// Words of a file in messages. Internal to data.
#pragma once
#include <string>
#include <string_view>

namespace frugal::data {

// In quotes, at most 100 bytes of it, whatever is no printable ASCII as \xHH: files may hold any
// bytes, and fmt's own {:?} (9.1) reads beyond the end of cut UTF-8.
inline std::string in_quotes(std::string_view text) {
  constexpr const char* kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text.substr(0, 100)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    } else {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15u];
    }
  }
  return out += '"';
}

}  // namespace frugal::data

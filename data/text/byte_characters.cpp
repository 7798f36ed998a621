#include "data/text/byte_characters.h"

#include <array>

#include "data/text/unicode.h"

namespace frugal::data {
namespace {

struct ByteCharacters {
  std::array<char32_t, 256> character{};
  std::array<int16_t, 512> byte{};  // by character; -1: it stands for no byte
  ByteCharacters() {
    byte.fill(-1);
    char32_t next = 256;
    for (char32_t b = 0; b < 256; ++b) {
      const bool printable = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
      character[b] = printable ? b : next++;
      byte[character[b]] = static_cast<int16_t>(b);
    }
  }
};

const ByteCharacters& byte_characters() {
  static const ByteCharacters map;
  return map;
}

}  // namespace

std::optional<std::string> bytes_of_characters(std::string_view characters) {
  const ByteCharacters& map = byte_characters();
  std::string bytes;
  for (size_t at = 0; at < characters.size();) {
    const CodePoint point = next_code_point(characters, at);
    if (!point.valid || point.code >= map.byte.size() || map.byte[point.code] < 0)
      return std::nullopt;
    bytes += static_cast<char>(map.byte[point.code]);
  }
  return bytes;
}

void append_byte_characters(std::string& text, std::string_view bytes) {
  for (const char byte : bytes)
    append_utf8(text, byte_characters().character[static_cast<uint8_t>(byte)]);
}

}  // namespace frugal::data

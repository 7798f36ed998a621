// The texts of PickleMachine that a file holds in another form.
#include <cstdint>

#include "data/formats/pickle_machine.h"

namespace frugal::data {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

void append_utf8(std::string& out, uint32_t point) {
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xc0u | point >> 6);
    out += static_cast<char>(0x80u | (point & 0x3fu));
  } else {
    out += static_cast<char>(0xe0u | point >> 12);
    out += static_cast<char>(0x80u | (point >> 6 & 0x3fu));
    out += static_cast<char>(0x80u | (point & 0x3fu));
  }
}

}  // namespace

std::string_view PickleMachine::unescape(std::string_view text) {
  if (text.size() < 2 || (text[0] != '\'' && text[0] != '"') || text.back() != text[0])
    fail("a string in quotes");
  text = text.substr(1, text.size() - 2);
  std::string& out = texts_.emplace_back();
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (++i == text.size()) fail("a character behind a backslash");
    constexpr std::string_view kFrom = "ntrabfv\\'\"", kTo = "\n\t\r\a\b\f\v\\'\"";
    if (const size_t which = kFrom.find(text[i]); which != std::string_view::npos) {
      out += kTo[which];
      continue;
    }
    const int high = i + 2 < text.size() && text[i] == 'x' ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low < 0) fail("a known escape in a string");
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::string_view PickleMachine::unescape_unicode(std::string_view text) {
  std::string& out = texts_.emplace_back();
  for (size_t i = 0; i < text.size(); ++i) {
    uint32_t point = static_cast<uint8_t>(text[i]);
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == 'u') {
      if (text.size() - i < 6) fail("four digits behind \\u");
      point = 0;
      for (size_t d = i + 2; d < i + 6; ++d) {
        const int digit = hex_digit(text[d]);
        if (digit < 0) fail("four digits behind \\u");
        point = point << 4 | static_cast<uint32_t>(digit);
      }
      i += 5;
    }
    append_utf8(out, point);
  }
  return out;
}

// Python 3 writes bytes in protocol 2 as encode(text, "latin1").
std::string_view PickleMachine::latin1(const PickleValue& unicode) {
  std::string& out = texts_.emplace_back();
  const std::string_view text = unicode.text;
  // One text may be named many times.
  encoded_ += text.size();
  if (encoded_ > bytes_.size()) fail("texts to encode of no more bytes than the file has");
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<uint8_t>(text[i]);
    if (c < 0x80) {
      out += text[i];
      continue;
    }
    const uint8_t next = i + 1 < text.size() ? static_cast<uint8_t>(text[i + 1]) : uint8_t{0};
    if ((c != 0xc2 && c != 0xc3) || (next & 0xc0u) != 0x80) fail("characters of latin1");
    out += static_cast<char>((c & 0x03u) << 6 | (next & 0x3fu));
    ++i;
  }
  return out;
}

}  // namespace frugal::data

#include "core/words/quoted.h"

#include <algorithm>
#include <cstdint>

namespace frugal {
namespace {

// Reads the UTF-8 character at the beginning of `text`: returns its number of bytes and sets its
// code. Returns 0 if there is no valid character.
size_t character(std::string_view text, uint32_t& code) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) {
    code = first;
    return 1;
  }
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || length > text.size()) return 0;
  code = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool valid =
      code >= kLowest[length] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  return valid ? length : 0;
}

// Control characters, and invisible characters that change what is visible.
bool is_hidden(uint32_t code) {
  constexpr uint32_t kHidden[][2] = {
      {0x00, 0x1f},     {0x7f, 0x9f},       {0xad, 0xad},       {0x61c, 0x61c},   {0x180e, 0x180e},
      {0x200b, 0x200f}, {0x2028, 0x202e},   {0x2060, 0x206f},   {0xfeff, 0xfeff}, {0xfff9, 0xfffb},
      {0xe000, 0xf8ff}, {0xe0000, 0xe0fff}, {0xf0000, 0x10ffff}};
  return std::any_of(std::begin(kHidden), std::end(kHidden), [code](const uint32_t* range) {
    return code >= range[0] && code <= range[1];
  });
}

void append_hex(std::string& out, std::string_view bytes) {
  constexpr const char* kHex = "0123456789abcdef";
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    out += "\\x";
    out += kHex[byte >> 4];
    out += kHex[byte & 15u];
  }
}

// `escaped`: ASCII characters that get a backslash; `kept`: control characters that stay.
std::string shown(std::string_view text, size_t limit, std::string_view escaped,
                  std::string_view kept) {
  std::string out;
  size_t at = 0;
  while (at < text.size() && at < limit) {
    uint32_t code = 0;
    const size_t length = character(text.substr(at), code);
    const std::string_view bytes = text.substr(at, std::max<size_t>(length, 1));
    if (at > 0 && at + bytes.size() > limit) break;  // does not cut a character in two
    at += bytes.size();
    if (length == 1 && kept.find(bytes[0]) != std::string_view::npos) {
      out += bytes;
    } else if (length == 1 && (code == '\n' || code == '\t')) {
      out += code == '\n' ? "\\n" : "\\t";
    } else if (length == 0 || is_hidden(code)) {
      append_hex(out, bytes);
    } else {
      if (escaped.find(bytes[0]) != std::string_view::npos) out += '\\';
      out += bytes;
    }
  }
  if (at < text.size()) out += "...";
  return out;
}

}  // namespace

std::string printable(std::string_view text, size_t limit) { return shown(text, limit, "", ""); }

std::string in_quotes(std::string_view text, size_t limit) {
  return '"' + shown(text, limit, "\"\\", "") + '"';
}

std::string without_controls(std::string_view message) {
  std::string out;
  for (size_t begin = 0; begin <= message.size();) {
    const size_t end = std::min(message.find('\n', begin), message.size());
    if (begin > 0) out += '\n';
    out += shown(message.substr(begin, end - begin), kLongestLine, "", "\t");
    begin = end + 1;
  }
  return out;
}

std::string some_of(const std::vector<std::string>& texts, size_t most, std::string_view between) {
  std::string out;
  for (size_t i = 0; i < std::min(texts.size(), most); ++i) {
    if (i > 0) out += between;
    out += printable(texts[i]);
  }
  if (texts.size() > most) {
    out += between;
    out += "and " + std::to_string(texts.size() - most) + " more";
  }
  return texts.empty() ? "none" : out;
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') quoted += "'\\'";  // the quote ends, a quote follows, the next quote begins
    quoted += c;
  }
  quoted += '\'';
  return quoted;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    line += shell_word(word);
  }
  return line;
}

}  // namespace frugal

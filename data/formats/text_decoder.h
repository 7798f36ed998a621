// Text of other encodings than UTF-8, as UTF-8, through ICU.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace frugal::data {

enum class TextEncoding : uint8_t {
  utf_8,
  latin_1,       // ISO 8859-1
  windows_1252,  // Latin-1 with quotes, dashes and the euro where Latin-1 has control characters
  utf_16,        // in the order of the byte order mark, without one big-endian
};

// Decodes bytes that come in parts. Thread safety: none.
class TextDecoder {
 public:
  // op, path: for messages. REQUIRES: not utf_8.
  TextDecoder(const char* op, const std::string& path, TextEncoding encoding);
  ~TextDecoder();
  TextDecoder(const TextDecoder&) = delete;
  TextDecoder& operator=(const TextDecoder&) = delete;

  // Appends the text of `bytes` to `out`. A character may be cut between two parts, and not behind
  // the last one. Errors: bytes that are none of the encoding.
  void decode(std::string_view bytes, bool last, std::string& out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace frugal::data

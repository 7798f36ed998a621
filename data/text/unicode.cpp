#include "data/text/unicode.h"

#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <algorithm>

#include "core/error.h"

namespace frugal::data {
namespace {

UChar32 icu_code(char32_t code) { return static_cast<UChar32>(code); }

bool in_category(char32_t code, uint32_t mask) {
  return (U_GET_GC_MASK(icu_code(code)) & mask) != 0;
}

bool is_ascii(std::u32string_view text) {
  return std::all_of(text.begin(), text.end(), [](char32_t code) { return code < 0x80; });
}

icu::UnicodeString to_icu(std::u32string_view text) {
  static_assert(sizeof(char32_t) == sizeof(UChar32));
  return icu::UnicodeString::fromUTF32(reinterpret_cast<const UChar32*>(text.data()),
                                       static_cast<int32_t>(text.size()));
}

std::u32string from_icu(const icu::UnicodeString& text) {
  std::u32string out;
  for (int32_t at = 0; at < text.length(); at = text.moveIndex32(at, 1))
    out.push_back(static_cast<char32_t>(text.char32At(at)));
  return out;
}

}  // namespace

CodePoint next_code_point(std::string_view text, size_t& at) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const size_t begin = at;
  UChar32 code = 0;
  U8_NEXT(bytes, at, text.size(), code);
  if (code >= 0) return {static_cast<char32_t>(code), true};
  at = begin + 1;  // ICU skips the whole ill-formed sequence
  return {bytes[begin], false};
}

std::u32string from_utf8(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();)
    if (const CodePoint point = next_code_point(text, at); point.valid) out.push_back(point.code);
  return out;
}

void append_utf8(std::string& text, char32_t code) {
  FRUGAL_ASSERT(code <= 0x10FFFF);
  const auto byte = [&](char32_t value) { text += static_cast<char>(value); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) {
    byte(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      byte(0xE0 | code >> 12);
    } else {
      byte(0xF0 | code >> 18);
      byte(0x80 | (code >> 12 & 0x3F));
    }
    byte(0x80 | (code >> 6 & 0x3F));
  }
  byte(0x80 | (code & 0x3F));
}

bool is_letter(char32_t code) { return in_category(code, U_GC_L_MASK); }
bool is_number(char32_t code) { return in_category(code, U_GC_N_MASK); }
bool is_punctuation(char32_t code) { return in_category(code, U_GC_P_MASK); }
bool is_mark(char32_t code) { return in_category(code, U_GC_MN_MASK); }
bool is_control(char32_t code) { return in_category(code, U_GC_CC_MASK | U_GC_CF_MASK); }
bool is_white_space(char32_t code) { return u_isUWhiteSpace(icu_code(code)) != 0; }

std::u32string lower_case(std::u32string_view text) {
  if (is_ascii(text)) {
    std::u32string out(text);
    for (char32_t& code : out)
      if (code >= U'A' && code <= U'Z') code += U'a' - U'A';
    return out;
  }
  return from_icu(to_icu(text).toLower(icu::Locale::getRoot()));
}

std::u32string decomposed(std::u32string_view text) {
  if (is_ascii(text)) return std::u32string(text);
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* form = icu::Normalizer2::getNFDInstance(status);
  FRUGAL_CHECK(U_SUCCESS(status), "[unicode] ICU has no data for normalization: {}",
               u_errorName(status));
  const icu::UnicodeString out = form->normalize(to_icu(text), status);
  FRUGAL_CHECK(U_SUCCESS(status), "[unicode] cannot normalize {} characters: {}", text.size(),
               u_errorName(status));
  return from_icu(out);
}

}  // namespace frugal::data

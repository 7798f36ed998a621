#include "data/text/unicode.h"

#include <unicode/brkiter.h>
#include <unicode/bytestream.h>
#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <memory>

#include "core/error.h"
#include "core/words/quoted.h"

namespace frugal::data {
namespace {

UChar32 icu_code(char32_t code) { return static_cast<UChar32>(code); }

bool in_category(char32_t code, uint32_t mask) {
  return (U_GET_GC_MASK(icu_code(code)) & mask) != 0;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x80; });
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

size_t find_no_text(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80 && text[at] != 0) {
      ++at;
      continue;
    }
    const size_t begin = at;
    const CodePoint point = next_code_point(text, at);
    if (!point.valid || point.code == 0) return begin;
  }
  return std::string_view::npos;
}

void expect_utf8(std::string_view text, const std::function<std::string(size_t at)>& place,
                 const char* advice) {
  const size_t at = find_no_text(text);
  if (at == std::string_view::npos) return;
  throw Error(fmt::format("{}: expected UTF-8, got the byte {:02x} in {}; {}", place(at),
                          static_cast<unsigned char>(text[at]), in_quotes(text), advice));
}

std::u32string from_utf8(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();)
    if (const CodePoint point = next_code_point(text, at); point.valid) out.push_back(point.code);
  return out;
}

std::string valid_utf8(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    UChar32 code = 0;
    U8_NEXT(bytes, at, text.size(), code);
    if (code < 0)
      append_utf8(out, 0xFFFD);
    else
      out.append(text.substr(begin, at - begin));
  }
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
bool is_any_mark(char32_t code) { return in_category(code, U_GC_M_MASK); }
bool is_control(char32_t code) { return in_category(code, U_GC_CC_MASK | U_GC_CF_MASK); }
bool is_control_or_private(char32_t code) {
  return in_category(code, U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK);
}
bool is_word_character(char32_t code) {
  return u_isUAlphabetic(icu_code(code)) != 0 ||
         in_category(code, U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK) ||
         u_hasBinaryProperty(icu_code(code), UCHAR_JOIN_CONTROL) != 0;
}
bool is_white_space(char32_t code) { return u_isUWhiteSpace(icu_code(code)) != 0; }

std::u32string upper_case(std::u32string_view text) {
  return from_icu(to_icu(text).toUpper(icu::Locale::getRoot()));
}

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

std::string normal_form(NormalForm form, std::string text) {
  if (is_ascii(text)) return text;
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* rules = nullptr;
  switch (form) {
    case NormalForm::nfc:
      rules = icu::Normalizer2::getNFCInstance(status);
      break;
    case NormalForm::nfd:
      rules = icu::Normalizer2::getNFDInstance(status);
      break;
    case NormalForm::nfkc:
      rules = icu::Normalizer2::getNFKCInstance(status);
      break;
    case NormalForm::nfkd:
      rules = icu::Normalizer2::getNFKDInstance(status);
      break;
  }
  FRUGAL_CHECK(U_SUCCESS(status), "[unicode] ICU has no data for normalization: {}",
               u_errorName(status));
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  if (rules->isNormalizedUTF8(piece, status) != 0) return text;
  std::string out;
  icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
  rules->normalizeUTF8(0, piece, sink, nullptr, status);
  FRUGAL_CHECK(U_SUCCESS(status), "[unicode] cannot normalize {} bytes: {}", text.size(),
               u_errorName(status));
  return out;
}

void append_lower_case(std::string& text, char32_t code) {
  // The only character whose small form has several characters, whatever stands around it.
  constexpr char32_t kDottedI = 0x130;
  if (code == kDottedI) {
    text += 'i';
    code = 0x307;
  } else {
    code = static_cast<char32_t>(u_tolower(icu_code(code)));
  }
  append_utf8(text, code);
}

void for_graphemes(std::string_view text, const std::function<void(std::string_view)>& f) {
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::BreakIterator> breaks(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
  FRUGAL_CHECK(U_SUCCESS(status), "[unicode] ICU has no data for clusters: {}",
               u_errorName(status));
  UText* place = utext_openUTF8(nullptr, text.data(), static_cast<int64_t>(text.size()), &status);
  breaks->setText(place, status);
  int32_t begin = breaks->first();
  for (int32_t end = breaks->next(); end != icu::BreakIterator::DONE; end = breaks->next()) {
    f(text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    begin = end;
  }
  utext_close(place);
}

size_t leading_white_space(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!is_white_space(next_code_point(text, at).code)) return begin;
  }
  return text.size();
}

size_t trailing_white_space(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t at = begin - 1;
    while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
    const size_t character = at;
    if (!is_white_space(next_code_point(text, at).code)) break;
    begin = character;
  }
  return text.size() - begin;
}

}  // namespace frugal::data

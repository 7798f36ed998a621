// What tokenizers need of Unicode, through ICU: UTF-8, categories, lower case, decomposition.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace frugal::data {

// One code point of UTF-8 text; or, not valid, one byte (0x80 to 0xFF) that is not UTF-8.
struct CodePoint {
  char32_t code = 0;
  bool valid = true;
};

// Reads the code point at `at` and moves `at` behind it. If the text is not UTF-8 there, reads one
// byte. REQUIRES: at < text.size().
CodePoint next_code_point(std::string_view text, size_t& at);

std::u32string from_utf8(std::string_view text);  // bytes that are not UTF-8 are left out
void append_utf8(std::string& text, char32_t code);

bool is_letter(char32_t code);       // general category L*
bool is_number(char32_t code);       // N*
bool is_punctuation(char32_t code);  // P*
bool is_mark(char32_t code);         // Mn
bool is_control(char32_t code);      // Cc, Cf
bool is_white_space(char32_t code);  // the property White_Space

std::u32string lower_case(std::u32string_view text);  // full mappings, rules of no language
std::u32string decomposed(std::u32string_view text);  // normalization form D

}  // namespace frugal::data

// What tokenizers need of Unicode, through ICU: UTF-8, categories, lower case, decomposition.
#pragma once
#include <cstddef>
#include <functional>
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

// Where the first byte is that is not UTF-8, or is 0, as in a text in UTF-16; npos: there is none.
size_t find_no_text(std::string_view text);
// Checks that there is no such byte. Tokenizers would leave it out. `place` is called with where
// the byte is and names the file, such as "[csv] \"a.csv\", line 3"; `advice` says what to do.
void expect_utf8(std::string_view text, const std::function<std::string(size_t at)>& place,
                 const char* advice);
inline constexpr const char* kMakeUtf8 =
    "make the file one of UTF-8, such as by iconv -f windows-1252 -t utf-8";

std::u32string from_utf8(std::string_view text);  // bytes that are not UTF-8 are left out
// U+FFFD stands for each part that is not UTF-8, which is as long as it might begin a character.
std::string valid_utf8(std::string_view text);
void append_utf8(std::string& text, char32_t code);

bool is_letter(char32_t code);              // general category L*
bool is_number(char32_t code);              // N*
bool is_punctuation(char32_t code);         // P*
bool is_mark(char32_t code);                // Mn
bool is_any_mark(char32_t code);            // M*
bool is_control(char32_t code);             // Cc, Cf
bool is_control_or_private(char32_t code);  // Cc, Cf, Co
bool is_word_character(char32_t code);      // as \w: letters, marks, digits, connectors, joiners
bool is_white_space(char32_t code);         // the property White_Space

std::u32string upper_case(std::u32string_view text);  // full mappings, rules of no language
std::u32string lower_case(std::u32string_view text);  // full mappings, rules of no language
std::u32string decomposed(std::u32string_view text);  // normalization form D

enum class NormalForm { nfc, nfd, nfkc, nfkd };
// REQUIRES (here and below): UTF-8.
std::string normal_form(NormalForm form, std::string text);
// The small letter of one character, or the characters that it becomes, whatever stands around it.
void append_lower_case(std::string& text, char32_t code);
// Calls f(cluster) for each extended grapheme cluster, in order.
void for_graphemes(std::string_view text, const std::function<void(std::string_view)>& f);
// Bytes of white space at the beginning, and at the end.
size_t leading_white_space(std::string_view text);
size_t trailing_white_space(std::string_view text);

}  // namespace frugal::data

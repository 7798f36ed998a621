// SplitPattern: where a text or a regular expression occurs in a text. Tokenizers cut by it.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/hub/tokenizer_entry.h"

namespace frugal::data {

struct Span {
  size_t begin = 0, end = 0;  // bytes
  bool operator==(const Span&) const = default;
};

// Regular expressions are those of Unicode texts: \p{L} and its like, \s and \d have all characters
// of the property. Two matchers read them. The one for lists of alternatives such as GPT-2's, each
// a sequence of classes of characters, takes the expressions of most published tokenizers and is
// fast; ICU takes the others. Both give up after a number of steps that grows with the text.
// Thread safety: const.
class SplitPattern {
 public:
  // Each place where `text` stands. Errors: an empty text.
  static SplitPattern of_text(std::string text);
  // Errors: an expression that ICU does not take, with its reason.
  static SplitPattern of_expression(const std::string& expression);
  // As of_expression(), through ICU alone.
  static SplitPattern through_icu(const std::string& expression);

  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

  // The matches, from left to right; none overlaps another one. REQUIRES: UTF-8. Errors: an
  // expression that takes too many steps for this text.
  std::vector<Span> find(std::string_view text) const;
  // Whether ICU does the work.
  bool by_icu() const;

  struct Matcher;

 private:
  explicit SplitPattern(std::unique_ptr<Matcher> matcher);
  std::unique_ptr<Matcher> matcher_;
};

// The member "pattern" of an entry: {"String": ...} or {"Regex": ...}.
SplitPattern read_pattern(const TokenizerEntry& entry);
// `text` with `content` in place of each match.
std::string replaced(std::string_view text, const SplitPattern& pattern, std::string_view content);

}  // namespace frugal::data

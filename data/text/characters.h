// Characters: a tokenizer of single code points, numbered in the order of Unicode.
#pragma once
#include <unordered_map>

#include "data/text/tokenizer.h"

namespace frugal::data {

// Thread safety: const.
class Characters : public Tokenizer {
 public:
  // Errors: no characters, one twice.
  explicit Characters(std::u32string alphabet);
  // The characters that `text` has, sorted. Errors: empty; bytes that are no UTF-8, with the
  // offset.
  static Characters of(std::string_view text);

  int64_t size() const override { return static_cast<int64_t>(alphabet_.size()); }
  // Errors: a character outside the alphabet or bytes that are no UTF-8, with the offset.
  TokenIds encode(std::string_view text) const override;
  std::string decode(const TokenIds& ids) const override;
  const std::u32string& alphabet() const { return alphabet_; }

 private:
  std::u32string alphabet_;
  std::unordered_map<char32_t, int32_t> ids_;
};

}  // namespace frugal::data

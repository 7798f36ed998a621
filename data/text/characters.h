// Characters: a tokenizer whose tokens are single code points, numbered in the order of Unicode.
#pragma once
#include <unordered_map>

#include "data/text/tokenizer.h"

namespace frugal::data {

// Thread safety: const.
class Characters : public Tokenizer {
 public:
  // Errors: an empty alphabet; a character that occurs twice.
  explicit Characters(std::u32string alphabet);
  // A tokenizer of the characters of `text`. Errors: an empty text; bytes that are not UTF-8, with
  // the offset.
  static Characters of(std::string_view text);

  int64_t size() const override { return static_cast<int64_t>(alphabet_.size()); }
  // Errors: a character outside the alphabet or bytes that are not UTF-8, with the offset.
  TokenIds encode(std::string_view text) const override;
  // The codes without the characters outside the alphabet, which are counted.
  TokenIds encode_known(std::string_view text, int64_t& unknown) const;
  std::string decode(const TokenIds& ids) const override;
  std::string describe() const override;
  std::optional<int32_t> find(const std::string& token) const override;
  const std::u32string& alphabet() const { return alphabet_; }

 private:
  std::u32string alphabet_;
  std::unordered_map<char32_t, int32_t> ids_;
};

}  // namespace frugal::data

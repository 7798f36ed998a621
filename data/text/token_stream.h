// TokenStream: the text of tokens that come one after the other.
#pragma once
#include <string>

#include "data/text/tokenizer.h"

namespace frugal::data {

// A token alone may be a part of a character, and a tokenizer may write spaces between tokens, so
// what a token adds depends on those before it. Thread safety: one user.
class TokenStream {
 public:
  // The text of `before` is known already. REQUIRES: the tokenizer outlives the stream.
  explicit TokenStream(const Tokenizer& tokenizer, TokenIds before = {});
  // What the token adds to the text; nothing while a character is not complete. Errors: those of
  // Tokenizer::decode().
  std::string add(int32_t id);
  // What is left of a character that did not become complete.
  std::string finish();

 private:
  std::string added(bool whole);

  const Tokenizer& tokenizer_;
  TokenIds ids_;        // the latest
  size_t written_ = 0;  // how many of them the text has
};

}  // namespace frugal::data

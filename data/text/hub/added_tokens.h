// AddedTokens: tokens that a text is searched for before it is cut. Internal to data/text.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/text/hub/byte_trie.h"
#include "data/text/hub/split_pattern.h"
#include "data/text/hub/token_model.h"
#include "data/text/hub/tokenizer_entry.h"

namespace frugal::data {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;             // no letter or digit may stand beside it
  bool lstrip = false, rstrip = false;  // takes the white space before it, and behind it
  bool normalized = false;              // is looked for in the normalized text
  bool special = false;                 // decoding may leave it out
  bool searched = true;                 // false: a text never holds it
};

// A part of a text: an added token, or what lies between two.
struct AddedPart {
  Span span;
  int32_t id = -1;  // -1: between
};

// Thread safety: const.
class AddedTokens {
 public:
  AddedTokens() = default;
  // The entry "added_tokens". normalize(text): what the tokenizer's normalizers make of a text.
  // Errors: two tokens with one id or one content; an id that is not the vocabulary's for a token
  // that the vocabulary has, or that is another token's there; ids with large gaps.
  // unsearched: further tokens; one whose content the entry names is left out.
  AddedTokens(const TokenizerEntry& entry, const TokenTable& table,
              const std::function<std::string(std::string)>& normalize,
              const std::vector<AddedToken>& unsearched = {});

  const std::vector<AddedToken>& all() const { return all_; }  // by id
  // Null: no added token has the id, or this content.
  const AddedToken* with_id(int64_t id) const;
  const AddedToken* find(const std::string& content) const;
  // The parts of `text`, in order; none is empty. At each place the longest token counts.
  // normalized: of the tokens that are looked for in the normalized text.
  std::vector<AddedPart> split(std::string_view text, bool normalized) const;

 private:
  std::vector<AddedToken> all_;
  std::unordered_map<std::string, size_t> by_content_;
  ByteTrie plain_, normalized_;  // values are places in all_
};

}  // namespace frugal::data

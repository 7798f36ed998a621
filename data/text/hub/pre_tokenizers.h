// Pre-tokenizers cut a text into words. Internal to data/text.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/text/hub/split_pattern.h"
#include "data/text/hub/tokenizer_entry.h"

namespace frugal::data {

// The words of a text, in order. None is empty.
struct WordList {
  explicit WordList(std::string whole, bool is_first)
      : text(std::move(whole)),
        spans(text.empty() ? 0 : 1, Span{0, text.size()}),
        first(is_first) {}
  std::string_view word(const Span& span) const {
    return std::string_view(text).substr(span.begin, span.end - span.begin);
  }
  std::string text;
  std::vector<Span> spans;
  bool first;  // the first word begins where the whole text begins
};

// Thread safety: const.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(WordList& words) const = 0;
};

struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> all;
  // The last step is to write bytes as characters. It is left out of `all`: a model may take the
  // bytes.
  bool bytes_last = false;
  std::string describe;
};

// Types: BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, FixedLength, Metaspace,
// Punctuation, Split, UnicodeScripts, Whitespace, WhitespaceSplit and Sequence. Errors: another
// type; members that are missing or have another type.
PreTokenizers read_pre_tokenizers(const TokenizerEntry& entry);

// Writes each word's bytes as characters.
void write_byte_characters(WordList& words);

}  // namespace frugal::data

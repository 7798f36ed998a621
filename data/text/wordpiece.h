// WordPiece, as BERT's uncased models use it: words of lower-case letters without accents, then the
// longest pieces of a vocabulary. Ref: Devlin et al. 2018; the published basic tokenizer.
#pragma once
#include "data/text/tokenizer.h"
#include "data/text/vocab.h"

namespace frugal::data {

struct WordPieceOptions {
  bool lower_case = true;             // and without accents
  int64_t max_word_characters = 100;  // longer words become [UNK]
};

// Words and single punctuation marks of `text`: control characters (Cc, Cf), U+FFFD and bytes that
// are no UTF-8 vanish, CJK ideographs stand alone, case and nonspacing marks go.
std::vector<std::string> basic_tokens(std::string_view text, bool lower_case = true);

// One or two texts as a model reads them: [CLS] a [SEP] or [CLS] a [SEP] b [SEP].
struct TokenPair {
  TokenIds ids;
  int32_t second = 0;  // where b begins, ids.size() without b: token_type_ids are 1 from there
};

// Thread safety: const.
class WordPiece : public Tokenizer {
 public:
  // Errors: [UNK], [CLS], [SEP] or [PAD] missing; max_word_characters < 1.
  WordPiece(Vocabulary vocabulary, const WordPieceOptions& options = {});

  int64_t size() const override { return vocabulary_.size(); }
  // Pieces of words, "##" before all but the first; [UNK] for a word that has none. Special tokens
  // are not recognised in text.
  std::vector<std::string> pieces(std::string_view text) const;
  TokenIds encode(std::string_view text) const override;
  // Pieces joined to words, words by spaces.
  std::string decode(const TokenIds& ids) const override;

  // With special tokens, at most max_length ids: the longer of a and b loses its last one, b where
  // they are equal. Errors: max_length < 2, or < 3 for a pair.
  TokenPair single(const TokenIds& a, int64_t max_length) const;
  TokenPair pair(TokenIds a, TokenIds b, int64_t max_length) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  int32_t unknown() const { return unknown_; }  // [UNK]
  int32_t begin() const { return begin_; }      // [CLS]
  int32_t separator() const { return separator_; }
  int32_t padding() const { return padding_; }

 private:
  void append_pieces(std::string_view word, TokenIds& ids) const;

  Vocabulary vocabulary_;
  WordPieceOptions options_;
  int32_t unknown_, begin_, separator_, padding_;
  size_t longest_ = 0;  // bytes of the longest token
};

}  // namespace frugal::data

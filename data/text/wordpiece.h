// WordPiece, as BERT's uncased models use it: text becomes lower-case words without accents, and
// each word is cut into the longest pieces that the vocabulary has. Ref: Devlin et al. 2018; the
// published basic tokenizer.
#pragma once
#include "data/text/tokenizer.h"
#include "data/text/vocab.h"

namespace frugal::data {

struct WordPieceOptions {
  bool lower_case = true;             // lower case without accents
  int64_t max_word_characters = 100;  // longer words become [UNK]
};

// The words and single punctuation marks of `text`. A CJK ideograph is a word of its own. Control
// characters (Cc, Cf), U+FFFD and bytes that are not UTF-8 are removed. With lower_case, capitals
// become small letters and nonspacing marks are removed.
std::vector<std::string> basic_tokens(std::string_view text, bool lower_case = true);

// One or two texts as a model reads them: [CLS] a [SEP] or [CLS] a [SEP] b [SEP].
struct TokenPair {
  TokenIds ids;
  int32_t second = 0;  // where b begins; ids.size() without b. From there token_type_ids are 1
};

// Thread safety: const.
class WordPiece : public Tokenizer {
 public:
  // Errors: [UNK], [CLS], [SEP] or [PAD] missing; max_word_characters < 1.
  WordPiece(Vocabulary vocabulary, const WordPieceOptions& options = {});

  int64_t size() const override { return vocabulary_.size(); }
  // The pieces of each word, with "##" before all except the first; [UNK] for a word that cannot be
  // cut into pieces. Special tokens in the text are treated as text.
  std::vector<std::string> pieces(std::string_view text) const;
  TokenIds encode(std::string_view text) const override;
  // Joins pieces to words, and words with spaces.
  std::string decode(const TokenIds& ids) const override;
  std::string describe() const override;
  std::optional<int32_t> find(const std::string& token) const override;
  const WordPiece* as_word_piece() const override { return this; }

  // At most max_length ids, with special tokens. While there are more, the longer of a and b loses
  // its last id; if they are equally long, b does. Errors: max_length < 2, or < 3 for a pair.
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

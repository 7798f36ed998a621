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
  // [CLS] a [SEP], or [CLS] a [SEP] b [SEP].
  const EncoderLayout* encoder_layout() const override { return &layout_; }

  const Vocabulary& vocabulary() const { return vocabulary_; }
  int32_t unknown() const { return unknown_; }  // [UNK]

 private:
  void append_pieces(std::string_view word, TokenIds& ids) const;

  Vocabulary vocabulary_;
  WordPieceOptions options_;
  int32_t unknown_;
  EncoderLayout layout_;
  size_t longest_ = 0;  // bytes of the longest token
};

}  // namespace frugal::data

// Tokenizer: turns text into token ids and token ids into text.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace frugal::data {

using TokenIds = std::vector<int32_t>;

class WordPiece;

// Thread safety: const.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t size() const = 0;  // ids are in [0, size())
  virtual TokenIds encode(std::string_view text) const = 0;
  virtual std::string decode(const TokenIds& ids) const = 0;  // Errors: id outside [0, size())
  // What it is, in a few words, such as "BPE of bytes, 50257 tokens".
  virtual std::string describe() const = 0;
  // The id of a token; nothing: the vocabulary does not have it.
  virtual std::optional<int32_t> find(const std::string& token) const = 0;
  // The tokens that a model expects before and behind a text.
  virtual TokenIds before_text() const { return {}; }
  virtual TokenIds after_text() const { return {}; }
  TokenIds with_special(const TokenIds& ids) const;  // the ids of a text between them
  // As encode(). counts[i] is how many of the ids come from what is before places[i] (bytes,
  // ascending). An id to which text on both sides of a place belongs counts as behind it.
  virtual TokenIds encode_counting(std::string_view text, const std::vector<size_t>& places,
                                   std::vector<int64_t>& counts) const;
  // The tokenizer as one of word pieces, which makes the rows that BERT reads; null: it is another.
  virtual const WordPiece* as_word_piece() const { return nullptr; }
};

}  // namespace frugal::data

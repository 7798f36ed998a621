// Tokenizer: turns text into token ids and token ids into text.
#pragma once
#include <cstdint>
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
  // The tokenizer as one of word pieces, which makes the rows that BERT reads; null: it is another.
  virtual const WordPiece* as_word_piece() const { return nullptr; }
};

}  // namespace frugal::data

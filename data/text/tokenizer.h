// Tokenizer: turns text into token ids and token ids into text.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace frugal::data {

using TokenIds = std::vector<int32_t>;

// What stands around texts where an encoder reads them: before a after, or before a between b
// behind. Padding fills what is left of a row.
struct EncoderLayout {
  TokenIds before, after;    // [CLS], [SEP]
  TokenIds between, behind;  // two texts have [SEP], [SEP]; RoBERTa </s></s>, </s>
  int32_t padding = 0;
};
// One or two texts as an encoder reads them.
struct TokenPair {
  TokenIds ids;
  int32_t second = 0;  // where b begins; ids.size() without b. From there token_type_ids are 1
};

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
  // null: no encoder reads what it makes.
  virtual const EncoderLayout* encoder_layout() const { return nullptr; }
  // At most max_length ids, with special tokens. While there are more, the longer of a and b loses
  // its last id; if they are equally long, b does. REQUIRES: an encoder_layout(). Errors: a
  // max_length below the number of special tokens.
  TokenPair single(const TokenIds& a, int64_t max_length) const;
  TokenPair pair(TokenIds a, TokenIds b, int64_t max_length) const;
};

}  // namespace frugal::data

// ByteBpe: byte-level byte-pair encoding from GPT-2's files. Every sequence of bytes has tokens,
// even if it is not UTF-8, and decoding gives the same bytes. Ref: Sennrich et al. 2016; Radford et
// al. 2019.
#pragma once
#include <array>
#include <optional>
#include <unordered_map>

#include "data/text/tokenizer.h"

namespace frugal::data {

// Cuts text as GPT-2 does before pairs are merged. The parts are contractions ('s 't 're 've 'm 'll
// 'd); runs of letters, of numbers or of other characters, each with the space before it; and runs
// of white space. A byte that is not UTF-8 counts as an other character. The joined parts are the
// text.
std::vector<std::string_view> gpt2_words(std::string_view text);

// Thread safety: const.
class ByteBpe : public Tokenizer {
 public:
  // `encoder` is encoder.json or vocab.json (tokens and their ids), `merges` merges.txt or
  // vocab.bpe. Errors: an unreadable file; JSON that is not an object with ids 0 to n - 1; a byte
  // without a token; a line of merges that is not two tokens, or occurs twice, or whose tokens or
  // result are not in the vocabulary.
  ByteBpe(const std::string& encoder, const std::string& merges);

  int64_t size() const override { return static_cast<int64_t>(tokens_.size()); }
  TokenIds encode(std::string_view text) const override;  // treats special tokens as plain text
  std::string decode(const TokenIds& ids) const override;
  // The id of a token, which is given as bytes, such as "<|endoftext|>".
  std::optional<int32_t> find(const std::string& token) const override;
  std::string describe() const override;

 private:
  struct Merge {
    int32_t rank, id;
  };
  void append_word(std::string_view word, TokenIds& ids) const;
  void read_merges(const std::string& path);

  std::vector<std::string> tokens_;  // bytes
  std::unordered_map<std::string, int32_t> ids_;
  std::array<int32_t, 256> bytes_{};            // ids of single bytes
  std::unordered_map<uint64_t, Merge> merges_;  // by left id << 32 | right id
};

}  // namespace frugal::data

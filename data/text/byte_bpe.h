// ByteBpe: byte-level byte-pair encoding from GPT-2's files. Every text has tokens, also bytes that
// are no UTF-8, and decodes to the same bytes. Ref: Sennrich et al. 2016; Radford et al. 2019.
#pragma once
#include <array>
#include <optional>
#include <unordered_map>

#include "data/text/tokenizer.h"

namespace frugal::data {

// Text cut as GPT-2 does before pairs are merged: contractions ('s 't 're 've 'm 'll 'd), and runs
// of letters, of numbers, of other characters, each with one space before it; white space
// otherwise. A byte that is no UTF-8 counts as an other character. The parts joined are the text.
std::vector<std::string_view> gpt2_words(std::string_view text);

// Thread safety: const.
class ByteBpe : public Tokenizer {
 public:
  // `encoder`: encoder.json or vocab.json, token to id; `merges`: merges.txt or vocab.bpe.
  // Errors: unreadable; no JSON object of ids 0 to n - 1; a byte without token; a line of merges
  // that is not two tokens, or whose tokens or result the vocabulary lacks, or that comes twice.
  ByteBpe(const std::string& encoder, const std::string& merges);

  int64_t size() const override { return static_cast<int64_t>(tokens_.size()); }
  TokenIds encode(std::string_view text) const override;  // special tokens are text here
  std::string decode(const TokenIds& ids) const override;
  // The id of a token, in bytes, such as "<|endoftext|>".
  std::optional<int32_t> find(const std::string& token) const;

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

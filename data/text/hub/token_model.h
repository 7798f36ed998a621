// TokenModel: what a word becomes, the last part of a tokenizer. Internal to data/text.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/text/hub/byte_trie.h"
#include "data/text/hub/piece_file.h"
#include "data/text/hub/tokenizer_entry.h"
#include "data/text/tokenizer.h"

namespace frugal::data {

// Ids may have gaps, but few: no id is above twice the number of tokens, plus this.
constexpr int64_t kSpareIds = 1 << 16;
constexpr int64_t kMostTokens = 1 << 24;

// Tokens by their ids, and ids by tokens. Thread safety: const.
class TokenTable {
 public:
  // Errors: no tokens; two tokens with one id; ids with large gaps; a token longer than
  // kLongestToken.
  static TokenTable of_object(const TokenizerEntry& vocabulary);
  explicit TokenTable(std::vector<std::string> tokens);  // a token that comes again wins
  TokenTable(const TokenTable&) = delete;
  TokenTable(TokenTable&&) = default;

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }  // one above the last id
  int64_t count() const { return static_cast<int64_t>(ids_.size()); }
  int32_t find(std::string_view token) const {  // -1: none
    const auto at = ids_.find(token);
    return at == ids_.end() ? -1 : at->second;
  }
  // Empty: no token has this id.
  const std::string& token(int64_t id) const { return tokens_[static_cast<size_t>(id)]; }

 private:
  void index();

  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views of tokens_
};

// The ids of words that occurred before. Thread safety: one user.
class WordCache {
 public:
  WordCache() { clear(); }
  // Appends the ids of `word`, as make(word, ids) appends them.
  template <class Make>
  void append(std::string_view word, TokenIds& ids, const Make& make) {
    const size_t hash = std::hash<std::string_view>()(word);
    Slot* slot = find(word, hash);
    if (slot->count < 0) {
      if (words_.size() > kMostBytes) clear();
      if (2 * used_ >= slots_.size()) grow();
      slot = find(word, hash);
      const size_t begin = pool_.size();
      make(word, pool_);
      *slot = {hash, words_.size(), word.size(), begin, static_cast<int64_t>(pool_.size() - begin)};
      words_.append(word);
      ++used_;
    }
    const auto first = pool_.begin() + static_cast<std::ptrdiff_t>(slot->begin);
    ids.insert(ids.end(), first, first + slot->count);
  }

 private:
  static constexpr size_t kMostBytes = size_t{1} << 24;
  struct Slot {
    size_t hash = 0, word = 0, length = 0, begin = 0;
    int64_t count = -1;  // -1: free
  };
  Slot* find(std::string_view word, size_t hash) {
    const size_t mask = slots_.size() - 1;
    size_t at = hash & mask;
    while (slots_[at].count >= 0 && (slots_[at].hash != hash || word_of(slots_[at]) != word))
      at = (at + 1) & mask;
    return &slots_[at];
  }
  std::string_view word_of(const Slot& slot) const {
    return std::string_view(words_).substr(slot.word, slot.length);
  }
  void clear();
  void grow();

  std::vector<Slot> slots_;  // open addressing; a power of two
  size_t used_ = 0;
  std::string words_;
  TokenIds pool_;
};

// Thread safety: const.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual const TokenTable& table() const = 0;
  // Appends the ids of a word, which is not empty.
  virtual void append(std::string_view word, TokenIds& ids, WordCache& cache) const = 0;
  virtual std::string describe() const = 0;  // such as "BPE"
};

// The type of the entry "model". Files from before 2020 do not name it.
std::string token_model_type(const TokenizerEntry& entry);
// The model of the entry "model". bytes: words come as bytes and not as the characters that
// byte-level vocabularies write for them. Errors: a type that is not known; those of its members.
std::unique_ptr<TokenModel> read_token_model(const TokenizerEntry& entry, bool bytes);

// Errors: see bpe_model.cpp, unigram_model.cpp and word_models.cpp.
std::unique_ptr<TokenModel> read_bpe_model(const TokenizerEntry& entry, bool bytes);
std::unique_ptr<TokenModel> read_unigram_model(const TokenizerEntry& entry);
std::unique_ptr<TokenModel> read_word_piece_model(const TokenizerEntry& entry);
std::unique_ptr<TokenModel> read_word_level_model(const TokenizerEntry& entry);

// The model of a tokenizer.model, whose words are whole texts.
std::unique_ptr<TokenModel> make_piece_model(const PieceFile& file);
std::unique_ptr<TokenModel> make_bpe_model(const PieceFile& file);
std::unique_ptr<TokenModel> make_unigram_model(const PieceFile& file);
// Its pieces by their ids.
TokenTable table_of_pieces(const PieceFile& file);

// The ids of the tokens "<0x00>" to "<0xFF>"; -1: there is none.
std::vector<int32_t> byte_token_ids(const TokenTable& table);

}  // namespace frugal::data

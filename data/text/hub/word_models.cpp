// WordPiece: the longest pieces of a word, from left to right. WordLevel: whole words.
#include <algorithm>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/text/hub/token_model.h"

namespace frugal::data {
namespace {

bool begins_character(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; }

class WordPieceModel final : public TokenModel {
 public:
  WordPieceModel(TokenTable table, int32_t unknown, const std::string& prefix,
                 int64_t most_characters)
      : table_(std::move(table)), unknown_(unknown), most_characters_(most_characters) {
    for (int64_t id = 0; id < table_.size(); ++id)
      if (const std::string& piece = table_.token(id); !piece.empty())
        trie_.insert(piece, static_cast<int32_t>(id));
    for (const char byte : prefix)
      inside_ = inside_ == ByteTrie::kNone ? inside_ : trie_.next(inside_, byte);
  }

  const TokenTable& table() const override { return table_; }
  void append(std::string_view word, TokenIds& ids, WordCache& cache) const override {
    cache.append(word, ids,
                 [this](std::string_view part, TokenIds& into) { append_whole(part, into); });
  }
  std::string describe() const override { return "WordPiece"; }

 private:
  void append_whole(std::string_view word, TokenIds& ids) const {
    if (std::count_if(word.begin(), word.end(), begins_character) > most_characters_)
      return ids.push_back(unknown_);
    const size_t before = ids.size();
    for (size_t begin = 0; begin < word.size();) {
      ByteTrie::Node node = begin == 0 ? ByteTrie::kRoot : inside_;
      int32_t id = -1;
      size_t end = begin;
      for (size_t at = begin; at < word.size() && node != ByteTrie::kNone;) {
        node = trie_.next(node, word[at++]);
        const bool cut = at == word.size() || begins_character(word[at]);
        if (node == ByteTrie::kNone || !cut || trie_.value(node) < 0) continue;
        id = trie_.value(node);
        end = at;
      }
      if (id < 0) {  // the whole word is unknown
        ids.resize(before);
        return ids.push_back(unknown_);
      }
      ids.push_back(id);
      begin = end;
    }
  }

  TokenTable table_;
  int32_t unknown_;
  int64_t most_characters_;
  ByteTrie trie_;
  ByteTrie::Node inside_ = ByteTrie::kRoot;  // behind the prefix of pieces within words
};

class WordLevelModel final : public TokenModel {
 public:
  WordLevelModel(TokenTable table, int32_t unknown) : table_(std::move(table)), unknown_(unknown) {}
  const TokenTable& table() const override { return table_; }
  void append(std::string_view word, TokenIds& ids, WordCache&) const override {
    const int32_t id = table_.find(word);
    FRUGAL_CHECK(id >= 0 || unknown_ >= 0,
                 "[tokenizer] expected words of the vocabulary, which has no unk_token, got {}",
                 in_quotes(word));
    ids.push_back(id >= 0 ? id : unknown_);
  }
  std::string describe() const override { return "WordLevel"; }

 private:
  TokenTable table_;
  int32_t unknown_;
};

}  // namespace

std::unique_ptr<TokenModel> read_word_piece_model(const TokenizerEntry& entry) {
  TokenTable table = TokenTable::of_object(entry.at("vocab"));
  const int32_t unknown = table.find(entry.text("unk_token", "[UNK]"));
  if (unknown < 0) entry.at("unk_token").fail("a token of the vocabulary");
  const int64_t most = entry.has("max_input_chars_per_word")
                           ? entry.count("max_input_chars_per_word", int64_t{1} << 30)
                           : 100;
  return std::make_unique<WordPieceModel>(std::move(table), unknown,
                                          entry.text("continuing_subword_prefix", "##"), most);
}

std::unique_ptr<TokenModel> read_word_level_model(const TokenizerEntry& entry) {
  TokenTable table = TokenTable::of_object(entry.at("vocab"));
  const int32_t unknown = table.find(entry.text("unk_token", "<unk>"));
  return std::make_unique<WordLevelModel>(std::move(table), unknown);
}

}  // namespace frugal::data

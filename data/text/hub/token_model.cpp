#include "data/text/hub/token_model.h"

#include "core/error.h"
#include "core/words/quoted.h"

namespace frugal::data {

TokenTable::TokenTable(std::vector<std::string> tokens) : tokens_(std::move(tokens)) { index(); }

void TokenTable::index() {
  ids_.reserve(tokens_.size());
  for (size_t id = 0; id < tokens_.size(); ++id)
    if (!tokens_[id].empty()) ids_[tokens_[id]] = static_cast<int32_t>(id);
}

TokenTable TokenTable::of_object(const TokenizerEntry& vocabulary) {
  const TokenizerEntry::Json& json = vocabulary.json();
  if (!json.is_object() || json.empty()) vocabulary.fail("an object of tokens and their ids");
  const auto most = std::min(kMostTokens, 2 * static_cast<int64_t>(json.size()) + kSpareIds);
  std::vector<std::string> tokens;
  for (const auto& [token, id] : json.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(most))
      vocabulary.reject(fmt::format("expected ids from 0 to {} for {} tokens, got {} for {}",
                                    most - 1, json.size(), printable(id.dump()), in_quotes(token)));
    if (token.empty() || token.size() > kLongestToken)
      vocabulary.reject(fmt::format("expected tokens of 1 to {} bytes, got one of {}",
                                    kLongestToken, token.size()));
    const auto at = id.get<size_t>();
    if (at >= tokens.size()) tokens.resize(at + 1);
    if (!tokens[at].empty())
      vocabulary.reject(fmt::format("expected one token with the id {}, got {} and {}", at,
                                    in_quotes(tokens[at]), in_quotes(token)));
    tokens[at] = token;
  }
  return TokenTable(std::move(tokens));
}

void WordCache::clear() {
  slots_.assign(1024, Slot());
  used_ = 0;
  words_.clear();
  pool_.clear();
}

void WordCache::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.count < 0) continue;
    size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].count >= 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
}

std::vector<int32_t> byte_token_ids(const TokenTable& table) {
  std::vector<int32_t> ids;
  for (int byte = 0; byte < 256; ++byte) ids.push_back(table.find(fmt::format("<0x{:02X}>", byte)));
  return ids;
}

std::string token_model_type(const TokenizerEntry& entry) {
  if (entry.has("type")) return entry.text("type");
  return entry.has("merges") ? "BPE" : entry.has("unk_id") ? "Unigram" : "";
}

TokenTable table_of_pieces(const PieceFile& file) {
  std::vector<std::string> tokens;
  tokens.reserve(file.pieces.size());
  for (const Piece& piece : file.pieces) tokens.push_back(piece.text);
  return TokenTable(std::move(tokens));
}

std::unique_ptr<TokenModel> make_piece_model(const PieceFile& file) {
  return file.bpe ? make_bpe_model(file) : make_unigram_model(file);
}

std::unique_ptr<TokenModel> read_token_model(const TokenizerEntry& entry, bool bytes) {
  const std::string type = token_model_type(entry);
  if (type == "BPE") return read_bpe_model(entry, bytes);
  if (type == "Unigram") return read_unigram_model(entry);
  if (type == "WordPiece") return read_word_piece_model(entry);
  if (type == "WordLevel") return read_word_level_model(entry);
  entry.at("type").fail("BPE, Unigram, WordPiece or WordLevel");
}

}  // namespace frugal::data

// Unigram: the most likely way to cut a word into pieces. Ref: Kudo 2018.
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/quoted.h"
#include "data/text/hub/split_pattern.h"
#include "data/text/hub/token_model.h"
#include "data/text/unicode.h"

namespace frugal::data {
namespace {

constexpr double kUnknownPenalty = 10;

class UnigramModel final : public TokenModel {
 public:
  UnigramModel(std::vector<std::string> pieces, std::vector<double> scores,
               std::optional<int32_t> unknown, bool byte_fallback)
      : table_(std::move(pieces)),
        scores_(std::move(scores)),
        unknown_(unknown),
        byte_fallback_(byte_fallback),
        byte_ids_(byte_token_ids(table_)) {
    double least = scores_[0];
    for (int64_t id = 0; id < table_.size(); ++id) {
      least = std::min(least, scores_[static_cast<size_t>(id)]);
      // Pieces that occur twice count with their last score.
      if (const std::string& piece = table_.token(id); !piece.empty())
        trie_.insert(piece, static_cast<int32_t>(id));
    }
    unknown_score_ = least - kUnknownPenalty;
  }

  const TokenTable& table() const override { return table_; }
  void append(std::string_view word, TokenIds& ids, WordCache& cache) const override {
    cache.append(word, ids,
                 [this](std::string_view part, TokenIds& into) { append_whole(part, into); });
  }
  std::string describe() const override {
    return byte_fallback_ ? "Unigram with bytes for unknown characters" : "Unigram";
  }

 private:
  struct Best {  // the best way to cut the text before a place
    double score = 0;
    int64_t begin = -1;  // where the last piece begins; -1: there is no way yet
    int32_t id = 0;
  };
  void append_whole(std::string_view word, TokenIds& ids) const;
  void append_piece(std::string_view piece, TokenIds& ids) const;
  int32_t unknown(std::string_view word) const {
    FRUGAL_CHECK(unknown_.has_value(),
                 "[tokenizer] expected pieces for all characters, since the vocabulary has no "
                 "unk_id, got {}",
                 in_quotes(word));
    return *unknown_;
  }

  TokenTable table_;
  std::vector<double> scores_;
  std::optional<int32_t> unknown_;
  bool byte_fallback_;
  std::vector<int32_t> byte_ids_;
  ByteTrie trie_;
  double unknown_score_ = 0;
};

void UnigramModel::append_whole(std::string_view word, TokenIds& ids) const {
  std::vector<Best> best(word.size() + 1);
  const auto offer = [&](size_t end, size_t begin, double score, int32_t id) {
    Best& target = best[end];
    if (target.begin >= 0 && score <= target.score) return;
    target = {score, static_cast<int64_t>(begin), id};
  };
  for (size_t begin = 0; begin < word.size();) {
    size_t character_end = begin;
    next_code_point(word, character_end);
    const double before = best[begin].score;
    bool single = false;  // whether the character is a piece
    ByteTrie::Node node = ByteTrie::kRoot;
    for (size_t at = begin; at < word.size();) {
      node = trie_.next(node, word[at++]);
      if (node == ByteTrie::kNone) break;
      const int32_t id = trie_.value(node);
      if (id < 0) continue;
      offer(at, begin, before + scores_[static_cast<size_t>(id)], id);
      single = single || at == character_end;
    }
    if (!single) offer(character_end, begin, before + unknown_score_, unknown(word));
    begin = character_end;
  }
  // Unknown characters that follow each other are one piece.
  std::vector<Span> pieces;
  bool joining = false;
  for (size_t end = word.size(); end > 0;) {
    const auto begin = static_cast<size_t>(best[end].begin);
    const bool is_unknown = unknown_ && best[end].id == *unknown_;
    if (is_unknown && joining)
      pieces.back().begin = begin;
    else
      pieces.push_back({begin, end});
    joining = is_unknown;
    end = begin;
  }
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece)
    append_piece(word.substr(piece->begin, piece->end - piece->begin), ids);
}

void UnigramModel::append_piece(std::string_view piece, TokenIds& ids) const {
  if (const int32_t id = table_.find(piece); id >= 0) return ids.push_back(id);
  const auto byte_id = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
  if (byte_fallback_ &&
      std::all_of(piece.begin(), piece.end(), [&](char byte) { return byte_id(byte) >= 0; })) {
    for (const char byte : piece) ids.push_back(byte_id(byte));
    return;
  }
  ids.push_back(unknown(piece));
}

}  // namespace

std::unique_ptr<TokenModel> read_unigram_model(const TokenizerEntry& entry) {
  const TokenizerEntry vocabulary = entry.at("vocab");
  const TokenizerEntry::Json& json = vocabulary.json();
  if (!json.is_array() || json.empty() || json.size() > static_cast<size_t>(kMostTokens))
    vocabulary.fail("a list of pieces and their scores");
  std::vector<std::string> pieces;
  std::vector<double> scores;
  for (const TokenizerEntry::Json& row : json) {
    const bool fits = row.is_array() && row.size() == 2 && row[0].is_string() && row[1].is_number();
    if (!fits || !std::isfinite(row[1].get<double>()))
      vocabulary.reject(fmt::format("expected a piece and its score as entry {}, got {}",
                                    pieces.size(), printable(row.dump(), 80)));
    pieces.push_back(row[0].get<std::string>());
    if (pieces.back().size() > kLongestToken)
      vocabulary.reject(fmt::format("expected pieces of at most {} bytes, got one of {}",
                                    kLongestToken, pieces.back().size()));
    scores.push_back(row[1].get<double>());
  }
  std::optional<int32_t> unknown;
  if (entry.has("unk_id"))
    unknown = static_cast<int32_t>(entry.count("unk_id", static_cast<int64_t>(pieces.size()) - 1));
  return std::make_unique<UnigramModel>(std::move(pieces), std::move(scores), unknown,
                                        entry.flag("byte_fallback", false));
}

}  // namespace frugal::data

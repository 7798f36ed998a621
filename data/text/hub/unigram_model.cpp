// Unigram: the most likely way to cut a word into pieces. Ref: Kudo 2018.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/text/hub/split_pattern.h"
#include "data/text/hub/token_model.h"
#include "data/text/unicode.h"

namespace frugal::data {
namespace {

constexpr double kUnknownPenalty = 10;

struct UnigramOptions {
  std::optional<int32_t> unknown;
  double unknown_score = 0;
  bool byte_fallback = false;
  // Ids are those of SentencePiece and not those of Hugging Face's tokenizers: the scores of a path
  // are added in f32, and words are whole texts.
  bool sentencepiece = false;
};

// Where no piece lies across a place, the text before it is cut alone once it has so many bytes:
// f32 sums over long texts would choose by their rounding, and memory would grow with the text.
constexpr size_t kAloneBytes = size_t{1} << 16;

class UnigramModel final : public TokenModel {
 public:
  // scores: of each piece. searched(id): whether a text may hold the piece.
  template <class Searched>
  UnigramModel(TokenTable pieces, std::vector<double> scores, const UnigramOptions& options,
               const Searched& searched)
      : table_(std::move(pieces)),
        scores_(std::move(scores)),
        options_(options),
        byte_ids_(byte_token_ids(table_)) {
    for (int64_t id = 0; id < table_.size(); ++id)
      // Pieces that occur twice count with their last score.
      if (const std::string& piece = table_.token(id); !piece.empty() && searched(id))
        trie_.insert(piece, static_cast<int32_t>(id));
  }

  const TokenTable& table() const override { return table_; }
  void append(std::string_view word, TokenIds& ids, WordCache& cache) const override {
    if (options_.sentencepiece) return append_whole(word, ids);
    cache.append(word, ids,
                 [this](std::string_view part, TokenIds& into) { append_whole(part, into); });
  }
  std::string describe() const override {
    return options_.byte_fallback ? "Unigram with bytes for unknown characters" : "Unigram";
  }

 private:
  struct Best {  // the best way to cut the text before a place
    double score = 0;
    int64_t begin = -1;  // where the last piece begins; -1: there is no way yet
    int32_t id = 0;
  };
  void append_whole(std::string_view word, TokenIds& ids) const;
  void append_best(std::string_view word, const std::vector<Best>& best, TokenIds& ids) const;
  void append_piece(std::string_view piece, int32_t known, TokenIds& ids) const;
  int32_t unknown(std::string_view word) const {
    FRUGAL_CHECK(options_.unknown.has_value(),
                 "[tokenizer] expected pieces for all characters, since the vocabulary has no "
                 "unk_id, got {}",
                 in_quotes(word));
    return *options_.unknown;
  }

  TokenTable table_;
  std::vector<double> scores_;
  UnigramOptions options_;
  std::vector<int32_t> byte_ids_;
  ByteTrie trie_;
};

void UnigramModel::append_whole(std::string_view word, TokenIds& ids) const {
  size_t start = 0, reach = 0;  // what is before start is done; no piece goes beyond reach
  std::vector<Best> best;       // the places from start on
  const auto rounded = [this](double sum) {
    return options_.sentencepiece ? double{static_cast<float>(sum)} : sum;
  };
  const auto offer = [&](size_t end, size_t begin, double score, int32_t id) {
    if (end > reach) {
      reach = end;
      if (best.size() <= end - start) best.resize(std::max(end - start + 1, 2 * best.size()));
    }
    Best& target = best[end - start];
    if (target.begin >= 0 && score <= target.score) return;
    target = {rounded(score), static_cast<int64_t>(begin - start), id};
  };
  best.resize(std::min(word.size(), kAloneBytes) + 1);
  for (size_t begin = 0; begin < word.size();) {
    if (options_.sentencepiece && reach == begin && begin - start >= kAloneBytes &&
        best[begin - start].id != *options_.unknown) {
      best.resize(begin - start + 1);
      append_best(word.substr(start, begin - start), best, ids);
      best.assign(best.size(), Best());
      start = begin;
    }
    size_t character_end = begin;
    next_code_point(word, character_end);
    const double before = best[begin - start].score;
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
    if (!single)
      offer(character_end, begin, rounded(before + options_.unknown_score), unknown(word));
    begin = character_end;
  }
  best.resize(word.size() - start + 1);
  append_best(word.substr(start), best, ids);
}

// Appends the pieces of the best way to cut `word`, which ends with the last element of `best`.
void UnigramModel::append_best(std::string_view word, const std::vector<Best>& best,
                               TokenIds& ids) const {
  struct Chosen {
    Span span;
    int32_t id;
  };
  // Unknown characters that follow each other are one piece.
  std::vector<Chosen> pieces;
  bool joining = false;
  for (size_t end = word.size(); end > 0;) {
    const auto begin = static_cast<size_t>(best[end].begin);
    const bool is_unknown = options_.unknown && best[end].id == *options_.unknown;
    if (is_unknown && joining)
      pieces.back().span.begin = begin;
    else
      pieces.push_back({{begin, end}, best[end].id});
    joining = is_unknown;
    end = begin;
  }
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece)
    append_piece(word.substr(piece->span.begin, piece->span.end - piece->span.begin), piece->id,
                 ids);
}

void UnigramModel::append_piece(std::string_view piece, int32_t known, TokenIds& ids) const {
  if (options_.sentencepiece) {
    if (known != *options_.unknown) return ids.push_back(known);
  } else if (const int32_t id = table_.find(piece); id >= 0) {
    return ids.push_back(id);
  }
  const auto byte_id = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
  if (options_.byte_fallback &&
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
  UnigramOptions options;
  if (entry.has("unk_id"))
    options.unknown =
        static_cast<int32_t>(entry.count("unk_id", static_cast<int64_t>(pieces.size()) - 1));
  options.unknown_score = *std::min_element(scores.begin(), scores.end()) - kUnknownPenalty;
  options.byte_fallback = entry.flag("byte_fallback", false);
  return std::make_unique<UnigramModel>(TokenTable(std::move(pieces)), std::move(scores), options,
                                        [](int64_t) { return true; });
}

std::unique_ptr<TokenModel> make_unigram_model(const PieceFile& file) {
  float least = std::numeric_limits<float>::max(), most = std::numeric_limits<float>::min();
  for (const Piece& piece : file.pieces) {
    if (piece.type != PieceType::normal) continue;
    least = std::min(least, piece.score);
    most = std::max(most, piece.score);
  }
  std::vector<double> scores;
  for (const Piece& piece : file.pieces)
    // Pieces that are always one token have the score of nearly nothing for each byte.
    scores.push_back(piece.type == PieceType::user_defined
                         ? static_cast<float>(piece.text.size()) * most - 0.1
                         : piece.score);
  UnigramOptions options;
  options.unknown = file.unknown;
  options.unknown_score = least - static_cast<float>(kUnknownPenalty);
  options.byte_fallback = file.byte_fallback;
  options.sentencepiece = true;
  return std::make_unique<UnigramModel>(
      table_of_pieces(file), std::move(scores), options, [&](int64_t id) {
        const PieceType type = file.pieces[static_cast<size_t>(id)].type;
        return type == PieceType::normal || type == PieceType::user_defined;
      });
}

}  // namespace frugal::data

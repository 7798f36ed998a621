// Byte-pair encoding. Pairs merge by rank, and among equals from left to right; a pair that a merge
// makes takes part at once, whatever its rank. Ref: Sennrich et al. 2016.
#include <algorithm>
#include <array>
#include <bitset>
#include <functional>
#include <optional>
#include <queue>
#include <unordered_set>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/text/byte_characters.h"
#include "data/text/hub/token_model.h"
#include "data/text/unicode.h"

namespace frugal::data {
namespace {

struct PairMerge {
  int32_t rank = -1, id = -1;  // rank < 0: the pair is not known
};

// Pairs of ids and what they become: open addressing, because each lookup of a large table waits
// for memory.
class MergeTable {
 public:
  explicit MergeTable(size_t pairs) {
    size_t slots = 64;
    while (slots < 2 * pairs) slots *= 2;
    slots_.resize(slots);
  }
  // False: the pair is known already.
  bool insert(int32_t left, int32_t right, const PairMerge& merge) {
    Slot& slot = slots_[place(key_of(left, right))];
    if (slot.merge.rank >= 0) return false;
    slot = {key_of(left, right), merge};
    return true;
  }
  PairMerge find(int32_t left, int32_t right) const {
    return slots_[place(key_of(left, right))].merge;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    PairMerge merge;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t place(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t at = (key * 0x9e3779b97f4a7c15) >> 24 & mask;
    while (slots_[at].merge.rank >= 0 && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }
  std::vector<Slot> slots_;
};

struct BpeOptions {
  std::optional<int32_t> unknown;
  std::string prefix, suffix;  // all characters but the first have one, and the last
  bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
};

// Two tokens that merge. Ids from the table's size on are characters that are no tokens.
struct KnownMerge {
  int32_t left, right;
  PairMerge merge;
};

class BpeModel final : public TokenModel {
 public:
  BpeModel(TokenTable table, const TokenizerEntry& entry, bool bytes);
  explicit BpeModel(const PieceFile& file);

  const TokenTable& table() const override { return table_; }
  void append(std::string_view word, TokenIds& ids, WordCache& cache) const override;
  std::string describe() const override {
    return options_.byte_fallback ? "BPE with bytes for unknown characters"
           : bytes_               ? "BPE of bytes"
                                  : "BPE";
  }

 private:
  struct Symbol {
    int32_t id, previous, next;  // id < 0: merged into another one
  };
  void read_merges(const TokenizerEntry& merges);
  void find_characters();
  void find_merges(const PieceFile& file);
  bool is_token(int32_t id) const { return id >= 0 && id < table_.size(); }
  int32_t find_word(std::string_view word) const;
  int32_t character_id(char32_t code) const {
    if (code < direct_.size()) return direct_[code];
    const auto at = others_.find(code);
    return at == others_.end() ? -1 : at->second;
  }
  bool joins(char32_t left, char32_t right) const {
    if (left < 128 && right < 128) return ascii_joints_[left << 7 | right];
    return joints_.contains(uint64_t{left} << 32 | right);
  }
  void set_character(char32_t code, int32_t id) {
    if (code < direct_.size())
      direct_[code] = id;
    else
      others_[code] = id;
  }
  void add_joint(char32_t left, char32_t right) {
    if (left < 128 && right < 128)
      ascii_joints_[left << 7 | right] = true;
    else
      joints_.insert(uint64_t{left} << 32 | right);
  }
  void append_unfixed(std::string_view word, TokenIds& ids, WordCache& cache) const;
  void append_whole(std::string_view word, TokenIds& ids) const;
  void write_unknown(TokenIds& symbols) const;
  void first_symbols(std::string_view word, TokenIds& symbols) const;
  void merge_few(TokenIds& symbols) const;
  void merge_many(TokenIds& symbols) const;

  TokenTable table_;
  BpeOptions options_;
  bool bytes_;
  bool cuts_ = false;  // words are cut where no merge can join
  MergeTable merges_;
  std::vector<int32_t> byte_ids_;  // bytes_: those of the bytes; else those of "<0x00>" to "<0xFF>"
  std::vector<int32_t> direct_;    // ids of characters below 65536; -1: unknown
  std::unordered_map<char32_t, int32_t> others_;
  // The last character of a left part and the first one of a right part, for each merge.
  std::unordered_set<uint64_t> joints_;
  std::bitset<1 << 14> ascii_joints_;
  std::unordered_map<std::string, int32_t> byte_words_;  // bytes_: tokens as bytes
  ByteTrie fixed_;                                       // tokens that no merge makes or takes
  bool has_fixed_ = false;
  std::vector<std::string> characters_;  // that are no tokens and merge to some
};

constexpr size_t kFewSymbols = 32;

BpeOptions read_options(const TokenizerEntry& entry, const TokenTable& table) {
  BpeOptions options;
  if (entry.has("dropout") && entry.at("dropout").number() != 0)
    entry.at("dropout").fail("a dropout of 0 or null, with which a text has one encoding");
  options.prefix = entry.text("continuing_subword_prefix", "");
  options.suffix = entry.text("end_of_word_suffix", "");
  options.fuse_unknown = entry.flag("fuse_unk", false);
  options.byte_fallback = entry.flag("byte_fallback", false);
  options.ignore_merges = entry.flag("ignore_merges", false);
  const std::string unknown = entry.text("unk_token", "");
  if (!unknown.empty()) {
    options.unknown = table.find(unknown);
    if (*options.unknown < 0) entry.at("unk_token").fail("a token of the vocabulary");
  }
  return options;
}

char32_t first_code(std::string_view text) {
  size_t at = 0;
  return next_code_point(text, at).code;
}

char32_t last_code(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return next_code_point(text, at).code;
}

BpeModel::BpeModel(TokenTable table, const TokenizerEntry& entry, bool bytes)
    : table_(std::move(table)),
      options_(read_options(entry, table_)),
      bytes_(bytes),
      merges_(entry.at("merges").json().size()) {
  if (bytes_) {
    byte_ids_.assign(256, -1);
    for (int64_t id = 0; id < table_.size(); ++id) {
      const auto text = bytes_of_characters(table_.token(id));
      if (!text || text->empty()) continue;
      if (text->size() == 1) byte_ids_[static_cast<uint8_t>((*text)[0])] = static_cast<int32_t>(id);
      if (options_.ignore_merges) byte_words_[*text] = static_cast<int32_t>(id);
    }
  } else {
    find_characters();
    cuts_ = options_.prefix.empty() && options_.suffix.empty();
  }
  read_merges(entry.at("merges"));
}

void BpeModel::find_characters() {
  byte_ids_ = byte_token_ids(table_);
  direct_.assign(0x10000, -1);
  for (int64_t id = 0; id < table_.size(); ++id) {
    const std::string& token = table_.token(id);
    size_t end = 0;
    if (token.empty() || token.size() > 4) continue;
    const char32_t code = next_code_point(token, end).code;
    if (end == token.size()) set_character(code, static_cast<int32_t>(id));
  }
}

BpeModel::BpeModel(const PieceFile& file)
    : table_(table_of_pieces(file)), bytes_(false), cuts_(true), merges_(0) {
  options_.unknown = file.unknown;
  options_.fuse_unknown = true;
  options_.byte_fallback = file.byte_fallback;
  find_characters();
  find_merges(file);
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    if (file.pieces[id].type != PieceType::user_defined) continue;
    fixed_.insert(file.pieces[id].text, static_cast<int32_t>(id));
    has_fixed_ = true;
  }
}

// SentencePiece merges the pair whose token has the highest score, and the first one among equals:
// so each way to make a token of two is a merge, and tokens of one score have one rank.
void BpeModel::find_merges(const PieceFile& file) {
  // Tokens by their first bytes, and by their last ones.
  ByteTrie ahead, back;
  std::vector<float> scores;
  const auto is_normal = [](const Piece& piece) { return piece.type == PieceType::normal; };
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const Piece& piece = file.pieces[id];
    if (!is_normal(piece)) continue;
    scores.push_back(piece.score);
    ahead.insert(piece.text, static_cast<int32_t>(id));
    back.insert(std::string(piece.text.rbegin(), piece.text.rend()), static_cast<int32_t>(id));
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  const auto rank_of = [&](float score) {
    return static_cast<int32_t>(
        std::lower_bound(scores.begin(), scores.end(), score, std::greater<>()) - scores.begin());
  };
  // The id of a part: a token, or any one character.
  const auto character = [&](std::string_view text) {
    size_t end = 0;
    const char32_t code = next_code_point(text, end).code;
    if (character_id(code) < 0) {
      set_character(code, static_cast<int32_t>(table_.size() + characters_.size()));
      characters_.emplace_back(text);
    }
    return character_id(code);
  };
  std::vector<KnownMerge> all;
  std::vector<size_t> places;   // between the characters of a token
  std::vector<int32_t> behind;  // the tokens from there on; -1: there is none
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const std::string_view text = file.pieces[id].text;
    if (!is_normal(file.pieces[id])) continue;
    places.clear();
    for (size_t at = 0; at < text.size(); places.push_back(at)) next_code_point(text, at);
    places.pop_back();
    if (places.empty()) continue;
    behind.assign(places.size(), -1);
    ByteTrie::Node node = ByteTrie::kRoot;
    size_t at = text.size();
    for (size_t i = places.size(); i-- > 0 && node != ByteTrie::kNone;) {
      while (at > places[i] && node != ByteTrie::kNone) node = back.next(node, text[--at]);
      if (node != ByteTrie::kNone) behind[i] = back.value(node);
    }
    if (behind.back() < 0) behind.back() = character(text.substr(places.back()));
    node = ByteTrie::kRoot;
    at = 0;
    for (size_t i = 0; i < places.size(); ++i) {
      while (at < places[i] && node != ByteTrie::kNone) node = ahead.next(node, text[at++]);
      int32_t before = node == ByteTrie::kNone ? -1 : ahead.value(node);
      if (before < 0 && i == 0) before = character(text.substr(0, places[0]));
      if (before < 0 || behind[i] < 0) continue;
      all.push_back(
          {before, behind[i], {rank_of(file.pieces[id].score), static_cast<int32_t>(id)}});
      add_joint(last_code(text.substr(0, places[i])), first_code(text.substr(places[i])));
    }
  }
  merges_ = MergeTable(all.size());
  for (const KnownMerge& each : all) merges_.insert(each.left, each.right, each.merge);
}

void BpeModel::read_merges(const TokenizerEntry& merges) {
  const TokenizerEntry::Json& json = merges.json();
  if (!json.is_array()) merges.fail("a list of merges");
  std::string left, right, both;
  int32_t rank = 0;
  for (const TokenizerEntry::Json& merge : json) {
    const auto shown = [&] { return printable(merge.dump(), 80); };
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        merges.reject(fmt::format("expected two tokens in merge {}, got {}", rank, shown()));
      left.assign(text, 0, space);
      right.assign(text, space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    } else {
      merges.reject(fmt::format("expected two tokens in merge {}, got {}", rank, shown()));
    }
    const int32_t a = table_.find(left), b = table_.find(right);
    if (a < 0 || b < 0 || right.size() < options_.prefix.size())
      merges.reject(
          fmt::format("expected tokens of the vocabulary in merge {}, got {}", rank, shown()));
    both.assign(left).append(right, options_.prefix.size());
    const int32_t made = table_.find(both);
    if (made < 0)
      merges.reject(
          fmt::format("expected the vocabulary to have what merge {} makes of {}, got "
                      "nothing",
                      rank, shown()));
    if (!merges_.insert(a, b, {rank, made}))
      merges.reject(
          fmt::format("expected each merge once, got {} again as merge {}", shown(), rank));
    if (cuts_) add_joint(last_code(left), first_code(right));
    ++rank;
  }
}

int32_t BpeModel::find_word(std::string_view word) const {
  if (!bytes_) return table_.find(word);
  const auto at = byte_words_.find(std::string(word));
  return at == byte_words_.end() ? -1 : at->second;
}

void BpeModel::first_symbols(std::string_view word, TokenIds& symbols) const {
  if (bytes_ && options_.prefix.empty() && options_.suffix.empty() && !options_.unknown) {
    for (const char byte : word)
      if (const int32_t id = byte_ids_[static_cast<uint8_t>(byte)]; id >= 0) symbols.push_back(id);
    return;
  }
  bool waits = false;  // an unknown character is to be written
  const auto write_unknown = [&] {
    if (waits) symbols.push_back(*options_.unknown);
    waits = false;
  };
  std::string changed;
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    int32_t id = -1;
    std::string_view text;
    if (bytes_) {
      text = word.substr(at++, 1);
      id = byte_ids_[static_cast<uint8_t>(text[0])];
    } else {
      const char32_t code = next_code_point(word, at).code;
      text = word.substr(begin, at - begin);
      const bool first = begin == 0, last = at == word.size();
      if ((!first && !options_.prefix.empty()) || (last && !options_.suffix.empty())) {
        changed =
            (first ? "" : options_.prefix) + std::string(text) + (last ? options_.suffix : "");
        text = changed;
        id = table_.find(changed);
      } else {
        id = character_id(code);
      }
    }
    if (id >= 0) {
      write_unknown();
      symbols.push_back(id);
      continue;
    }
    if (options_.byte_fallback && !bytes_) {
      const auto byte_id = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
      if (std::all_of(text.begin(), text.end(), [&](char byte) { return byte_id(byte) >= 0; })) {
        // An unknown character before these bytes is written behind them, as the reference does.
        for (const char byte : text) symbols.push_back(byte_id(byte));
        continue;
      }
    }
    if (!options_.unknown) continue;
    if (!options_.fuse_unknown) write_unknown();
    waits = true;
  }
  write_unknown();
}

// Looks for the best pair among all: for few symbols that is faster than a heap.
void BpeModel::merge_few(TokenIds& symbols) const {
  std::array<PairMerge, kFewSymbols> pairs;
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = merges_.find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = count;
    for (size_t i = 0; i + 1 < count; ++i)
      if (pairs[i].rank >= 0 && (best == count || pairs[i].rank < pairs[best].rank)) best = i;
    if (best == count) break;
    symbols[best] = pairs[best].id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i] = pairs[i + 1];
    }
    --count;
    if (best > 0) pairs[best - 1] = merges_.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) pairs[best] = merges_.find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(count);
}

// A heap finds the next pair, so that long words do not take quadratic time.
void BpeModel::merge_many(TokenIds& symbols) const {
  struct Candidate {
    int32_t rank, position, id;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  const auto count = static_cast<int32_t>(symbols.size());
  std::vector<Symbol> all;
  all.reserve(symbols.size());
  for (int32_t i = 0; i < count; ++i)
    all.push_back({symbols[static_cast<size_t>(i)], i - 1, i + 1});
  const auto symbol = [&](int32_t i) -> Symbol& { return all[static_cast<size_t>(i)]; };
  std::vector<Candidate> storage;
  storage.reserve(symbols.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap(std::greater<>(),
                                                                              std::move(storage));
  const auto offer = [&](int32_t left) {
    if (left < 0 || symbol(left).next >= count) return;
    const PairMerge merge = merges_.find(symbol(left).id, symbol(symbol(left).next).id);
    if (merge.rank >= 0) heap.push({merge.rank, left, merge.id});
  };
  for (int32_t i = 0; i + 1 < count; ++i) offer(i);
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    Symbol& left = symbol(best.position);
    if (left.id < 0 || left.next >= count) continue;
    Symbol& right = symbol(left.next);
    // A pair that has changed makes another token.
    const PairMerge now = merges_.find(left.id, right.id);
    if (now.rank < 0 || now.id != best.id) continue;
    left.id = best.id;
    right.id = -1;
    left.next = right.next;
    if (left.next < count) symbol(left.next).previous = best.position;
    offer(left.previous);
    offer(best.position);
  }
  size_t kept = 0;
  for (int32_t i = 0; i < count; i = symbol(i).next) symbols[kept++] = symbol(i).id;
  symbols.resize(kept);
}

void BpeModel::append_whole(std::string_view word, TokenIds& ids) const {
  if (options_.ignore_merges)
    if (const int32_t id = find_word(word); id >= 0) return ids.push_back(id);
  TokenIds symbols;
  first_symbols(word, symbols);
  if (symbols.size() > kFewSymbols || !options_.prefix.empty())
    merge_many(symbols);
  else
    merge_few(symbols);
  if (!characters_.empty()) write_unknown(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

// Characters that are no tokens and did not merge become unknown ones.
void BpeModel::write_unknown(TokenIds& symbols) const {
  TokenIds written;
  for (const int32_t symbol : symbols) {
    if (is_token(symbol)) {
      const bool again =
          symbol == *options_.unknown && !written.empty() && written.back() == symbol;
      if (!again) written.push_back(symbol);
    } else if (options_.byte_fallback) {
      for (const char byte : characters_[static_cast<size_t>(symbol - table_.size())])
        written.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
    } else if (written.empty() || written.back() != *options_.unknown) {
      written.push_back(*options_.unknown);
    }
  }
  symbols = std::move(written);
}

void BpeModel::append(std::string_view word, TokenIds& ids, WordCache& cache) const {
  if (!has_fixed_) return append_unfixed(word, ids, cache);
  size_t begin = 0;
  for (size_t at = 0; at < word.size();) {
    const size_t length = fixed_.longest(word.substr(at));
    if (length == 0) {
      next_code_point(word, at);
      continue;
    }
    if (at > begin) append_unfixed(word.substr(begin, at - begin), ids, cache);
    ids.push_back(table_.find(word.substr(at, length)));
    begin = at += length;
  }
  if (begin < word.size()) append_unfixed(word.substr(begin), ids, cache);
}

void BpeModel::append_unfixed(std::string_view word, TokenIds& ids, WordCache& cache) const {
  FRUGAL_CHECK(word.size() < size_t{1} << 30,
               "[tokenizer] expected words of less than 2^30 bytes, got one of {}", word.size());
  const auto whole = [this](std::string_view part, TokenIds& into) { append_whole(part, into); };
  if (!cuts_ || options_.ignore_merges) return cache.append(word, ids, whole);
  // The word is a whole text where there is no pre-tokenizer. It is cut between two characters that
  // no merge joins, which changes no token. Unknown characters stay with their neighbours.
  size_t begin = 0;
  char32_t before = 0;
  bool known_before = false;
  for (size_t at = 0; at < word.size();) {
    const size_t place = at;
    const char32_t code = next_code_point(word, at).code;
    const bool known = is_token(character_id(code));
    if (place > 0 && known && known_before && !joins(before, code)) {
      cache.append(word.substr(begin, place - begin), ids, whole);
      begin = place;
    }
    before = code;
    known_before = known;
  }
  cache.append(word.substr(begin), ids, whole);
}

}  // namespace

std::unique_ptr<TokenModel> make_bpe_model(const PieceFile& file) {
  return std::make_unique<BpeModel>(file);
}

std::unique_ptr<TokenModel> read_bpe_model(const TokenizerEntry& entry, bool bytes) {
  return std::make_unique<BpeModel>(TokenTable::of_object(entry.at("vocab")), entry, bytes);
}

}  // namespace frugal::data

#include "data/text/byte_bpe.h"

#include <functional>
#include <queue>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/json_strict.h"
#include "data/text/byte_characters.h"
#include "data/text/unicode.h"

namespace frugal::data {
namespace {

enum class CharacterKind { space, letter, number, other };

struct Character {
  CharacterKind kind;
  size_t end;  // offset behind it
};

Character character_at(std::string_view text, size_t at) {
  const auto byte = static_cast<uint8_t>(text[at]);
  if (byte >= 'a' && byte <= 'z') return {CharacterKind::letter, at + 1};
  const CodePoint point = next_code_point(text, at);
  if (!point.valid) return {CharacterKind::other, at};
  if (is_letter(point.code)) return {CharacterKind::letter, at};
  if (is_number(point.code)) return {CharacterKind::number, at};
  return {is_white_space(point.code) ? CharacterKind::space : CharacterKind::other, at};
}

// The length of a contraction at the beginning of `text`; 0: none.
size_t contraction(std::string_view text) {
  for (std::string_view known : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text.starts_with(known)) return known.size();
  return 0;
}

size_t word_end(std::string_view text, size_t begin) {
  if (const size_t length = contraction(text.substr(begin))) return begin + length;
  Character current = character_at(text, begin);
  if (text[begin] == ' ' && current.end < text.size()) {
    const Character next = character_at(text, current.end);
    if (next.kind != CharacterKind::space) current = next;
  }
  // The end of the run. The last white space before a word belongs to the word.
  const CharacterKind kind = current.kind;
  size_t end = current.end, last = begin;
  while (end < text.size()) {
    const Character next = character_at(text, end);
    if (next.kind != kind) return kind == CharacterKind::space && last > begin ? last : end;
    last = end;
    end = next.end;
  }
  return end;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

std::vector<std::string> read_tokens(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file("byte_bpe", path);
  nlohmann::json json;
  try {
    json = parse_json<nlohmann::json>({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const JsonError& e) {
    FRUGAL_CHECK(false, "[byte_bpe] expected JSON in {}, got: {}{}{}", path, e.place(),
                 e.place().empty() ? "" : ": ", e.what());
  }
  FRUGAL_CHECK(json.is_object() && !json.empty(), "[byte_bpe] expected an object of tokens in {}",
               path);
  std::vector<std::string> tokens(json.size());
  std::vector<bool> taken(json.size());
  for (const auto& [token, id] : json.items()) {
    FRUGAL_CHECK(
        id.is_number_unsigned() && id.get<uint64_t>() < tokens.size() && !taken[id.get<size_t>()],
        "[byte_bpe] expected ids 0 to {}, each once, in {}, got {} for {}", tokens.size() - 1, path,
        printable(id.dump()), in_quotes(token));
    const auto text = bytes_of_characters(token);
    FRUGAL_CHECK(text && !text->empty(),
                 "[byte_bpe] expected bytes as GPT-2 writes them in {}, got {}", path,
                 in_quotes(token));
    taken[id.get<size_t>()] = true;
    tokens[id.get<size_t>()] = *text;
  }
  return tokens;
}

}  // namespace

std::vector<std::string_view> gpt2_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = word_end(text, begin);
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

ByteBpe::ByteBpe(const std::string& encoder, const std::string& merges)
    : tokens_(read_tokens(encoder)) {
  for (size_t id = 0; id < tokens_.size(); ++id)
    ids_.emplace(tokens_[id], static_cast<int32_t>(id));
  for (size_t b = 0; b < 256; ++b) {
    const auto id = find(std::string(1, static_cast<char>(b)));
    FRUGAL_CHECK(id.has_value(),
                 "[byte_bpe] expected a token for every byte in {}, got none for {:02x}", encoder,
                 b);
    bytes_[b] = *id;
  }
  read_merges(merges);
}

std::optional<int32_t> ByteBpe::find(const std::string& token) const {
  const auto at = ids_.find(token);
  if (at == ids_.end()) return std::nullopt;
  return at->second;
}

std::string ByteBpe::describe() const {
  return fmt::format("BPE of bytes, {} tokens, GPT-2's words", tokens_.size());
}

void ByteBpe::read_merges(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file("byte_bpe", path);
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    FRUGAL_CHECK(
        space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos,
        "[byte_bpe] expected two tokens in line {} of {}, got {}", number, path, in_quotes(line));
    const auto left = bytes_of_characters(line.substr(0, space)),
               right = bytes_of_characters(line.substr(space + 1));
    const auto a = left ? find(*left) : std::nullopt, b = right ? find(*right) : std::nullopt;
    const auto both = a && b ? find(*left + *right) : std::nullopt;
    FRUGAL_CHECK(both.has_value(),
                 "[byte_bpe] expected tokens of the vocabulary in line {} of {}, got {}", number,
                 path, in_quotes(line));
    const Merge merge{static_cast<int32_t>(merges_.size()), *both};
    FRUGAL_CHECK(merges_.emplace(pair_key(*a, *b), merge).second,
                 "[byte_bpe] expected each pair once in {}, got {} again in line {}", path,
                 in_quotes(line), number);
  }
}

// Merges the pair of lowest rank wherever it occurs, from left to right, until no pair is known. A
// heap finds the next pair, so that long words do not take quadratic time.
void ByteBpe::append_word(std::string_view word, TokenIds& ids) const {
  struct Symbol {
    int32_t id, previous, next;  // id < 0: merged into another
  };
  struct Candidate {
    int32_t rank, position, left, right;
    bool operator>(const Candidate& other) const {
      return std::tie(rank, position) > std::tie(other.rank, other.position);
    }
  };
  const auto count = static_cast<int32_t>(word.size());
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<uint8_t>(word[static_cast<size_t>(i)]);
    symbols.push_back({bytes_[byte], i - 1, i + 1});
  }
  const auto symbol = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto offer = [&](int32_t left) {
    if (left < 0 || symbol(left).next >= count) return;
    const int32_t a = symbol(left).id, b = symbol(symbol(left).next).id;
    const auto found = merges_.find(pair_key(a, b));
    if (found != merges_.end()) heap.push({found->second.rank, left, a, b});
  };
  for (int32_t i = 0; i + 1 < count; ++i) offer(i);
  std::vector<Candidate> equal;
  while (!heap.empty()) {
    // Merges all pairs of one rank before any pair that these merges make.
    equal.clear();
    for (const int32_t rank = heap.top().rank; !heap.empty() && heap.top().rank == rank; heap.pop())
      equal.push_back(heap.top());
    const int32_t made = merges_.find(pair_key(equal[0].left, equal[0].right))->second.id;
    for (const Candidate& candidate : equal) {
      Symbol& left = symbol(candidate.position);
      if (left.id != candidate.left || left.next >= count) continue;
      Symbol& right = symbol(left.next);
      if (right.id != candidate.right) continue;
      left.id = made;
      right.id = -1;
      left.next = right.next;
      if (left.next < count) symbol(left.next).previous = candidate.position;
      offer(left.previous);
      offer(candidate.position);
    }
  }
  for (int32_t i = 0; i < count; i = symbol(i).next) ids.push_back(symbol(i).id);
}

TokenIds ByteBpe::encode(std::string_view text) const {
  TokenIds ids;
  std::unordered_map<std::string_view, TokenIds> known;
  for (std::string_view word : gpt2_words(text)) {
    FRUGAL_CHECK(word.size() < size_t{1} << 30,
                 "[byte_bpe] expected words of less than 2^30 bytes, got one of {}", word.size());
    const auto [at, added] = known.try_emplace(word);
    if (added) append_word(word, at->second);
    ids.insert(ids.end(), at->second.begin(), at->second.end());
  }
  return ids;
}

std::string ByteBpe::decode(const TokenIds& ids) const {
  std::string text;
  for (int32_t id : ids) {
    FRUGAL_CHECK(id >= 0 && id < size(), "[byte_bpe] expected an id in [0, {}), got {}", size(),
                 id);
    text += tokens_[static_cast<size_t>(id)];
  }
  return text;
}

}  // namespace frugal::data

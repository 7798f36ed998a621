#include "data/text/wordpiece.h"

#include <algorithm>

#include "core/error.h"
#include "data/text/unicode.h"

namespace frugal::data {
namespace {

bool is_ideograph(char32_t code) {  // the CJK blocks that BERT names; not kana and hangul
  constexpr char32_t kBlocks[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                     {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B820, 0x2CEAF},
                                     {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  if (code < 0x3400) return false;
  return std::any_of(std::begin(kBlocks), std::end(kBlocks), [code](const char32_t* block) {
    return code >= block[0] && code <= block[1];
  });
}

// Punctuation in Unicode, and all ASCII characters except letters, digits, space and controls.
bool splits_words(char32_t code) {
  if (code >= 0x80) return is_punctuation(code);
  return code > U' ' && code < 0x7F && !(code >= U'0' && code <= U'9') &&
         !(code >= U'A' && code <= U'Z') && !(code >= U'a' && code <= U'z');
}

std::u32string cleaned(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (char32_t code : text) {
    if (code == U'\t' || code == U'\n' || code == U'\r' || code == U' ') {
      out.push_back(U' ');
    } else if (code == 0xFFFD || is_control(code)) {
      continue;
    } else if (is_white_space(code)) {  // includes line separators, as Python's split() does
      out.push_back(U' ');
    } else if (is_ideograph(code)) {
      out.append({U' ', code, U' '});
    } else {
      out.push_back(code);
    }
  }
  return out;
}

int32_t special(const Vocabulary& vocabulary, const char* token) {
  return static_cast<int32_t>(vocabulary.id(token));
}

bool is_continuation_byte(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

std::vector<std::string> basic_tokens(std::string_view text, bool lower) {
  std::u32string clean = cleaned(from_utf8(text));
  if (lower) {
    clean = decomposed(lower_case(clean));
    std::erase_if(clean, is_mark);
  }
  std::vector<std::string> words;
  bool inside = false;
  for (char32_t code : clean) {
    // Decomposition may change one space into another, such as U+2000 into U+2002.
    const bool space = code == U' ' || (code >= 0x80 && is_white_space(code));
    const bool alone = !space && splits_words(code);
    if (space || alone) inside = false;
    if (space) continue;
    if (!inside) words.emplace_back();
    append_utf8(words.back(), code);
    inside = !alone;
  }
  return words;
}

WordPiece::WordPiece(Vocabulary vocabulary, const WordPieceOptions& options)
    : vocabulary_(std::move(vocabulary)),
      options_(options),
      unknown_(special(vocabulary_, "[UNK]")) {
  layout_.before = {special(vocabulary_, "[CLS]")};
  layout_.after = layout_.between = layout_.behind = {special(vocabulary_, "[SEP]")};
  layout_.padding = special(vocabulary_, "[PAD]");
  FRUGAL_CHECK(options.max_word_characters >= 1,
               "[wordpiece] expected max_word_characters of at least 1, got {}",
               options.max_word_characters);
  for (int64_t id = 0; id < vocabulary_.size(); ++id)
    longest_ = std::max(longest_, vocabulary_.token(id).size());
}

void WordPiece::append_pieces(std::string_view word, TokenIds& ids) const {
  const auto characters =
      std::count_if(word.begin(), word.end(), [](char c) { return !is_continuation_byte(c); });
  if (characters > options_.max_word_characters) return ids.push_back(unknown_);
  const size_t before = ids.size();
  std::string piece;
  for (size_t begin = 0; begin < word.size();) {
    const std::string_view rest = word.substr(begin);
    piece.assign(begin > 0 ? "##" : "");
    const size_t prefix = piece.size();
    piece.append(rest.substr(0, longest_));
    std::optional<int64_t> id;
    while (piece.size() > prefix) {
      const size_t taken = piece.size() - prefix;
      // Cuts between characters only.
      if (taken == rest.size() || !is_continuation_byte(rest[taken])) id = vocabulary_.find(piece);
      if (id) break;
      piece.pop_back();
    }
    if (!id) {  // the whole word is unknown
      ids.resize(before);
      return ids.push_back(unknown_);
    }
    ids.push_back(static_cast<int32_t>(*id));
    begin += piece.size() - prefix;
  }
}

TokenIds WordPiece::encode(std::string_view text) const {
  TokenIds ids;
  for (const std::string& word : basic_tokens(text, options_.lower_case)) append_pieces(word, ids);
  return ids;
}

std::vector<std::string> WordPiece::pieces(std::string_view text) const {
  std::vector<std::string> out;
  for (int32_t id : encode(text)) out.push_back(vocabulary_.token(id));
  return out;
}

std::string WordPiece::decode(const TokenIds& ids) const {
  std::string text;
  for (int32_t id : ids) {
    const std::string_view token = vocabulary_.token(id);
    if (token.starts_with("##") && token.size() > 2) {
      text += token.substr(2);
    } else {
      if (!text.empty()) text += ' ';
      text += token;
    }
  }
  return text;
}

std::string WordPiece::describe() const {
  return fmt::format("WordPiece, {} tokens{}", size(), options_.lower_case ? ", lower case" : "");
}

std::optional<int32_t> WordPiece::find(const std::string& token) const {
  const auto id = vocabulary_.find(token);
  if (!id) return std::nullopt;
  return static_cast<int32_t>(*id);
}

}  // namespace frugal::data

#include "data/text/hub/normalizers.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/text/byte_characters.h"
#include "data/text/hub/byte_trie.h"
#include "data/text/hub/split_pattern.h"
#include "data/text/unicode.h"

namespace frugal::data {
namespace {

// A text that each character changes alone: change(code, out) appends what it becomes.
template <class Change>
std::string each_character(const std::string& text, const Change& change) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) change(next_code_point(text, at).code, out);
  return out;
}

class FormNormalizer final : public Normalizer {
 public:
  explicit FormNormalizer(NormalForm form) : form_(form) {}
  void apply(std::string& text) const override { text = normal_form(form_, std::move(text)); }

 private:
  NormalForm form_;
};

// Changes that have no parameters.
class PlainNormalizer final : public Normalizer {
 public:
  using Change = void (*)(char32_t code, std::string& out);
  explicit PlainNormalizer(Change change) : change_(change) {}
  void apply(std::string& text) const override { text = each_character(text, change_); }

 private:
  Change change_;
};

void append_lower(char32_t code, std::string& out) { append_lower_case(out, code); }

void append_no_accent(char32_t code, std::string& out) {
  if (!is_any_mark(code)) append_utf8(out, code);
}

// The rules of SentencePiece's nmt files.
void append_nmt(char32_t code, std::string& out) {
  const auto within = [code](char32_t first, char32_t last) {
    return code >= first && code <= last;
  };
  if (within(0x1, 0x8) || code == 0xB || within(0xE, 0x1F) || code == 0x7F || code == 0x8F ||
      code == 0x9F)
    return;
  const bool space = code == 0x9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
                     within(0x200B, 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
                     code == 0xFEFF || code == 0xFFFD;
  append_utf8(out, space ? U' ' : code);
}

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text) const override {
    std::string_view rest = text;
    const size_t begin = left_ ? leading_white_space(rest) : 0;
    rest.remove_prefix(begin);
    if (right_) rest.remove_suffix(trailing_white_space(rest));
    text = std::string(rest);
  }

 private:
  bool left_, right_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(SplitPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::string& text) const override { text = replaced(text, pattern_, content_); }

 private:
  SplitPattern pattern_;
  std::string content_;
};

class ByteNormalizer final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    append_byte_characters(out, text);
    text = std::move(out);
  }
  bool writes_bytes() const override { return true; }
};

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(const TokenizerEntry& entry)
      : clean_(entry.flag("clean_text", true)),
        ideographs_(entry.flag("handle_chinese_chars", true)),
        lower_(entry.flag("lowercase", true)),
        accents_(entry.flag("strip_accents", lower_)) {}
  void apply(std::string& text) const override {
    if (clean_)
      text = each_character(text, [](char32_t code, std::string& out) {
        const bool line = code == U'\t' || code == U'\n' || code == U'\r';
        if (code == 0 || code == 0xFFFD || (!line && is_control_or_private(code))) return;
        append_utf8(out, line || is_white_space(code) ? U' ' : code);
      });
    if (ideographs_)
      text = each_character(text, [](char32_t code, std::string& out) {
        const bool alone = is_ideograph(code);
        if (alone) out += ' ';
        append_utf8(out, code);
        if (alone) out += ' ';
      });
    if (accents_) {
      text = normal_form(NormalForm::nfd, std::move(text));
      text = each_character(text, [](char32_t code, std::string& out) {
        if (!is_mark(code)) append_utf8(out, code);
      });
    }
    if (lower_) text = each_character(text, append_lower);
  }

 private:
  // The blocks that the reference names, which differ from BERT's by one digit.
  static bool is_ideograph(char32_t code) {
    constexpr char32_t kBlocks[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                       {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                       {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    return std::any_of(std::begin(kBlocks), std::end(kBlocks), [code](const char32_t* block) {
      return code >= block[0] && code <= block[1];
    });
  }
  bool clean_, ideographs_, lower_, accents_;
};

class RulesNormalizer final : public Normalizer {
 public:
  explicit RulesNormalizer(CharacterRules rules) : rules_(std::move(rules)) {}
  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    // Short clusters of characters are looked up as a whole first.
    for_graphemes(text, [&](std::string_view cluster) {
      if (cluster.size() < 6) {
        if (const char* found = rules_.find(cluster)) {
          out += found;
          return;
        }
      }
      for (size_t at = 0; at < cluster.size();) {
        const size_t begin = at;
        next_code_point(cluster, at);
        const std::string_view character = cluster.substr(begin, at - begin);
        if (const char* found = rules_.find(character))
          out += found;
        else
          out += character;
      }
    });
    text = valid_utf8(out);
  }

 private:
  CharacterRules rules_;
};

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

class PieceNormalizer final : public Normalizer {
 public:
  PieceNormalizer(const PieceFile& file, bool prefix)
      : prefix_(prefix && file.dummy_prefix),
        space_behind_(file.space_behind),
        remove_(file.remove_spaces),
        space_(file.escape_spaces ? kSpaceMark : " ") {
    if (!file.rules.empty()) rules_.emplace(file.rules);
    for (const Piece& piece : file.pieces)
      if (piece.type == PieceType::user_defined) fixed_.insert(piece.text, 0);
  }
  void apply(std::string& text) const override {
    std::string_view rest = text;
    std::string out;
    out.reserve(text.size() + text.size() / 2);
    if (remove_)
      for (Step step; !rest.empty() && (step = next(rest)).made == " ";)
        rest.remove_prefix(step.bytes);
    if (rest.empty()) return text.clear();
    if (prefix_ && !space_behind_) out += space_;
    bool behind_space = remove_;
    while (!rest.empty()) {
      Step step = next(rest);
      rest.remove_prefix(step.bytes);
      while (behind_space && step.made.starts_with(' ')) step.made.remove_prefix(1);
      if (step.made.empty()) continue;
      for (const char byte : step.made)
        if (byte == ' ')
          out += space_;
        else
          out += byte;
      behind_space = remove_ && step.made.ends_with(' ');
    }
    if (remove_)
      while (out.ends_with(space_)) out.resize(out.size() - space_.size());
    if (prefix_ && space_behind_) out += space_;
    text = valid_utf8(out);
  }

 private:
  struct Step {  // what the first bytes of a text become
    std::string_view made;
    size_t bytes = 0;
  };
  // REQUIRES: a text that is not empty.
  Step next(std::string_view text) const {
    if (const size_t length = fixed_.longest(text); length > 0)
      return {text.substr(0, length), length};
    if (rules_) {
      size_t length = 0;
      if (const char* found = rules_->find_longest(text, length)) return {found, length};
    }
    size_t end = 0;
    next_code_point(text, end);
    return {text.substr(0, end), end};
  }

  std::optional<CharacterRules> rules_;
  ByteTrie fixed_;  // pieces that are always one token stay as they are
  bool prefix_, space_behind_, remove_;
  std::string_view space_;
};

std::string from_base64(const TokenizerEntry& entry) {
  const std::string text = entry.text();
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) entry.fail("base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
  }
  return out;
}

void add_rules(const TokenizerEntry& entry, std::vector<std::unique_ptr<Normalizer>>& all) {
  const std::string bytes = from_base64(entry);
  if (bytes.empty()) return;
  try {
    all.push_back(std::make_unique<RulesNormalizer>(CharacterRules(bytes)));
  } catch (const Error& error) {
    entry.reject(error.what());
  }
}

void add_normalizers(const TokenizerEntry& entry, std::vector<std::unique_ptr<Normalizer>>& all) {
  const std::string type = entry.text("type");
  const auto add = [&](auto normalizer) {
    all.push_back(std::make_unique<decltype(normalizer)>(std::move(normalizer)));
  };
  if (type == "Sequence") {
    for (const TokenizerEntry& each : entry.at("normalizers").list()) add_normalizers(each, all);
  } else if (type == "NFC") {
    add(FormNormalizer(NormalForm::nfc));
  } else if (type == "NFD") {
    add(FormNormalizer(NormalForm::nfd));
  } else if (type == "NFKC") {
    add(FormNormalizer(NormalForm::nfkc));
  } else if (type == "NFKD") {
    add(FormNormalizer(NormalForm::nfkd));
  } else if (type == "Lowercase") {
    add(PlainNormalizer(append_lower));
  } else if (type == "StripAccents") {
    add(PlainNormalizer(append_no_accent));
  } else if (type == "Nmt") {
    add(PlainNormalizer(append_nmt));
  } else if (type == "Strip") {
    add(StripNormalizer(entry.flag("strip_left"), entry.flag("strip_right")));
  } else if (type == "Prepend") {
    add(PrependNormalizer(entry.text("prepend")));
  } else if (type == "Replace") {
    add(ReplaceNormalizer(read_pattern(entry), entry.text("content")));
  } else if (type == "ByteLevel") {
    add(ByteNormalizer());
  } else if (type == "BertNormalizer") {
    add(BertNormalizer(entry));
  } else if (type == "Precompiled") {
    if (entry.has("precompiled_charsmap")) add_rules(entry.at("precompiled_charsmap"), all);
  } else {
    entry.at("type").fail(
        "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, BertNormalizer, "
        "Nmt, Precompiled, ByteLevel or Sequence");
  }
}

}  // namespace

CharacterRules::CharacterRules(const std::string& bytes) {
  uint32_t size = 0;
  if (bytes.size() >= sizeof(size)) std::memcpy(&size, bytes.data(), sizeof(size));
  FRUGAL_CHECK(size > 0 && size % 4 == 0 && size + sizeof(size) <= bytes.size(),
               "[tokenizer] expected rules for characters with a trie, got {} bytes with one of {}",
               bytes.size(), size);
  trie_.resize(size / 4);
  std::memcpy(trie_.data(), bytes.data() + sizeof(size), size);
  replacements_ = bytes.substr(sizeof(size) + size);
}

// Calls found(length, replacement), which says whether to go on, for each beginning of the text
// that a rule names.
template <class Found>
void CharacterRules::for_beginnings(std::string_view text, const Found& found) const {
  // A unit has a label in its low bits, the distance to its children, and whether a text ends
  // there; its value is then in the first child. Ref: Yata, darts-clone.
  const auto offset = [](uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); };
  size_t at = offset(trie_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte == 0) return;
    at ^= byte;
    if (at >= trie_.size()) return;
    const uint32_t unit = trie_[at];
    if ((unit & 0x800000FF) != byte) return;
    at ^= offset(unit);
    if ((unit >> 8 & 1) == 0) continue;
    if (at >= trie_.size()) return;
    const uint32_t value = trie_[at] & 0x7FFFFFFF;
    if (value >= replacements_.size() || !found(i + 1, replacements_.c_str() + value)) return;
  }
}

const char* CharacterRules::find(std::string_view text) const {
  const char* first = nullptr;
  for_beginnings(text, [&](size_t, const char* replacement) {
    first = replacement;
    return false;
  });
  return first;
}

const char* CharacterRules::find_longest(std::string_view text, size_t& length) const {
  const char* last = nullptr;
  for_beginnings(text, [&](size_t bytes, const char* replacement) {
    last = replacement;
    length = bytes;
    return true;
  });
  return last;
}

std::unique_ptr<Normalizer> make_piece_normalizer(const PieceFile& file, bool prefix) {
  try {
    return std::make_unique<PieceNormalizer>(file, prefix);
  } catch (const Error& error) {
    throw Error(fmt::format("[tokenizer] {}: normalizer_spec.precompiled_charsmap: {}",
                            in_quotes(file.name, 300), error.what()));
  }
}

std::vector<std::unique_ptr<Normalizer>> read_normalizers(const TokenizerEntry& entry) {
  std::vector<std::unique_ptr<Normalizer>> all;
  add_normalizers(entry, all);
  return all;
}

}  // namespace frugal::data

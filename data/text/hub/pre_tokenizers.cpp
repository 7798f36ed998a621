#include "data/text/hub/pre_tokenizers.h"

#include <unicode/uscript.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "core/error.h"
#include "data/text/byte_bpe.h"
#include "data/text/byte_characters.h"
#include "data/text/unicode.h"

namespace frugal::data {
namespace {

// What becomes of the places that a pattern finds.
enum class CutAt : uint8_t {
  isolated,
  removed,
  contiguous,
  merged_with_previous,
  merged_with_next
};

struct Part {
  Span span;
  bool matches;
};

// The matches and what lies between them, in order.
std::vector<Part> parts_of(const std::vector<Span>& matches, size_t size) {
  std::vector<Part> parts;
  size_t end = 0;
  for (const Span& match : matches) {
    if (end != match.begin) parts.push_back({{end, match.begin}, false});
    parts.push_back({match, true});
    end = match.end;
  }
  if (end != size) parts.push_back({{end, size}, false});
  return parts;
}

// The words that the parts become.
std::vector<Span> cut_parts(const std::vector<Part>& parts, CutAt cut) {
  std::vector<Span> words;
  bool matched = false;  // whether the part before matches
  if (cut == CutAt::merged_with_next) {
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      if (part->matches && !matched && !words.empty())
        words.back().begin = part->span.begin;
      else
        words.push_back(part->span);
      matched = part->matches;
    }
    std::reverse(words.begin(), words.end());
    return words;
  }
  for (const Part& part : parts) {
    bool joins = false;
    if (cut == CutAt::contiguous) joins = part.matches == matched;
    if (cut == CutAt::merged_with_previous) joins = part.matches && !matched;
    if (cut == CutAt::removed && part.matches) continue;
    if (joins && !words.empty())
      words.back().end = part.span.end;
    else
      words.push_back(part.span);
    matched = part.matches;
  }
  return words;
}

// Cuts each word; parts(word) are its parts.
template <class Parts>
void cut_words(WordList& words, CutAt cut, const Parts& parts) {
  std::vector<Span> all;
  all.reserve(words.spans.size());
  bool first = words.first;
  for (const Span& span : words.spans) {
    const std::vector<Span> made = cut_parts(parts(words.word(span)), cut);
    if (&span == words.spans.data()) first = first && !made.empty() && made[0].begin == 0;
    for (const Span& each : made)
      if (each.end > each.begin) all.push_back({span.begin + each.begin, span.begin + each.end});
  }
  words.spans = std::move(all);
  words.first = first;
}

// Writes each word again: write(word, is_first, out).
template <class Write>
void write_words(WordList& words, const Write& write) {
  std::string text;
  text.reserve(words.text.size() + words.text.size() / 8);
  for (Span& span : words.spans) {
    const size_t begin = text.size();
    write(words.word(span), words.first && &span == words.spans.data(), text);
    span = {begin, text.size()};
  }
  words.text = std::move(text);
}

class PatternSplit final : public PreTokenizer {
 public:
  PatternSplit(SplitPattern pattern, CutAt cut, bool invert)
      : pattern_(std::move(pattern)), cut_(cut), invert_(invert) {}
  void apply(WordList& words) const override {
    cut_words(words, cut_, [this](std::string_view word) {
      std::vector<Part> parts = parts_of(pattern_.find(word), word.size());
      if (invert_)
        for (Part& part : parts) part.matches = !part.matches;
      return parts;
    });
  }

 private:
  SplitPattern pattern_;
  CutAt cut_;
  bool invert_;
};

// Cuts at characters of a kind, one by one.
class CharacterSplit final : public PreTokenizer {
 public:
  using Test = std::function<bool(char32_t)>;
  CharacterSplit(Test test, CutAt cut) : test_(std::move(test)), cut_(cut) {}
  void apply(WordList& words) const override {
    cut_words(words, cut_, [this](std::string_view word) {
      std::vector<Span> matches;
      for (size_t at = 0; at < word.size();) {
        const size_t begin = at;
        if (test_(next_code_point(word, at).code)) matches.push_back({begin, at});
      }
      return parts_of(matches, word.size());
    });
  }

 private:
  Test test_;
  CutAt cut_;
};

// Cuts between characters of different classes.
class ClassSplit final : public PreTokenizer {
 public:
  // The class of a character; classes that are equal stay together, and -1 is left out.
  using Class = int (*)(char32_t code);
  explicit ClassSplit(Class of) : of_(of) {}
  void apply(WordList& words) const override {
    cut_words(words, CutAt::removed, [this](std::string_view word) {
      std::vector<Part> parts;
      int before = -2;
      for (size_t at = 0; at < word.size();) {
        const size_t begin = at;
        const int now = of_(next_code_point(word, at).code);
        if (now == before)
          parts.back().span.end = at;
        else
          parts.push_back({{begin, at}, now < 0});
        before = now;
      }
      return parts;
    });
  }

 private:
  Class of_;
};

class ScriptSplit final : public PreTokenizer {
 public:
  void apply(WordList& words) const override {
    cut_words(words, CutAt::isolated, [](std::string_view word) {
      std::vector<Span> spans;
      int last = kNothing;
      for (size_t at = 0; at < word.size();) {
        const size_t begin = at;
        const int script = script_of(next_code_point(word, at).code);
        if (script != kAny && last != kAny && last != script) spans.push_back({begin, at});
        if (script != kAny) last = script;
        if (!spans.empty()) spans.back().end = at;
      }
      std::vector<Part> parts;
      for (const Span& span : spans) parts.push_back({span, true});
      return parts;
    });
  }

 private:
  static constexpr int kNothing = -2, kAny = -1;
  // Japanese is written in several scripts, which count as one.
  static int script_of(char32_t code) {
    if (code == U' ') return kAny;
    UErrorCode status = U_ZERO_ERROR;
    const UScriptCode script = uscript_getScript(static_cast<UChar32>(code), &status);
    if (code == 0x30FC || script == USCRIPT_HIRAGANA || script == USCRIPT_KATAKANA)
      return USCRIPT_HAN;
    return script == USCRIPT_UNKNOWN ? kAny : script;
  }
};

class FixedLengthSplit final : public PreTokenizer {
 public:
  explicit FixedLengthSplit(int64_t length) : length_(length) {}
  void apply(WordList& words) const override {
    cut_words(words, CutAt::isolated, [this](std::string_view word) {
      std::vector<Part> parts;
      int64_t count = 0;
      for (size_t at = 0; at < word.size(); ++count) {
        const size_t begin = at;
        next_code_point(word, at);
        if (count % length_ == 0)
          parts.push_back({{begin, at}, true});
        else
          parts.back().span.end = at;
      }
      return parts;
    });
  }

 private:
  int64_t length_;
};

class MetaspaceSplit final : public PreTokenizer {
 public:
  enum class Prepend : uint8_t { always, first, never };
  MetaspaceSplit(std::string mark, Prepend prepend, bool split)
      : mark_(std::move(mark)),
        pattern_(SplitPattern::of_text(mark_)),
        prepend_(prepend),
        split_(split) {}
  void apply(WordList& words) const override {
    write_words(words, [this](std::string_view word, bool is_first, std::string& out) {
      const bool wanted = prepend_ == Prepend::always || (prepend_ == Prepend::first && is_first);
      if (wanted && !word.starts_with(' ') && !word.starts_with(mark_)) out += mark_;
      for (const char byte : word)
        if (byte == ' ')
          out += mark_;
        else
          out += byte;
    });
    if (!split_) return;
    cut_words(words, CutAt::merged_with_next,
              [this](std::string_view word) { return parts_of(pattern_.find(word), word.size()); });
  }

 private:
  std::string mark_;
  SplitPattern pattern_;
  Prepend prepend_;
  bool split_;
};

class ByteLevelSplit final : public PreTokenizer {
 public:
  ByteLevelSplit(bool prefix_space, bool words_of_gpt2)
      : prefix_space_(prefix_space), words_of_gpt2_(words_of_gpt2) {}
  void apply(WordList& words) const override {
    if (prefix_space_)
      write_words(words, [](std::string_view word, bool, std::string& out) {
        if (!word.starts_with(' ')) out += ' ';
        out += word;
      });
    if (!words_of_gpt2_) return;
    cut_words(words, CutAt::isolated, [](std::string_view word) {
      std::vector<Part> parts;
      for (const std::string_view each : gpt2_words(word)) {
        const auto begin = static_cast<size_t>(each.data() - word.data());
        parts.push_back({{begin, begin + each.size()}, true});
      }
      return parts;
    });
  }

 private:
  bool prefix_space_, words_of_gpt2_;
};

class ByteWriter final : public PreTokenizer {
 public:
  void apply(WordList& words) const override { write_byte_characters(words); }
};

bool is_ascii_punctuation(char32_t code) {
  return (code >= 0x21 && code <= 0x2F) || (code >= 0x3A && code <= 0x40) ||
         (code >= 0x5B && code <= 0x60) || (code >= 0x7B && code <= 0x7E);
}
bool is_any_punctuation(char32_t code) {
  return is_ascii_punctuation(code) || is_punctuation(code);
}
// \w+ and [^\w\s]+ stay, white space goes.
int word_class(char32_t code) {
  if (is_word_character(code)) return 1;
  return is_white_space(code) ? -1 : 2;
}

CutAt read_cut(const TokenizerEntry& entry) {
  struct CutName {
    const char* name;
    CutAt cut;
  };
  constexpr CutName kRows[] = {{"Isolated", CutAt::isolated},
                               {"Removed", CutAt::removed},
                               {"Contiguous", CutAt::contiguous},
                               {"MergedWithPrevious", CutAt::merged_with_previous},
                               {"MergedWithNext", CutAt::merged_with_next}};
  const TokenizerEntry behavior = entry.at("behavior");
  const std::string name = behavior.text();
  for (const CutName& row : kRows)
    if (name == row.name) return row.cut;
  behavior.fail("Isolated, Removed, Contiguous, MergedWithPrevious or MergedWithNext");
}

MetaspaceSplit::Prepend read_prepend(const TokenizerEntry& entry) {
  using Prepend = MetaspaceSplit::Prepend;
  const std::string scheme = entry.text("prepend_scheme", "always");
  if (!entry.flag("add_prefix_space", true)) {
    if (entry.has("prepend_scheme") && scheme != "never")
      entry.at("prepend_scheme").fail("never, as add_prefix_space says");
    return Prepend::never;
  }
  if (scheme == "always") return Prepend::always;
  if (scheme == "first") return Prepend::first;
  if (scheme == "never") return Prepend::never;
  entry.at("prepend_scheme").fail("always, first or never");
}

void add_pre_tokenizers(const TokenizerEntry& entry, PreTokenizers& made) {
  const std::string type = entry.text("type");
  const auto add = [&](auto step) {
    made.all.push_back(std::make_unique<decltype(step)>(std::move(step)));
  };
  if (type == "Sequence") {
    for (const TokenizerEntry& each : entry.at("pretokenizers").list())
      add_pre_tokenizers(each, made);
    return;
  }
  if (made.bytes_last) {  // another step follows
    add(ByteWriter());
    made.bytes_last = false;
  }
  made.describe += (made.describe.empty() ? "" : ", ") + type;
  if (type == "Split") {
    SplitPattern pattern = read_pattern(entry);
    add(PatternSplit(std::move(pattern), read_cut(entry), entry.flag("invert", false)));
  } else if (type == "ByteLevel") {
    const bool prefix = entry.flag("add_prefix_space", true);
    const bool words = entry.flag("use_regex", true);
    if (prefix || words) add(ByteLevelSplit(prefix, words));
    made.bytes_last = true;
  } else if (type == "Metaspace") {
    add(MetaspaceSplit(entry.character("replacement"), read_prepend(entry),
                       entry.flag("split", true)));
  } else if (type == "Digits") {
    add(CharacterSplit(
        is_number, entry.flag("individual_digits", false) ? CutAt::isolated : CutAt::contiguous));
  } else if (type == "Punctuation") {
    add(CharacterSplit(is_any_punctuation,
                       entry.has("behavior") ? read_cut(entry) : CutAt::isolated));
  } else if (type == "BertPreTokenizer") {
    add(CharacterSplit(is_white_space, CutAt::removed));
    add(CharacterSplit(is_any_punctuation, CutAt::isolated));
  } else if (type == "WhitespaceSplit") {
    add(CharacterSplit(is_white_space, CutAt::removed));
  } else if (type == "Whitespace") {
    add(ClassSplit(word_class));
  } else if (type == "CharDelimiterSplit") {
    const char32_t wanted = from_utf8(entry.character("delimiter"))[0];
    add(CharacterSplit([wanted](char32_t code) { return code == wanted; }, CutAt::removed));
  } else if (type == "UnicodeScripts") {
    add(ScriptSplit());
  } else if (type == "FixedLength") {
    const int64_t length = entry.has("length") ? entry.count("length", 1 << 20) : 5;
    if (length < 1) entry.at("length").fail("a length of at least 1");
    add(FixedLengthSplit(length));
  } else {
    entry.at("type").fail(
        "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, FixedLength, Metaspace, "
        "Punctuation, Sequence, Split, UnicodeScripts, Whitespace or WhitespaceSplit");
  }
}

}  // namespace

void write_byte_characters(WordList& words) {
  write_words(words, [](std::string_view word, bool, std::string& out) {
    append_byte_characters(out, word);
  });
}

PreTokenizers read_pre_tokenizers(const TokenizerEntry& entry) {
  PreTokenizers made;
  add_pre_tokenizers(entry, made);
  return made;
}

}  // namespace frugal::data

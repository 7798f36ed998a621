#include "data/text/hub/split_pattern.h"

#include <unicode/regex.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <optional>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/text/unicode.h"

namespace frugal::data {

struct SplitPattern::Matcher {
  virtual ~Matcher() = default;
  virtual void find(std::string_view text, std::vector<Span>& spans) const = 0;
  virtual bool by_icu() const { return false; }
};

namespace {

constexpr char32_t kReplacement = 0xFFFD;
constexpr size_t kStepsForByte = 256, kStepsAtLeast = size_t{1} << 20;

[[noreturn]] void too_slow(const std::string& expression, size_t bytes) {
  throw Error(
      fmt::format("[tokenizer] the expression {} takes too many steps for a text of {} "
                  "bytes",
                  in_quotes(expression), bytes));
}

// ---- a text
struct TextMatcher final : SplitPattern::Matcher {
  explicit TextMatcher(std::string wanted_text) : wanted(std::move(wanted_text)) {}
  void find(std::string_view text, std::vector<Span>& spans) const override {
    for (size_t at = text.find(wanted); at != std::string_view::npos;
         at = text.find(wanted, at + wanted.size()))
      spans.push_back({at, at + wanted.size()});
  }
  std::string wanted;
};

// ---- ICU
struct IcuMatcher final : SplitPattern::Matcher {
  explicit IcuMatcher(std::string text) : expression(std::move(text)) {
    UErrorCode status = U_ZERO_ERROR;
    UParseError place;
    pattern.reset(
        icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(expression), 0, place, status));
    FRUGAL_CHECK(U_SUCCESS(status), "[tokenizer] expected a regular expression, got {}: {} at {}",
                 in_quotes(expression, 300), u_errorName(status), place.offset);
  }

  void find(std::string_view text, std::vector<Span>& spans) const override {
    const icu::UnicodeString wide = icu::UnicodeString::fromUTF8(
        icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
    UErrorCode status = U_ZERO_ERROR;
    const std::unique_ptr<icu::RegexMatcher> matcher(pattern->matcher(wide, status));
    // A unit of ICU's limit is some thousand steps, about a millisecond.
    const size_t limit = 1000 + text.size() / 1000;
    matcher->setTimeLimit(static_cast<int32_t>(std::min<size_t>(limit, INT32_MAX)), status);
    // ICU counts UTF-16 units, so the walk over the bytes goes along.
    size_t byte = 0;
    int32_t unit = 0;
    const auto byte_of = [&](int32_t wanted) {
      while (unit < wanted && byte < text.size()) {
        const CodePoint point = next_code_point(text, byte);
        unit += point.valid && point.code > 0xFFFF ? 2 : 1;
      }
      return byte;
    };
    while (matcher->find(status) && U_SUCCESS(status)) {
      const size_t begin = byte_of(matcher->start(status));
      spans.push_back({begin, byte_of(matcher->end(status))});
    }
    if (status == U_REGEX_TIME_OUT || status == U_REGEX_STACK_OVERFLOW)
      too_slow(expression, text.size());
    FRUGAL_CHECK(U_SUCCESS(status), "[tokenizer] the expression {} failed: {}",
                 in_quotes(expression), u_errorName(status));
  }
  bool by_icu() const override { return true; }

  std::string expression;
  std::unique_ptr<icu::RegexPattern> pattern;
};

// ---- alternatives of sequences of classes
struct CodeRange {
  char32_t first, last;
};

// A set of characters.
struct CodeClass {
  uint32_t categories = 0;  // general categories, as ICU numbers them
  bool white_space = false, not_white_space = false, negated = false;
  std::vector<CodeRange> ranges;
  std::bitset<0x10000> plane;  // the answers for the first 65536 characters

  bool compute(char32_t code) const {
    const auto icu = static_cast<UChar32>(code);
    bool found = (U_GET_GC_MASK(icu) & categories) != 0;
    if (white_space || not_white_space)
      found = found || (u_isUWhiteSpace(icu) != 0 ? white_space : not_white_space);
    for (const CodeRange& range : ranges)
      found = found || (code >= range.first && code <= range.last);
    return found != negated;
  }
  void finish() {
    for (char32_t code = 0; code < 0x10000; ++code) plane[code] = compute(code);
  }
  bool has(char32_t code) const { return code < 0x10000 ? plane[code] : compute(code); }
};

struct Step {
  enum class Kind : uint8_t { characters, group, followed_by, not_followed_by };
  Kind kind = Kind::characters;
  size_t set = 0;  // place in Alternatives::sets
  size_t least = 1, most = 1;
  std::vector<std::vector<size_t>> words;  // group: sets, one after the other, in each alternative
};
using Steps = std::vector<Step>;
constexpr size_t kMany = SIZE_MAX;

struct Alternatives {
  std::vector<CodeClass> sets;
  std::vector<Steps> all;
};

// Reads an expression; nothing: it has parts that only ICU knows.
class AlternativesReader {
 public:
  explicit AlternativesReader(const std::string& text) : text_(from_utf8(text)) {}

  std::optional<Alternatives> read() {
    made_.all.emplace_back();
    while (at_ < text_.size()) {
      if (take(U'|')) {
        made_.all.emplace_back();
        continue;
      }
      Step step;
      if (!read_atom(step) || !read_count(step)) return std::nullopt;
      made_.all.back().push_back(std::move(step));
    }
    size_t loops = 0;
    for (const Steps& steps : made_.all) {
      if (steps.empty()) return std::nullopt;
      size_t own = 0;
      bool reads = false;  // at least one character
      for (const Step& step : steps) {
        own += step.most == kMany ? 1 : 0;
        reads = reads || (step.least > 0 &&
                          (step.kind == Step::Kind::characters || step.kind == Step::Kind::group));
      }
      if (!reads) return std::nullopt;  // it may match nothing
      loops = std::max(loops, own);
    }
    if (loops > 4) return std::nullopt;
    for (CodeClass& set : made_.sets) set.finish();
    return std::move(made_);
  }

 private:
  bool take(char32_t code) {
    if (at_ == text_.size() || text_[at_] != code) return false;
    ++at_;
    return true;
  }
  bool take(std::u32string_view word) {
    if (!std::u32string_view(text_).substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  size_t add(CodeClass set) {
    made_.sets.push_back(std::move(set));
    return made_.sets.size() - 1;
  }

  bool read_atom(Step& step) {
    const bool inverse = take(U"(?!");
    if (inverse || take(U"(?=")) {
      step.kind = inverse ? Step::Kind::not_followed_by : Step::Kind::followed_by;
      return read_set(step.set, false) && take(U')');
    }
    const bool any_case = take(U"(?i:");
    if (any_case || take(U"(?:")) return read_group(step, any_case);
    return read_set(step.set, false);
  }

  bool read_group(Step& step, bool any_case) {
    step.kind = Step::Kind::group;
    step.words.emplace_back();
    while (!take(U')')) {
      if (take(U'|')) {
        step.words.emplace_back();
        continue;
      }
      size_t set = 0;
      if (!read_set(set, any_case)) return false;
      step.words.back().push_back(set);
    }
    return std::none_of(step.words.begin(), step.words.end(),
                        [](const auto& word) { return word.empty(); });
  }

  bool read_count(Step& step) {
    const bool counts = step.kind == Step::Kind::characters || step.kind == Step::Kind::group;
    const size_t before = at_;
    if (take(U'?')) {
      step.least = 0;
    } else if (take(U'*')) {
      step.least = 0;
      step.most = kMany;
    } else if (take(U'+')) {
      step.most = kMany;
    } else if (take(U'{')) {
      size_t least = 0, most = 0;
      if (!read_number(least)) return false;
      most = least;
      if (take(U',')) {
        most = kMany;
        if (at_ < text_.size() && text_[at_] != U'}' && !read_number(most)) return false;
      }
      if (!take(U'}') || most < least || most == 0) return false;
      step.least = least;
      step.most = most;
    }
    if (at_ == before) return true;
    if (!counts || (step.kind == Step::Kind::group && step.most > 1)) return false;
    // Lazy and possessive counts are ICU's.
    return at_ == text_.size() || (text_[at_] != U'?' && text_[at_] != U'+');
  }
  bool read_number(size_t& number) {
    const size_t begin = at_;
    number = 0;
    while (at_ < text_.size() && text_[at_] >= U'0' && text_[at_] <= U'9' && number < 1000)
      number = number * 10 + (text_[at_++] - U'0');
    return at_ > begin && number <= 1000;
  }

  // A class, an escaped character or a character.
  bool read_set(size_t& at, bool any_case) {
    CodeClass set;
    if (take(U'[')) {
      set.negated = take(U'^');
      bool first = true;
      for (; !take(U']'); first = false) {
        if (at_ == text_.size() || text_[at_] == U'[' || take(U"&&") || take(U"--")) return false;
        if (first && text_[at_] == U'-') return false;
        char32_t code = 0;
        bool alone = false;
        if (!read_member(set, code, alone) || (any_case && alone && code >= 0x80)) return false;
        if (!alone || at_ + 1 >= text_.size() || text_[at_] != U'-' || text_[at_ + 1] == U']') {
          if (alone) add_code(set, code, any_case);
          continue;
        }
        ++at_;
        char32_t last = 0;
        if (!read_member(set, last, alone) || !alone || last < code || any_case) return false;
        set.ranges.push_back({code, last});
      }
      if (first) return false;
    } else {
      if (at_ == text_.size() ||
          std::u32string_view(U".^$*+?{}()|]").find(text_[at_]) != std::u32string_view::npos)
        return false;
      char32_t code = 0;
      bool alone = false;
      if (!read_member(set, code, alone)) return false;
      if (alone) add_code(set, code, any_case);
      if (alone && any_case && code >= 0x80) return false;
    }
    at = add(std::move(set));
    return true;
  }

  static void add_code(CodeClass& set, char32_t code, bool any_case) {
    set.ranges.push_back({code, code});
    if (!any_case) return;
    const char32_t lower = code | 0x20;
    if (lower < U'a' || lower > U'z' || code >= 0x80) return;
    set.ranges.push_back({lower, lower});
    set.ranges.push_back({lower - 0x20, lower - 0x20});
    if (lower == U's') set.ranges.push_back({0x17F, 0x17F});    // long s
    if (lower == U'k') set.ranges.push_back({0x212A, 0x212A});  // Kelvin
  }

  // alone: the member is the one character `code`.
  bool read_member(CodeClass& set, char32_t& code, bool& alone) {
    alone = true;
    code = text_[at_++];
    if (code != U'\\') return true;
    if (at_ == text_.size()) return false;
    code = text_[at_++];
    switch (code) {
      case U'r':
        code = U'\r';
        return true;
      case U'n':
        code = U'\n';
        return true;
      case U't':
        code = U'\t';
        return true;
      case U's':
        set.white_space = true;
        break;
      case U'S':
        set.not_white_space = true;
        break;
      case U'd':
        set.categories |= U_GC_ND_MASK;
        break;
      case U'p':
        if (!read_property(set)) return false;
        break;
      default:
        // A sign after a backslash is that sign. Letters and digits mean something else.
        return code < 0x80 && std::isalnum(static_cast<int>(code)) == 0;
    }
    alone = false;
    return true;
  }

  bool read_property(CodeClass& set) {
    struct Property {
      const char32_t* name;
      uint32_t mask;
    };
    constexpr Property kRows[] = {
        {U"L", U_GC_L_MASK},   {U"Lu", U_GC_LU_MASK}, {U"Ll", U_GC_LL_MASK}, {U"Lt", U_GC_LT_MASK},
        {U"Lm", U_GC_LM_MASK}, {U"Lo", U_GC_LO_MASK}, {U"M", U_GC_M_MASK},   {U"Mn", U_GC_MN_MASK},
        {U"Mc", U_GC_MC_MASK}, {U"Me", U_GC_ME_MASK}, {U"N", U_GC_N_MASK},   {U"Nd", U_GC_ND_MASK},
        {U"Nl", U_GC_NL_MASK}, {U"No", U_GC_NO_MASK}, {U"P", U_GC_P_MASK},   {U"S", U_GC_S_MASK},
        {U"Z", U_GC_Z_MASK},   {U"Zs", U_GC_ZS_MASK}, {U"C", U_GC_C_MASK}};
    if (!take(U'{')) return false;
    const size_t end = text_.find(U'}', at_);
    if (end == std::u32string::npos) return false;
    const std::u32string_view name = std::u32string_view(text_).substr(at_, end - at_);
    at_ = end + 1;
    for (const Property& row : kRows)
      if (name == row.name) {
        set.categories |= row.mask;
        return true;
      }
    return false;
  }

  std::u32string text_;
  size_t at_ = 0;
  Alternatives made_;
};

struct AlternativesMatcher final : SplitPattern::Matcher {
  AlternativesMatcher(std::string text, Alternatives read)
      : expression(std::move(text)), parts(std::move(read)) {}

  struct Walk {
    const AlternativesMatcher& matcher;
    std::string_view text;
    size_t steps_left;

    // The character at `at`, and moves behind it.
    char32_t next(size_t& at) const {
      const auto byte = static_cast<uint8_t>(text[at]);
      if (byte < 0x80) {
        ++at;
        return byte;
      }
      const CodePoint point = next_code_point(text, at);
      return point.valid ? point.code : kReplacement;
    }
    bool is_next(size_t set, size_t at) const {
      return at < text.size() && matcher.parts.sets[set].has(next(at));
    }
    void count(size_t steps) {
      if (steps_left < steps) too_slow(matcher.expression, text.size());
      steps_left -= steps;
    }

    // Where the steps from `step` on end, if they begin at `at`.
    std::optional<size_t> match(const Steps& steps, size_t step, size_t at) {
      if (step == steps.size()) return at;
      const Step& now = steps[step];
      count(1);
      if (now.kind == Step::Kind::characters) return match_characters(steps, step, at);
      if (now.kind != Step::Kind::group) {
        const bool found = is_next(now.set, at);
        if (found != (now.kind == Step::Kind::followed_by)) return std::nullopt;
        return match(steps, step + 1, at);
      }
      for (const std::vector<size_t>& word : now.words) {
        size_t end = at;
        const bool found = std::all_of(word.begin(), word.end(), [&](size_t set) {
          return end < text.size() && matcher.parts.sets[set].has(next(end));
        });
        if (!found) continue;
        if (const auto last = match(steps, step + 1, end)) return last;
      }
      if (now.least > 0) return std::nullopt;
      return match(steps, step + 1, at);
    }

    std::optional<size_t> match_characters(const Steps& steps, size_t step, size_t at) {
      const Step& now = steps[step];
      const CodeClass& set = matcher.parts.sets[now.set];
      size_t taken = 0, end = at;
      while (taken < now.most && end < text.size()) {
        size_t after = end;
        if (!set.has(next(after))) break;
        end = after;
        ++taken;
      }
      count(taken);
      if (taken < now.least) return std::nullopt;
      if (step + 1 == steps.size()) return end;
      while (true) {
        if (const auto last = match(steps, step + 1, end)) return last;
        if (taken == now.least) return std::nullopt;
        --taken;
        end = before(end);
      }
    }
    // The place of the character that ends at `end`.
    size_t before(size_t end) const {
      size_t begin = end - 1;
      for (int back = 0; back < 3 && begin > 0 && (text[begin] & 0xC0) == 0x80; ++back) --begin;
      size_t after = begin;
      next(after);
      return after == end ? begin : end - 1;  // not UTF-8: one byte
    }
  };

  void find(std::string_view text, std::vector<Span>& spans) const override {
    Walk walk{*this, text, kStepsAtLeast + kStepsForByte * text.size()};
    for (size_t at = 0; at < text.size();) {
      std::optional<size_t> end;
      for (const Steps& steps : parts.all) {
        end = walk.match(steps, 0, at);
        if (end) break;
      }
      if (end) {
        spans.push_back({at, *end});
        at = *end;
      } else {
        walk.next(at);
      }
    }
  }

  std::string expression;
  Alternatives parts;
};

}  // namespace

SplitPattern::SplitPattern(std::unique_ptr<Matcher> matcher) : matcher_(std::move(matcher)) {}
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;
SplitPattern::~SplitPattern() = default;

SplitPattern SplitPattern::of_text(std::string text) {
  FRUGAL_CHECK(!text.empty(), "[tokenizer] expected a text to cut at, got an empty one");
  return SplitPattern(std::make_unique<TextMatcher>(std::move(text)));
}

SplitPattern SplitPattern::of_expression(const std::string& expression) {
  auto alternatives = AlternativesReader(expression).read();
  if (!alternatives) return through_icu(expression);
  return SplitPattern(std::make_unique<AlternativesMatcher>(expression, std::move(*alternatives)));
}

SplitPattern SplitPattern::through_icu(const std::string& expression) {
  return SplitPattern(std::make_unique<IcuMatcher>(expression));
}

std::vector<Span> SplitPattern::find(std::string_view text) const {
  std::vector<Span> spans;
  matcher_->find(text, spans);
  return spans;
}

bool SplitPattern::by_icu() const { return matcher_->by_icu(); }

SplitPattern read_pattern(const TokenizerEntry& entry) {
  const TokenizerEntry pattern = entry.at("pattern");
  try {
    if (pattern.has("String")) return SplitPattern::of_text(pattern.text("String"));
    if (pattern.has("Regex")) return SplitPattern::of_expression(pattern.text("Regex"));
  } catch (const Error& error) {
    pattern.reject(error.what());
  }
  pattern.fail("String or Regex");
}

std::string replaced(std::string_view text, const SplitPattern& pattern, std::string_view content) {
  std::string out;
  size_t end = 0;
  for (const Span& span : pattern.find(text)) {
    out.append(text.substr(end, span.begin - end)).append(content);
    end = span.end;
  }
  return out.append(text.substr(end));
}

}  // namespace frugal::data

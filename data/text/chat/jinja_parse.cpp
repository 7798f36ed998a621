#include "data/text/chat/jinja_parse.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "core/words/quoted.h"
#include "data/text/unicode.h"

namespace frugal::data::jinja {
namespace {

using NodePtr = std::unique_ptr<Node>;
using Kind = Node::Kind;
constexpr size_t kMostSource = size_t{1} << 20;
constexpr int kDeepestSource = 100, kTallest = 200;

[[noreturn]] void syntax_error(int64_t line, const std::string& what) {
  throw TemplateError(fmt::format("line {}: {}", line, what));
}

struct Token {
  enum class Kind : uint8_t {
    literal,
    block_begin,
    block_end,
    output_begin,
    output_end,
    name,
    text,
    whole,
    number,
    sign,
    end
  };
  Kind kind = Kind::end;
  int64_t line = 1;
  std::string text;
};
using TokenKind = Token::Kind;

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool continues_name(char c) { return begins_name(c) || (c >= '0' && c <= '9'); }
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    if (source.size() > kMostSource)
      throw TemplateError(fmt::format("expected a template of at most {} bytes, got {}",
                                      kMostSource, source.size()));
    // Line ends are \n, and one at the end of the template does not count.
    for (size_t i = 0; i < source.size(); ++i) {
      if (source[i] != '\r') {
        source_ += source[i];
        continue;
      }
      source_ += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<Token> read() {
    while (at_ < source_.size()) read_literal();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  void advance(size_t count) {
    line_ += std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                        source_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n');
    at_ += count;
  }
  [[noreturn]] void error(const std::string& what) const { syntax_error(line_, what); }

  // The text up to the next tag, and the tag.
  void read_literal() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 == source_.size()) {
        tag = source_.size();
        break;
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    std::string text = source_.substr(at_, tag - at_);
    if (tag == source_.size()) {
      if (!text.empty()) add(TokenKind::literal, std::move(text));
      return advance(source_.size() - at_);
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    strip_before(text, kind, sign);
    if (!text.empty()) add(TokenKind::literal, std::move(text));
    advance(tag - at_ + (sign == '-' || (sign == '+' && kind != '{') ? 3 : 2));
    if (kind == '#') return read_comment();
    if (kind == '%' && read_raw()) return;
    add(kind == '%' ? TokenKind::block_begin : TokenKind::output_begin, "");
    read_tag(kind == '%' ? '%' : '}');
  }

  void strip_before(std::string& text, char kind, char sign) const {
    if (sign == '-') {
      while (!text.empty() && is_blank(text.back())) text.pop_back();
    } else if (kind != '{' && sign != '+') {
      const size_t line = text.rfind('\n') + 1;  // 0: there is none
      if (line == 0 && !line_begins_) return;
      if (std::all_of(text.begin() + static_cast<std::ptrdiff_t>(line), text.end(), is_blank))
        text.resize(line);
    }
  }

  // What follows the end of a tag: '-' takes white space, and a block's line end goes.
  void strip_after(bool minus, bool plus, bool block) {
    const size_t before = at_;
    if (minus) {
      size_t end = at_;
      while (end < source_.size() && is_blank(source_[end])) ++end;
      advance(end - at_);
    } else if (block && !plus && rest().starts_with('\n')) {
      advance(1);
    }
    line_begins_ = at_ > before && source_[at_ - 1] == '\n';
  }

  void read_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) error("expected the end of a comment, #}");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    advance(end + 2 - at_);
    strip_after(sign == '-', sign == '+', true);
  }

  // {% raw %} ... {% endraw %}
  bool read_raw() {
    size_t end = at_;
    const auto skip = [&] {
      while (end < source_.size() && is_blank(source_[end])) ++end;
    };
    const auto tag_end = [&](char& sign) {
      skip();
      sign = end < source_.size() ? source_[end] : ' ';
      if (sign == '-' || sign == '+') ++end;
      if (source_.compare(end, 2, "%}") != 0) return false;
      end += 2;
      return true;
    };
    skip();
    char sign = ' ';
    if (source_.compare(end, 3, "raw") != 0) return false;
    end += 3;
    if (!tag_end(sign)) return false;
    advance(end - at_);
    strip_after(sign == '-', true, false);  // its line end stays
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      end = tag + 2;
      const char before = end < source_.size() ? source_[end] : ' ';
      if (before == '-' || before == '+') ++end;
      skip();
      if (source_.compare(end, 6, "endraw") != 0) continue;
      end += 6;
      if (!tag_end(sign)) continue;
      std::string text = source_.substr(at_, tag - at_);
      strip_before(text, '%', before);
      if (!text.empty()) add(TokenKind::literal, std::move(text));
      advance(end - at_);
      strip_after(sign == '-', sign == '+', true);
      return true;
    }
    error("expected endraw");
  }

  // The tokens of a tag, up to "%}" or "}}".
  void read_tag(char close) {
    int depth = 0;  // how many brackets are open: a "}" within them closes an object
    while (true) {
      while (at_ < source_.size() && is_blank(source_[at_])) advance(1);
      if (at_ == source_.size()) error("expected the end of a tag");
      const std::string_view here = rest();
      const bool minus = here[0] == '-', plus = here[0] == '+';
      const std::string_view ending = here.substr(minus || plus ? 1 : 0);
      if (depth == 0 && ending.size() >= 2 && ending[0] == close && ending[1] == '}') {
        add(close == '%' ? TokenKind::block_end : TokenKind::output_end, "");
        advance(2 + (minus || plus ? 1 : 0));
        return strip_after(minus, plus, close == '%');
      }
      if (begins_name(here[0])) {
        size_t end = 1;
        while (end < here.size() && continues_name(here[end])) ++end;
        take(TokenKind::name, end);
      } else if (here[0] >= '0' && here[0] <= '9') {
        read_number(here);
      } else if (here[0] == '"' || here[0] == '\'') {
        read_text(here);
      } else {
        read_sign(here, depth);
      }
    }
  }
  void take(TokenKind kind, size_t count) {
    add(kind, std::string(rest().substr(0, count)));
    advance(count);
  }

  void read_number(std::string_view here) {
    size_t end = 0;
    bool fraction = false;
    const auto is_digit = [&](size_t at) {
      return at < here.size() && here[at] >= '0' && here[at] <= '9';
    };
    while (is_digit(end)) ++end;
    if (end < here.size() && here[end] == '.' && is_digit(end + 1)) {
      fraction = true;
      for (++end; is_digit(end);) ++end;
    }
    if (end < here.size() && (here[end] | 0x20) == 'e') {
      const size_t sign = end + 1 < here.size() && (here[end + 1] == '-' || here[end + 1] == '+');
      if (is_digit(end + 1 + sign)) {
        fraction = true;
        for (end += 1 + sign; is_digit(end);) ++end;
      }
    }
    take(fraction ? TokenKind::number : TokenKind::whole, end);
  }

  void read_text(std::string_view here) {
    std::string text;
    size_t at = 1;
    for (; at < here.size() && here[at] != here[0]; ++at) {
      if (here[at] != '\\' || at + 1 == here.size()) {
        text += here[at];
        continue;
      }
      ++at;
      switch (here[at]) {
        case 'n':
          text += '\n';
          break;
        case 't':
          text += '\t';
          break;
        case 'r':
          text += '\r';
          break;
        case 'b':
          text += '\b';
          break;
        case 'f':
          text += '\f';
          break;
        case 'v':
          text += '\v';
          break;
        case '0':
          text += '\0';
          break;
        case '\n':
          break;
        case '\\':
        case '\'':
        case '"':
          text += here[at];
          break;
        case 'x':
          append_code(text, here, at, 2);
          break;
        case 'u':
          append_code(text, here, at, 4);
          break;
        case 'U':
          append_code(text, here, at, 8);
          break;
        default:
          text += '\\';
          text += here[at];
      }
    }
    if (at == here.size()) error("expected the end of a text");
    add(TokenKind::text, std::move(text));
    advance(at + 1);
  }
  void append_code(std::string& text, std::string_view here, size_t& at, size_t digits) const {
    uint32_t code = 0;
    const char* first = here.data() + at + 1;
    if (at + digits >= here.size() ||
        std::from_chars(first, first + digits, code, 16).ptr != first + digits || code > 0x10FFFF)
      error("expected the digits of a character");
    append_utf8(text, code);
    at += digits;
  }

  void read_sign(std::string_view here, int& depth) {
    for (const std::string_view two : {"**", "//", "==", "!=", "<=", ">="})
      if (here.starts_with(two)) return take(TokenKind::sign, 2);
    const char sign = here[0];
    if (std::string_view("+-*/%~<>=()[]{}|.,:").find(sign) == std::string_view::npos)
      error(fmt::format("expected an expression, got {}", in_quotes(here, 20)));
    if (std::string_view("([{").find(sign) != std::string_view::npos) ++depth;
    if (std::string_view(")]}").find(sign) != std::string_view::npos) --depth;
    if (depth < 0) error(fmt::format("expected an expression, got {}", in_quotes(here, 20)));
    take(TokenKind::sign, 1);
  }

  std::string source_;
  size_t at_ = 0;
  int64_t line_ = 1;
  bool line_begins_ = true;
  std::vector<Token> tokens_;
};

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  NodePtr read() {
    NodePtr all = statements({});
    if (now().kind != TokenKind::end) error("expected no more tags");
    return all;
  }

 private:
  struct Depth {
    explicit Depth(Parser& owner) : parser(owner) {
      if (++parser.depth_ > kDeepestSource) parser.error("expected less nesting");
    }
    ~Depth() { --parser.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    Parser& parser;
  };

  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  [[noreturn]] void error(const std::string& what) const {
    const std::string got = now().kind == TokenKind::end          ? "the end"
                            : now().kind == TokenKind::block_end  ? "%}"
                            : now().kind == TokenKind::output_end ? "}}"
                                                                  : in_quotes(now().text, 40);
    syntax_error(now().line, fmt::format("{}, got {}", what, got));
  }
  // What walks through a tree, or frees it, calls itself for each part. A chain such as 1 + 1 + 1
  // is tall without any nesting in the source.
  void add(Node& node, NodePtr part) const {
    if (part != nullptr) node.height = std::max(node.height, part->height + 1);
    if (node.height > kTallest) error("expected a shorter expression");
    node.parts.push_back(std::move(part));
  }
  NodePtr make(Kind kind) const {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->line = now().line;
    return node;
  }
  template <class... Parts>
  NodePtr make(Kind kind, Parts... parts) const {
    NodePtr node = make(kind);
    (add(*node, std::move(parts)), ...);
    return node;
  }
  bool is_name(const char* text) const {
    return now().kind == TokenKind::name && now().text == text;
  }
  bool is_sign(const char* text) const {
    return now().kind == TokenKind::sign && now().text == text;
  }
  bool take_name(const char* text) { return is_name(text) && ++at_ > 0; }
  bool take_sign(const char* text) { return is_sign(text) && ++at_ > 0; }
  void need_sign(const char* text) {
    if (!take_sign(text)) error(fmt::format("expected {}", text));
  }
  void need_name(const char* text) {
    if (!take_name(text)) error(fmt::format("expected {}", text));
  }
  std::string need_name() {
    if (now().kind != TokenKind::name) error("expected a name");
    return tokens_[at_++].text;
  }
  void need_end() {
    if (now().kind != TokenKind::block_end) error("expected the end of the tag");
    ++at_;
  }

  // Statements up to a tag with one of these names, which stays. None: up to the end.
  NodePtr statements(const std::vector<const char*>& until) {
    const Depth depth(*this);
    NodePtr all = make(Kind::block);
    while (true) {
      if (now().kind == TokenKind::end) {
        if (until.empty()) return all;
        error(fmt::format("expected {}", fmt::join(until, " or ")));
      }
      if (now().kind == TokenKind::literal) {
        NodePtr literal = make(Kind::literal);
        literal->text = tokens_[at_++].text;
        add(*all, std::move(literal));
        continue;
      }
      if (now().kind == TokenKind::output_begin) {
        ++at_;
        NodePtr output = make(Kind::output);
        add(*output, tuple());
        if (now().kind != TokenKind::output_end) error("expected }}");
        ++at_;
        add(*all, std::move(output));
        continue;
      }
      if (now().kind != TokenKind::block_begin) error("expected a tag");
      if (std::any_of(until.begin(), until.end(),
                      [&](const char* name) { return next().text == name; }))
        return all;
      ++at_;
      add(*all, statement());
    }
  }
  // Leaves "{% NAME" behind.
  void enter(const char* name) {
    ++at_;
    need_name(name);
  }

  NodePtr statement() {
    if (is_name("if")) return branch();
    if (take_name("for")) return loop();
    if (take_name("set")) return set();
    if (take_name("macro")) return macro();
    if (take_name("filter")) return filtered();
    if (take_name("generation")) {
      NodePtr node = make(Kind::generated);
      need_end();
      add(*node, statements({"endgeneration"}));
      enter("endgeneration");
      need_end();
      return node;
    }
    for (const auto& [name, kind] : {std::pair{"break", Kind::leave}, {"continue", Kind::skip}}) {
      if (!take_name(name)) continue;
      if (loops_ == 0) error(fmt::format("expected {} within a loop", name));
      NodePtr node = make(kind);
      need_end();
      return node;
    }
    error("expected if, for, set, macro, filter, generation, break or continue");
  }

  NodePtr branch() {
    ++at_;  // if or elif
    NodePtr node = make(Kind::branch);
    add(*node, tuple());
    need_end();
    add(*node, statements({"elif", "else", "endif"}));
    if (next().text == "elif") {
      const Depth depth(*this);
      ++at_;
      add(*node, branch());
      return node;
    }
    if (next().text == "else") {
      enter("else");
      need_end();
      add(*node, statements({"endif"}));
    } else {
      add(*node, nullptr);
    }
    enter("endif");
    need_end();
    return node;
  }

  std::vector<std::string> targets() {
    const bool brackets = take_sign("(");
    std::vector<std::string> names = {need_name()};
    while (take_sign(",")) {
      if (now().kind != TokenKind::name || is_name("in")) break;
      names.push_back(need_name());
    }
    if (brackets) need_sign(")");
    return names;
  }

  NodePtr loop() {
    NodePtr node = make(Kind::loop);
    node->names = targets();
    need_name("in");
    add(*node, tuple(false));
    add(*node, take_name("if") ? expression() : nullptr);
    if (is_name("recursive")) error("expected a loop that is not recursive");
    need_end();
    ++loops_;
    add(*node, statements({"else", "endfor"}));
    --loops_;
    if (next().text == "else") {
      enter("else");
      need_end();
      add(*node, statements({"endfor"}));
    } else {
      add(*node, nullptr);
    }
    enter("endfor");
    need_end();
    return node;
  }

  NodePtr set() {
    NodePtr node = make(Kind::set);
    node->names = targets();
    if (take_sign(".")) node->text = need_name();
    if (take_sign("=")) {
      add(*node, tuple());
      need_end();
      return node;
    }
    if (node->names.size() != 1 || !node->text.empty()) error("expected =");
    node->kind = Kind::set_block;
    NodePtr filters = make(Kind::name);
    const bool filters_it = is_sign("|");
    if (filters_it) filters = filter_chain(nullptr);
    need_end();
    NodePtr body = statements({"endset"});
    enter("endset");
    need_end();
    add(*node,
        filters_it ? make(Kind::filtered, std::move(body), std::move(filters)) : std::move(body));
    return node;
  }

  NodePtr macro() {
    NodePtr node = make(Kind::macro);
    node->text = need_name();
    need_sign("(");
    std::vector<NodePtr> defaults;
    while (!take_sign(")")) {
      if (!node->names.empty()) need_sign(",");
      node->names.push_back(need_name());
      defaults.push_back(take_sign("=") ? expression() : nullptr);
    }
    need_end();
    const int loops = std::exchange(loops_, 0);
    add(*node, statements({"endmacro"}));
    loops_ = loops;
    for (NodePtr& each : defaults) add(*node, std::move(each));
    enter("endmacro");
    if (is_name(node->text.c_str())) ++at_;
    need_end();
    return node;
  }

  NodePtr filtered() {
    NodePtr filters = one_filter(nullptr);
    if (is_sign("|")) filters = filter_chain(std::move(filters));
    need_end();
    NodePtr body = statements({"endfilter"});
    enter("endfilter");
    need_end();
    return make(Kind::filtered, std::move(body), std::move(filters));
  }

  // Expressions with commas between them are a list.
  NodePtr tuple(bool with_choice = true) {
    NodePtr first = with_choice ? expression() : either();
    if (!is_sign(",")) return first;
    NodePtr list = make(Kind::list, std::move(first));
    while (take_sign(",")) {
      if (now().kind == TokenKind::block_end || now().kind == TokenKind::output_end ||
          is_sign(")") || is_sign("="))
        break;
      add(*list, with_choice ? expression() : either());
    }
    return list;
  }

  NodePtr expression() {
    const Depth depth(*this);
    NodePtr value = either();
    while (take_name("if")) {
      NodePtr condition = either();
      NodePtr other = take_name("else") ? expression() : nullptr;
      value = make(Kind::choice, std::move(condition), std::move(value), std::move(other));
    }
    return value;
  }
  NodePtr either() {
    NodePtr left = both();
    while (take_name("or")) left = make(Kind::either, std::move(left), both());
    return left;
  }
  NodePtr both() {
    NodePtr left = inverse();
    while (take_name("and")) left = make(Kind::both, std::move(left), inverse());
    return left;
  }
  NodePtr inverse() {
    if (!is_name("not")) return comparison();
    const Depth depth(*this);
    ++at_;
    return make(Kind::no, inverse());
  }
  NodePtr comparison() {
    NodePtr first = sum();
    NodePtr node = nullptr;
    while (true) {
      std::string operation;
      if (now().kind == TokenKind::sign &&
          (now().text == "==" || now().text == "!=" || now().text == "<" || now().text == "<=" ||
           now().text == ">" || now().text == ">="))
        operation = tokens_[at_++].text;
      else if (take_name("in"))
        operation = "in";
      else if (is_name("not") && next().text == "in")
        operation = "not in";
      if (operation.empty()) break;
      if (operation == "not in") at_ += 2;
      if (node == nullptr) node = make(Kind::compare, std::move(first));
      node->names.push_back(operation);
      add(*node, sum());
    }
    return node == nullptr ? std::move(first) : std::move(node);
  }
  NodePtr arithmetic(const std::string& sign, NodePtr left, NodePtr right) {
    NodePtr node = make(Kind::arithmetic, std::move(left), std::move(right));
    node->text = sign;
    return node;
  }
  NodePtr sum() {
    NodePtr left = concatenation();
    while (is_sign("+") || is_sign("-")) {
      const std::string sign = tokens_[at_++].text;
      left = arithmetic(sign, std::move(left), concatenation());
    }
    return left;
  }
  NodePtr concatenation() {
    NodePtr left = product();
    while (take_sign("~")) left = arithmetic("~", std::move(left), product());
    return left;
  }
  NodePtr product() {
    NodePtr left = power();
    while (is_sign("*") || is_sign("/") || is_sign("//") || is_sign("%")) {
      const std::string sign = tokens_[at_++].text;
      left = arithmetic(sign, std::move(left), power());
    }
    return left;
  }
  NodePtr power() {
    NodePtr left = unary(true);
    while (take_sign("**")) left = arithmetic("**", std::move(left), unary(true));
    return left;
  }
  NodePtr unary(bool with_filters) {
    const Depth depth(*this);
    NodePtr node;
    if (take_sign("-"))
      node = make(Kind::negate, unary(false));
    else if (take_sign("+"))
      node = make(Kind::plus, unary(false));
    else
      node = primary();
    node = postfix(std::move(node));
    return with_filters ? filter_chain(std::move(node)) : std::move(node);
  }

  NodePtr constant(Value value) {
    NodePtr node = make(Kind::constant);
    node->value = std::move(value);
    ++at_;
    return node;
  }
  NodePtr primary() {
    const Token& token = now();
    switch (token.kind) {
      case TokenKind::name: {
        if (token.text == "true" || token.text == "True") return constant(true);
        if (token.text == "false" || token.text == "False") return constant(false);
        if (token.text == "none" || token.text == "None") return constant(Value());
        NodePtr node = make(Kind::name);
        node->text = need_name();
        return node;
      }
      case TokenKind::text: {
        std::string text;
        NodePtr node = make(Kind::constant);
        while (now().kind == TokenKind::text) text += tokens_[at_++].text;
        node->value = Value(std::move(text));
        return node;
      }
      case TokenKind::whole: {
        int64_t value = 0;
        const char* end = token.text.data() + token.text.size();
        if (std::from_chars(token.text.data(), end, value).ec != std::errc())
          error("expected a number of 64 bits");
        return constant(value);
      }
      case TokenKind::number: {
        double value = 0;
        const char* end = token.text.data() + token.text.size();
        if (std::from_chars(token.text.data(), end, value).ec != std::errc())
          error("expected a number within the range of f64");
        return constant(value);
      }
      default:
        break;
    }
    if (take_sign("(")) {
      if (take_sign(")")) return make(Kind::list);
      NodePtr node = tuple();
      need_sign(")");
      return node;
    }
    if (take_sign("[")) {
      NodePtr node = make(Kind::list);
      while (!take_sign("]")) {
        if (!node->parts.empty()) need_sign(",");
        if (take_sign("]")) break;
        add(*node, expression());
      }
      return node;
    }
    if (take_sign("{")) {
      NodePtr node = make(Kind::dict);
      while (!take_sign("}")) {
        if (!node->parts.empty()) need_sign(",");
        if (take_sign("}")) break;
        add(*node, expression());
        need_sign(":");
        add(*node, expression());
      }
      return node;
    }
    error("expected an expression");
  }

  NodePtr postfix(NodePtr node) {
    while (true) {
      if (take_sign(".")) {
        if (now().kind == TokenKind::whole) {
          node = make(Kind::item, std::move(node), primary());
          continue;
        }
        NodePtr attribute = make(Kind::attribute, std::move(node));
        attribute->text = need_name();
        node = std::move(attribute);
      } else if (take_sign("[")) {
        node = subscript(std::move(node));
      } else if (is_sign("(")) {
        NodePtr call = make(Kind::call, std::move(node));
        arguments(*call);
        node = std::move(call);
      } else {
        return node;
      }
    }
  }
  NodePtr subscript(NodePtr object) {
    NodePtr parts[3];
    bool slices = false;
    size_t count = 0;
    if (!is_sign(":")) parts[0] = tuple();
    while (take_sign(":")) {
      slices = true;
      if (++count == 3) error("expected ]");
      if (!is_sign(":") && !is_sign("]")) parts[count] = expression();
    }
    need_sign("]");
    if (!slices) return make(Kind::item, std::move(object), std::move(parts[0]));
    return make(Kind::slice, std::move(object), std::move(parts[0]), std::move(parts[1]),
                std::move(parts[2]));
  }
  // Arguments in brackets; named ones are the last.
  void arguments(Node& call) {
    need_sign("(");
    for (bool first = true; !take_sign(")"); first = false) {
      if (!first) need_sign(",");
      if (!first && take_sign(")")) return;
      if (now().kind == TokenKind::name && next().kind == TokenKind::sign && next().text == "=") {
        call.names.push_back(need_name());
        ++at_;
      } else if (!call.names.empty()) {
        error("expected a named argument");
      }
      add(call, expression());
    }
  }

  NodePtr one_filter(NodePtr value) {
    NodePtr node = make(Kind::filter, std::move(value));
    node->text = need_name();
    if (is_sign("(")) arguments(*node);
    return node;
  }
  NodePtr filter_chain(NodePtr node) {
    while (true) {
      if (take_sign("|")) {
        node = one_filter(std::move(node));
      } else if (node != nullptr && take_name("is")) {
        NodePtr test = make(Kind::test, std::move(node));
        test->flag = take_name("not");
        test->text = need_name();
        const bool begins = now().kind == TokenKind::text || now().kind == TokenKind::whole ||
                            now().kind == TokenKind::number || is_sign("[") || is_sign("{") ||
                            (now().kind == TokenKind::name && !is_name("else") && !is_name("or") &&
                             !is_name("and") && !is_name("is") && !is_name("if") &&
                             !is_name("in") && !is_name("not"));
        if (is_sign("("))
          arguments(*test);
        else if (begins)
          add(*test, postfix(primary()));
        node = std::move(test);
      } else if (node != nullptr && is_sign("(")) {
        NodePtr call = make(Kind::call, std::move(node));
        arguments(*call);
        node = std::move(call);
      } else {
        return node;
      }
    }
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

std::unique_ptr<Node> parse(std::string_view source) { return Parser(Lexer(source).read()).read(); }

}  // namespace frugal::data::jinja

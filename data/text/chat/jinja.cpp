#include "data/text/chat/jinja.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "core/words/quoted.h"
#include "data/text/chat/jinja_parse.h"

namespace frugal::data::jinja {
namespace {

using Kind = Node::Kind;
constexpr int kDeepestCalls = 60, kDeepestRun = 2000, kMostNamespaces = 200;

enum class Flow { on, leave, skip };

int64_t floor_divided(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

// The whole number that an operation gives. Errors: more than 64 bits.
int64_t whole_result(const std::string& sign, int64_t a, int64_t b) {
  int64_t result = 0;
  bool too_large = false;
  if (sign == "+") {
    too_large = __builtin_add_overflow(a, b, &result);
  } else if (sign == "-") {
    too_large = __builtin_sub_overflow(a, b, &result);
  } else if (sign == "*") {
    too_large = __builtin_mul_overflow(a, b, &result);
  } else {
    if (b == 0) throw TemplateError("expected a divisor, got 0");
    if (b == -1) return whole_result("-", 0, sign == "//" ? a : 0);
    const int64_t rest = a % b;  // its sign is that of a, and wanted is that of b
    result = sign == "//"                         ? floor_divided(a, b)
             : rest != 0 && (rest < 0) != (b < 0) ? rest + b
                                                  : rest;
  }
  if (too_large) throw TemplateError("expected whole numbers of 64 bits, got a larger one");
  return result;
}

Value numbers(const std::string& sign, const Value& left, const Value& right) {
  const bool whole = left.as<double>() == nullptr && right.as<double>() == nullptr;
  if (whole && sign != "/" && sign != "**")
    return whole_result(sign, left.whole("a number"), right.whole("a number"));
  const double a = left.number(), b = right.number();
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**") {
    const double power = std::pow(a, b);
    if (whole && b >= 0 && std::abs(power) < 9e15) return static_cast<int64_t>(power);
    return power;
  }
  if (b == 0) throw TemplateError("expected a divisor, got 0");
  if (sign == "/") return a / b;
  return sign == "//" ? std::floor(a / b) : a - b * std::floor(a / b);
}

// "%s" and "%d" in a text.
Value formatted(const std::string& text, const Value& value) {
  const List values = value.list() != nullptr ? *value.list() : List{value};
  std::string out;
  size_t used = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%' || at + 1 == text.size()) {
      out += text[at];
      continue;
    }
    const char kind = text[++at];
    if (kind == '%') {
      out += '%';
      continue;
    }
    if ((kind != 's' && kind != 'd') || used == values.size())
      throw TemplateError("expected %s or %d for each value of a text with %");
    out += values[used++].text();
    check_size(out.size(), kMostText);
  }
  return out;
}

Value repeated(const Value& value, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (const auto* text = value.as<std::string>()) {
    if (!text->empty()) check_size(times, kMostText / text->size());
    std::string out;
    for (size_t i = 0; i < times && !text->empty(); ++i) out += *text;
    return out;
  }
  List out;
  if (!value.list()->empty()) check_size(times, kMostElements / value.list()->size());
  for (size_t i = 0; i < times && !value.list()->empty(); ++i)
    out.insert(out.end(), value.list()->begin(), value.list()->end());
  return out;
}

template <class List_>
List_ sliced(const List_& all, const Value& first, const Value& last, const Value& step_value) {
  const auto size = static_cast<int64_t>(all.size());
  const int64_t step = step_value.is_none() ? 1 : step_value.whole("a step");
  if (step == 0) throw TemplateError("expected a step, got 0");
  const auto place = [&](const Value& value, int64_t usual) {
    if (value.is_none()) return usual;
    int64_t at = value.whole("a place");
    if (at < 0) at += size;
    return std::clamp<int64_t>(at, step < 0 ? -1 : 0, step < 0 ? size - 1 : size);
  };
  const int64_t begin = place(first, step < 0 ? size - 1 : 0),
                end = place(last, step < 0 ? -1 : size);
  List_ made;
  for (int64_t i = begin; step < 0 ? i > end : i < end;) {
    made.push_back(all[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return made;
}

class Runner {
 public:
  Runner(const Template::Variables& variables, const std::vector<const Dict*>& watched)
      : written(watched.size()) {
    scopes_.resize(1);
    for (const auto& [name, value] : variables) scopes_[0][name] = value;
    for (size_t i = 0; i < watched.size(); ++i) watched_[watched[i]].push_back(i);
    add_functions();
  }

  void run(const Node& root) {
    try {
      execute(root);
    } catch (const TemplateError& error) {
      throw TemplateError(fmt::format("line {}: {}", line_, error.what()));
    }
  }

  std::string out;
  std::vector<std::vector<std::pair<size_t, size_t>>> written;
  std::vector<std::pair<size_t, size_t>> marked;
  bool marks_are_placed = true;

 private:
  using Scope = std::unordered_map<std::string, Value>;

  void step(const Node& node) {
    line_ = node.line;
    if (--steps_ < 0)
      throw TemplateError(fmt::format("expected at most {} steps", Template::kMostSteps));
  }
  // evaluate() and execute() within each other: macros that call others, of tall expressions.
  struct Level {
    explicit Level(int& levels) : count(levels) {
      if (++count > kDeepestRun) throw TemplateError("expected calls that are less deeply nested");
    }
    ~Level() { --count; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    int& count;
  };
  void write(std::string_view text) {
    check_size(out.size() + text.size(), kMostText);
    out += text;
  }

  void add_functions() {
    const auto add = [this](const char* name, Function function) {
      if (!scopes_[0].contains(name)) scopes_[0][name] = Value(std::move(function));
    };
    add("raise_exception", [](Call& call) -> Value {
      throw TemplateError("the template says: " + (call.arguments.empty()
                                                       ? std::string("an error")
                                                       : printable(call.arguments[0].text(), 300)));
    });
    add("range", [](Call& call) -> Value {
      const auto argument = [&](size_t i) { return call.arguments[i].whole("a bound"); };
      const size_t count = call.arguments.size();
      if (count < 1 || count > 3) throw TemplateError("expected 1 to 3 bounds for range");
      const int64_t first = count == 1 ? 0 : argument(0), last = argument(count == 1 ? 0 : 1);
      const int64_t by = count == 3 ? argument(2) : 1;
      if (by == 0) throw TemplateError("expected a step for range, got 0");
      List list;
      for (int64_t i = first; by < 0 ? i > last : i < last;) {
        list.emplace_back(i);
        check_size(list.size(), 100000);
        if (__builtin_add_overflow(i, by, &i)) break;
      }
      return list;
    });
    const auto object = [this](bool is_namespace) {
      return [this, is_namespace](Call& call) -> Value {
        // Members that are set later may make a namespace deeper than its depth says.
        if (is_namespace && ++namespaces_ > kMostNamespaces)
          throw TemplateError(fmt::format("expected at most {} namespaces", kMostNamespaces));
        Dict dict;
        dict.is_namespace = is_namespace;
        for (auto& [name, value] : call.named) dict.set(name, value);
        return dict;
      };
    };
    add("namespace", object(true));
    add("dict", object(false));
  }

  // ---- expressions
  Value evaluate(const Node& node) {
    step(node);
    const Level level(levels_);
    switch (node.kind) {
      case Kind::constant:
        return node.value;
      case Kind::name:
        return look_up(node.text);
      case Kind::list: {
        List list;
        for (const auto& part : node.parts) list.push_back(evaluate(*part));
        return list;
      }
      case Kind::dict: {
        Dict dict;
        for (size_t i = 0; i < node.parts.size(); i += 2)
          dict.set(evaluate(*node.parts[i]).text(), evaluate(*node.parts[i + 1]));
        return dict;
      }
      case Kind::attribute:
        return member(evaluate(*node.parts[0]), Value(node.text));
      case Kind::item: {
        const Value object = evaluate(*node.parts[0]);
        return member(object, evaluate(*node.parts[1]));
      }
      case Kind::slice:
        return slice(node);
      case Kind::call:
        return call(node);
      case Kind::filter:
        return filter(node, evaluate(*node.parts[0]));
      case Kind::test: {
        const Value value = evaluate(*node.parts[0]);
        const Call made = arguments(node);
        line_ = node.line;
        return apply_test(node.text, value, made) != node.flag;
      }
      case Kind::negate: {
        const Value value = evaluate(*node.parts[0]);
        if (value.is_number()) return numbers("-", Value(int64_t{0}), value);
        throw TemplateError(fmt::format("expected a number, got {}", value.type_name()));
      }
      case Kind::plus:
        return evaluate(*node.parts[0]);
      case Kind::no:
        return !evaluate(*node.parts[0]).truth();
      case Kind::both: {
        Value left = evaluate(*node.parts[0]);
        return left.truth() ? evaluate(*node.parts[1]) : left;
      }
      case Kind::either: {
        Value left = evaluate(*node.parts[0]);
        return left.truth() ? left : evaluate(*node.parts[1]);
      }
      case Kind::choice:
        if (evaluate(*node.parts[0]).truth()) return evaluate(*node.parts[1]);
        return node.parts[2] == nullptr ? Value::undefined("else") : evaluate(*node.parts[2]);
      case Kind::compare:
        return comparison(node);
      case Kind::arithmetic: {
        const Value left = evaluate(*node.parts[0]), right = evaluate(*node.parts[1]);
        line_ = node.line;
        return calculated(node.text, left, right);
      }
      default:
        FRUGAL_ASSERT(false);
    }
    return {};
  }

  Value look_up(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->find(name); found != scope->end()) return found->second;
    return Value::undefined(name);
  }

  static Value member(const Value& object, const Value& key) {
    if (const auto* undefined = object.as<Value::Undefined>())
      throw TemplateError(fmt::format("expected an object with {}, got {}, which is undefined",
                                      in_quotes(key.text()), in_quotes(undefined->name)));
    return member_of(object, key);
  }

  Value part_or_none(const Node& node, size_t i) {
    return node.parts[i] == nullptr ? Value() : evaluate(*node.parts[i]);
  }
  Value slice(const Node& node) {
    const Value object = evaluate(*node.parts[0]);
    const Value first = part_or_none(node, 1), last = part_or_none(node, 2),
                by = part_or_none(node, 3);
    if (const List* list = object.list()) return sliced(*list, first, last, by);
    if (!object.is_text())
      throw TemplateError(fmt::format("expected a list or a text, got {}", object.type_name()));
    std::string out_text;
    for (const std::string& each :
         sliced(characters_of(*object.as<std::string>()), first, last, by))
      out_text += each;
    return out_text;
  }

  bool comparison(const Node& node) {
    Value left = evaluate(*node.parts[0]);
    for (size_t i = 0; i < node.names.size(); ++i) {
      const Value right = evaluate(*node.parts[i + 1]);
      const std::string& sign = node.names[i];
      line_ = node.line;
      bool holds = false;
      if (sign == "==" || sign == "!=")
        holds = equal(left, right) == (sign == "==");
      else if (sign == "in" || sign == "not in")
        holds = contains(right, left) == (sign == "in");
      else if (const int order = compare(left, right); sign[0] == '<')
        holds = order < 0 || (order == 0 && sign == "<=");
      else
        holds = order > 0 || (order == 0 && sign == ">=");
      if (!holds) return false;
      left = right;
    }
    return true;
  }

  Call arguments(const Node& node) {
    Call made;
    const size_t plain = node.parts.size() - node.names.size();
    for (size_t i = 1; i < node.parts.size(); ++i) {
      Value value = evaluate(*node.parts[i]);
      if (i < plain)
        made.arguments.push_back(std::move(value));
      else
        made.named.emplace_back(node.names[i - plain], std::move(value));
    }
    return made;
  }

  Value filter(const Node& node, const Value& value) {
    Call made = arguments(node);
    line_ = node.line;
    const Caller by_name = [this, &by_name](const std::string& name, const Value& each,
                                            Call& inner) {
      return apply_filter(name, each, inner, by_name, steps_);
    };
    return apply_filter(node.text, value, made, by_name, steps_);
  }

  Value call(const Node& node) {
    const Node& callee = *node.parts[0];
    if (callee.kind == Kind::attribute) {
      const Value object = evaluate(*callee.parts[0]);
      if (has_method(object, callee.text)) {
        Call made = arguments(node);
        line_ = node.line;
        return call_method(object, callee.text, made);
      }
      return call_value(member(object, Value(callee.text)), node, callee.text);
    }
    const Value value = evaluate(callee);
    return call_value(value, node, callee.text);
  }
  Value call_value(const Value& value, const Node& node, const std::string& name) {
    const Function* function = value.function();
    if (function == nullptr) {
      line_ = node.line;
      throw TemplateError(
          fmt::format("expected a function, got {} as {}", value.type_name(), in_quotes(name)));
    }
    Call made = arguments(node);
    line_ = node.line;
    if (++depth_ > kDeepestCalls) throw TemplateError("expected calls that are less deeply nested");
    Value result = (*function)(made);
    --depth_;
    return result;
  }

  // ---- statements
  Flow execute(const Node& node) {
    step(node);
    const Level level(levels_);
    switch (node.kind) {
      case Kind::literal:
        write(node.text);
        return Flow::on;
      case Kind::output:
        write(evaluate(*node.parts[0]).text());
        return Flow::on;
      case Kind::block:
        for (const auto& part : node.parts)
          if (const Flow flow = execute(*part); flow != Flow::on) return flow;
        return Flow::on;
      case Kind::branch:
        if (evaluate(*node.parts[0]).truth()) return execute(*node.parts[1]);
        return node.parts[2] == nullptr ? Flow::on : execute(*node.parts[2]);
      case Kind::loop:
        return loop(node);
      case Kind::set:
        assign(node, evaluate(*node.parts[0]));
        return Flow::on;
      case Kind::set_block:
        assign(node, Value(captured(*node.parts[0])));
        return Flow::on;
      case Kind::macro:
        scopes_.back()[node.text] = macro(node);
        return Flow::on;
      case Kind::filtered:
        write(filtered(*node.parts[1], Value(captured(*node.parts[0]))).text());
        return Flow::on;
      case Kind::generated: {
        const size_t begin = out.size();
        const Flow flow = execute(*node.parts[0]);
        if (captures_ > 0)
          marks_are_placed = false;
        else
          marked.emplace_back(begin, out.size());
        return flow;
      }
      case Kind::leave:
        return Flow::leave;
      case Kind::skip:
        return Flow::skip;
      default:
        FRUGAL_ASSERT(false);
    }
    return Flow::on;
  }

  // A chain of filters whose innermost value is missing.
  Value filtered(const Node& chain, const Value& value) {
    const Node* inner = chain.parts[0].get();
    return filter(chain, inner == nullptr ? value : filtered(*inner, value));
  }

  // What a body writes.
  std::string captured(const Node& body) {
    std::string outer = std::exchange(out, {});
    ++captures_;
    scopes_.emplace_back();
    execute(body);
    scopes_.pop_back();
    --captures_;
    return std::exchange(out, std::move(outer));
  }

  void assign(const Node& node, const Value& value) {
    line_ = node.line;
    if (!node.text.empty()) {
      Dict* dict = look_up(node.names[0]).changeable_dict();
      if (dict == nullptr || !dict->is_namespace)
        throw TemplateError(
            fmt::format("expected a namespace, since a member of {} is set", node.names[0]));
      if (value.dict() != nullptr && value.dict()->is_namespace)
        throw TemplateError("expected a value for a namespace, got a namespace");
      dict->set(node.text, value);
      return;
    }
    bind(node.names, value);
  }
  void bind(const std::vector<std::string>& names, const Value& value) {
    if (names.size() == 1) {
      scopes_.back()[names[0]] = value;
      return;
    }
    const List all = value.elements();
    if (all.size() != names.size())
      throw TemplateError(
          fmt::format("expected {} values for {}, got {}", names.size(), names[0], all.size()));
    for (size_t i = 0; i < names.size(); ++i) scopes_.back()[names[i]] = all[i];
  }

  Flow loop(const Node& node) {
    List all = evaluate(*node.parts[0]).elements();
    if (node.parts[1] != nullptr) {
      List kept;
      scopes_.emplace_back();
      for (Value& each : all) {
        bind(node.names, each);
        if (evaluate(*node.parts[1]).truth()) kept.push_back(each);
      }
      scopes_.pop_back();
      all = std::move(kept);
    }
    scopes_.emplace_back();
    const auto count = static_cast<int64_t>(all.size());
    for (int64_t i = 0; i < count; ++i) {
      step(node);
      scopes_.back().clear();
      const auto element = [&](int64_t at) {
        return at < 0 || at >= count ? Value::undefined("a neighbour in a loop")
                                     : all[static_cast<size_t>(at)];
      };
      Dict state;
      state.members = {{"index", i + 1},
                       {"index0", i},
                       {"revindex", count - i},
                       {"revindex0", count - i - 1},
                       {"first", i == 0},
                       {"last", i + 1 == count},
                       {"length", count},
                       {"previtem", element(i - 1)},
                       {"nextitem", element(i + 1)},
                       {"cycle", Value(Function([i](Call& call) -> Value {
                          if (call.arguments.empty())
                            throw TemplateError("expected values for cycle");
                          const auto values = static_cast<int64_t>(call.arguments.size());
                          return call.arguments[static_cast<size_t>(i % values)];
                        }))}};
      scopes_.back()["loop"] = Value(std::move(state));
      bind(node.names, all[static_cast<size_t>(i)]);
      const size_t begin = out.size();
      const Flow flow = execute(*node.parts[2]);
      note_written(all[static_cast<size_t>(i)], begin);
      if (flow == Flow::leave) break;
    }
    scopes_.pop_back();
    if (count == 0 && node.parts[3] != nullptr) return execute(*node.parts[3]);
    return Flow::on;
  }
  void note_written(const Value& element, size_t begin) {
    if (captures_ > 0 || begin == out.size() || element.dict() == nullptr) return;
    const auto found = watched_.find(element.dict());
    if (found == watched_.end()) return;
    for (const size_t i : found->second) written[i].emplace_back(begin, out.size());
  }

  // A macro sees its arguments and what the template itself has set.
  Value macro(const Node& node) {
    return Value(Function([this, &node](Call& given) -> Value {
      std::vector<Scope> outer(std::make_move_iterator(scopes_.begin() + 1),
                               std::make_move_iterator(scopes_.end()));
      scopes_.resize(1);
      scopes_.emplace_back();
      if (given.arguments.size() > node.names.size())
        throw TemplateError(fmt::format("expected at most {} arguments for {}, got {}",
                                        node.names.size(), node.text, given.arguments.size()));
      for (size_t i = 0; i < node.names.size(); ++i) {
        const Value* value = given.find(i, node.names[i].c_str());
        Value made = value != nullptr               ? *value
                     : node.parts[i + 1] != nullptr ? evaluate(*node.parts[i + 1])
                                                    : Value::undefined(node.names[i]);
        scopes_.back()[node.names[i]] = std::move(made);
      }
      std::string text = captured(*node.parts[0]);
      scopes_.resize(1);
      std::move(outer.begin(), outer.end(), std::back_inserter(scopes_));
      return text;
    }));
  }

  std::vector<Scope> scopes_;
  std::unordered_map<const Dict*, std::vector<size_t>> watched_;
  int64_t steps_ = Template::kMostSteps, line_ = 1;
  int depth_ = 0, levels_ = 0, captures_ = 0, namespaces_ = 0;
};

}  // namespace

Value calculated(const std::string& sign, const Value& left, const Value& right) {
  const auto *a = left.as<std::string>(), *b = right.as<std::string>();
  if (sign == "~" || (sign == "+" && a != nullptr && b != nullptr)) {
    std::string text = left.text() + right.text();
    check_size(text.size(), kMostText);
    return text;
  }
  if (left.is_number() && right.is_number()) return numbers(sign, left, right);
  if (sign == "+" && left.list() != nullptr && right.list() != nullptr) {
    List all = *left.list();
    all.insert(all.end(), right.list()->begin(), right.list()->end());
    check_size(all.size(), kMostElements);
    return all;
  }
  if (sign == "%" && a != nullptr) return formatted(*a, right);
  const auto repeats = [](const Value& value) {
    return value.is_text() || value.list() != nullptr;
  };
  if (sign == "*" && repeats(left) && right.is_number())
    return repeated(left, right.whole("a count"));
  if (sign == "*" && repeats(right) && left.is_number())
    return repeated(right, left.whole("a count"));
  const auto name = [](const Value& value) {
    const auto* undefined = value.as<Value::Undefined>();
    return undefined == nullptr ? std::string(value.type_name())
                                : fmt::format("{}, which is undefined", in_quotes(undefined->name));
  };
  throw TemplateError(
      fmt::format("expected values that {} takes, got {} and {}", sign, name(left), name(right)));
}

namespace {

bool has_marks(const Node& node) {
  return node.kind == Kind::generated ||
         std::any_of(node.parts.begin(), node.parts.end(),
                     [](const auto& part) { return part != nullptr && has_marks(*part); });
}

}  // namespace

Template::Template(std::string_view source)
    : root_(parse(source)), marks_(jinja::has_marks(*root_)) {}
Template::~Template() = default;

Template::Result Template::render(const Variables& variables,
                                  const std::vector<const Dict*>& watched) const {
  Runner runner(variables, watched);
  runner.run(*root_);
  return {std::move(runner.out), std::move(runner.written), std::move(runner.marked),
          runner.marks_are_placed};
}

}  // namespace frugal::data::jinja

#include "data/text/chat/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "core/words/quoted.h"
#include "data/text/unicode.h"

namespace frugal::data::jinja {
namespace {

void check_depth(int depth) {
  if (depth > kDeepest) throw TemplateError("expected values that are less deeply nested");
}

// The shortest decimal that gives the number back, as Python writes it.
std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  const bool whole = text.find_first_of(".e") == std::string::npos;
  return whole ? text + ".0" : text;
}

void append_json_text(std::string& out, const std::string& text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<uint8_t>(c) < 0x20)
          out += fmt::format("\\u{:04x}", static_cast<int>(c));
        else
          out += c;
    }
  }
  out += '"';
}

void append_repr_text(std::string& out, const std::string& text) {
  const bool doubled = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = doubled ? '"' : '\'';
  out += quote;
  for (const char c : text) {
    if (c == '\\' || c == quote) out += '\\';
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else
      out += c;
  }
  out += quote;
}

}  // namespace

void check_size(size_t size, size_t most) {
  if (size > most) throw TemplateError(fmt::format("expected at most {}, got {}", most, size));
}

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> all;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    next_code_point(text, at);
    all.emplace_back(text.substr(begin, at - begin));
  }
  return all;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : members)
    if (name == key) return &value;
  return nullptr;
}

int Value::depth() const {
  if (const auto* list = as<std::shared_ptr<const SharedList>>()) return (*list)->depth;
  return dict() == nullptr ? 0 : dict()->depth;
}

Value::Value(List value) {
  int deepest = 0;
  for (const Value& each : value) deepest = std::max(deepest, each.depth());
  check_depth(deepest + 1);
  data_ = std::make_shared<const SharedList>(SharedList{std::move(value), deepest + 1});
}

Value::Value(Dict value) {
  for (const auto& [key, member] : value.members)
    value.depth = std::max(value.depth, member.depth() + 1);
  check_depth(value.depth);
  data_ = std::make_shared<Dict>(std::move(value));
}

void Dict::set(const std::string& key, Value value) {
  depth = std::max(depth, value.depth() + 1);
  check_depth(depth);
  for (auto& [name, old] : members)
    if (name == key) {
      old = std::move(value);
      return;
    }
  check_size(members.size(), 4096);
  members.emplace_back(key, std::move(value));
}

const Value* Call::find(size_t place, const char* name) const {
  if (place < arguments.size()) return &arguments[place];
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

Value Value::of_json(const nlohmann::ordered_json& json) {
  if (json.is_boolean()) return json.get<bool>();
  const bool is_beyond = json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX;
  if (json.is_number_integer() && !is_beyond) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    List list;
    for (const auto& each : json) list.push_back(of_json(each));
    return list;
  }
  if (json.is_object()) {
    Dict dict;
    for (const auto& [key, value] : json.items()) dict.members.emplace_back(key, of_json(value));
    return dict;
  }
  return {};
}

bool Value::is_number() const {
  return as<bool>() != nullptr || as<int64_t>() != nullptr || as<double>() != nullptr;
}
const List* Value::list() const {
  const auto* list = as<std::shared_ptr<const SharedList>>();
  return list == nullptr ? nullptr : &(*list)->elements;
}
Dict* Value::changeable_dict() const {
  const auto* dict = as<std::shared_ptr<Dict>>();
  return dict == nullptr ? nullptr : dict->get();
}
const Dict* Value::dict() const { return changeable_dict(); }
const Function* Value::function() const {
  const auto* function = as<std::shared_ptr<const Function>>();
  return function == nullptr ? nullptr : function->get();
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (const auto* text = as<std::string>()) return !text->empty();
  if (is_number()) return number() != 0;
  if (list() != nullptr) return !list()->empty();
  if (dict() != nullptr) return dict()->is_namespace || !dict()->members.empty();
  return true;
}

std::string Value::text() const {
  if (const auto* text = as<std::string>()) return *text;
  if (is_undefined()) return {};
  std::string out;
  append_repr(out, 0);
  return out;
}

double Value::number() const {
  if (const auto* value = as<bool>()) return *value ? 1 : 0;
  if (const auto* value = as<int64_t>()) return static_cast<double>(*value);
  const auto* value = as<double>();
  FRUGAL_ASSERT(value != nullptr);
  return *value;
}

int64_t Value::whole(const char* what) const {
  if (const auto* value = as<bool>()) return *value ? 1 : 0;
  if (const auto* value = as<int64_t>()) return *value;
  throw TemplateError(fmt::format("expected a whole number as {}, got {}", what, type_name()));
}

const char* Value::type_name() const {
  constexpr const char* kNames[] = {"something undefined",
                                    "none",
                                    "a boolean",
                                    "a whole number",
                                    "a number",
                                    "a text",
                                    "a list",
                                    "an object",
                                    "a function"};
  return kNames[data_.index()];
}

void Value::append_repr(std::string& out, int depth) const {
  check_depth(depth);
  if (is_none()) {
    out += "None";
  } else if (is_undefined()) {
    out += "Undefined";
  } else if (const auto* flag = as<bool>()) {
    out += *flag ? "True" : "False";
  } else if (const auto* whole = as<int64_t>()) {
    out += std::to_string(*whole);
  } else if (const auto* value = as<double>()) {
    out += number_text(*value);
  } else if (const auto* text = as<std::string>()) {
    append_repr_text(out, *text);
  } else if (list() != nullptr) {
    out += '[';
    for (const Value& each : *list()) {
      if (&each != list()->data()) out += ", ";
      each.append_repr(out, depth + 1);
      check_size(out.size(), kMostText);
    }
    out += ']';
  } else if (dict() != nullptr) {
    out += '{';
    for (const auto& [key, member] : dict()->members) {
      if (out.back() != '{') out += ", ";
      append_repr_text(out, key);
      out += ": ";
      member.append_repr(out, depth + 1);
      check_size(out.size(), kMostText);
    }
    out += '}';
  } else {
    throw TemplateError("expected a value that can be written, got a function");
  }
}

std::string Value::json(int64_t indent, bool sort_keys) const {
  std::string out;
  append_json(out, indent, 0, sort_keys);
  return out;
}

void Value::append_json(std::string& out, int64_t indent, int64_t depth, bool sort_keys) const {
  check_size(out.size(), kMostText);
  check_depth(static_cast<int>(depth));
  const auto line = [&](int64_t level) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent * level), ' ');
  };
  const auto between = [&] {
    out += ',';
    if (indent < 0) out += ' ';
  };
  if (is_none()) {
    out += "null";
  } else if (const auto* flag = as<bool>()) {
    out += *flag ? "true" : "false";
  } else if (const auto* whole = as<int64_t>()) {
    out += std::to_string(*whole);
  } else if (const auto* value = as<double>()) {
    out += std::isnan(*value)   ? "NaN"
           : std::isinf(*value) ? (*value > 0 ? "Infinity" : "-Infinity")
                                : number_text(*value);
  } else if (const auto* text = as<std::string>()) {
    append_json_text(out, *text);
  } else if (const List* all = list()) {
    out += '[';
    for (const Value& each : *all) {
      if (&each != all->data()) between();
      line(depth + 1);
      each.append_json(out, indent, depth + 1, sort_keys);
    }
    if (!all->empty()) line(depth);
    out += ']';
  } else if (const Dict* own = dict()) {
    std::vector<const std::pair<std::string, Value>*> members;
    for (const auto& member : own->members) members.push_back(&member);
    if (sort_keys)
      std::stable_sort(members.begin(), members.end(),
                       [](const auto* a, const auto* b) { return a->first < b->first; });
    out += '{';
    for (const auto* member : members) {
      if (member != members[0]) between();
      line(depth + 1);
      append_json_text(out, member->first);
      out += ": ";
      member->second.append_json(out, indent, depth + 1, sort_keys);
    }
    if (!members.empty()) line(depth);
    out += '}';
  } else {
    throw TemplateError(fmt::format("expected a value that JSON has, got {}", type_name()));
  }
}

List Value::elements() const {
  if (const List* all = list()) return *all;
  List made;
  if (const auto* text = as<std::string>()) {
    for (std::string& each : characters_of(*text)) made.emplace_back(std::move(each));
    return made;
  }
  if (const Dict* own = dict()) {
    for (const auto& [key, value] : own->members) made.emplace_back(key);
    return made;
  }
  if (is_undefined()) return made;
  throw TemplateError(fmt::format("expected something to walk through, got {}", type_name()));
}

namespace {

// A list may hold another one several times, so the work grows with 2^depth.
constexpr int kDeepestCompared = 20;

void check_compared(int depth) {
  if (depth > kDeepestCompared)
    throw TemplateError("expected values to compare that are less deeply nested");
}

bool equal_at(const Value& a, const Value& b, int depth) {
  check_compared(depth);
  const auto same = [depth](const Value& x, const Value& y) { return equal_at(x, y, depth + 1); };
  if (a.is_number() && b.is_number()) {
    const auto *x = a.as<int64_t>(), *y = b.as<int64_t>();
    return x != nullptr && y != nullptr ? *x == *y : a.number() == b.number();
  }
  if (a.is_text() && b.is_text()) return *a.as<std::string>() == *b.as<std::string>();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.list() != nullptr && b.list() != nullptr)
    return std::equal(a.list()->begin(), a.list()->end(), b.list()->begin(), b.list()->end(), same);
  if (a.dict() != nullptr && b.dict() != nullptr) {
    if (a.dict() == b.dict()) return true;
    if (a.dict()->members.size() != b.dict()->members.size()) return false;
    return std::all_of(a.dict()->members.begin(), a.dict()->members.end(), [&](const auto& member) {
      const Value* other = b.dict()->find(member.first);
      return other != nullptr && same(member.second, *other);
    });
  }
  return false;
}

template <class T>
int order_of(T x, T y) {
  return x < y ? -1 : x > y ? 1 : 0;
}

int compare_at(const Value& a, const Value& b, int depth) {
  check_compared(depth);
  if (a.is_number() && b.is_number()) {
    const auto *x = a.as<int64_t>(), *y = b.as<int64_t>();
    return x != nullptr && y != nullptr ? order_of(*x, *y) : order_of(a.number(), b.number());
  }
  if (a.is_text() && b.is_text()) return a.as<std::string>()->compare(*b.as<std::string>());
  if (a.list() != nullptr && b.list() != nullptr) {
    for (size_t i = 0; i < a.list()->size() && i < b.list()->size(); ++i)
      if (const int order = compare_at((*a.list())[i], (*b.list())[i], depth + 1); order != 0)
        return order;
    return order_of(a.list()->size(), b.list()->size());
  }
  throw TemplateError(fmt::format("expected two values that have an order, got {} and {}",
                                  a.type_name(), b.type_name()));
}

}  // namespace

bool equal(const Value& a, const Value& b) { return equal_at(a, b, 0); }
int compare(const Value& a, const Value& b) { return compare_at(a, b, 0); }

bool contains(const Value& whole, const Value& part) {
  if (const auto* text = whole.as<std::string>()) {
    if (!part.is_text())
      throw TemplateError(
          fmt::format("expected a text to look for in a text, got {}", part.type_name()));
    return text->find(*part.as<std::string>()) != std::string::npos;
  }
  if (const Dict* dict = whole.dict())
    return part.is_text() && dict->find(*part.as<std::string>()) != nullptr;
  if (whole.list() == nullptr && !whole.is_undefined())
    throw TemplateError(
        fmt::format("expected a list, a text or an object to look in, got {}", whole.type_name()));
  const List all = whole.elements();
  return std::any_of(all.begin(), all.end(), [&](const Value& each) { return equal(each, part); });
}

}  // namespace frugal::data::jinja

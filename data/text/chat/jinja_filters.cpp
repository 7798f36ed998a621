// Filters, tests and methods of the template language.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "core/words/quoted.h"
#include "data/text/chat/jinja.h"
#include "data/text/unicode.h"

namespace frugal::data::jinja {
namespace {

const std::string& text_of(const Value& value, const char* what) {
  const auto* text = value.as<std::string>();
  if (text == nullptr)
    throw TemplateError(fmt::format("expected a text as {}, got {}", what, value.type_name()));
  return *text;
}

std::string argument_text(const Call& call, size_t place, const char* name,
                          const std::string& usual) {
  const Value* value = call.find(place, name);
  return value == nullptr || value->is_none() ? usual : text_of(*value, name);
}

// The text without the characters of `set` at its ends; no set: white space.
std::string stripped(std::string_view text, const Value* set, bool left, bool right) {
  if (set == nullptr || set->is_none()) {
    if (left) text.remove_prefix(leading_white_space(text));
    if (right) text.remove_suffix(trailing_white_space(text));
    return std::string(text);
  }
  const std::vector<std::string> wanted = characters_of(text_of(*set, "chars"));
  const auto strip = [&](bool front) {
    bool found = true;
    while (found && !text.empty()) {
      found = false;
      for (const std::string& each : wanted) {
        if (front ? !text.starts_with(each) : !text.ends_with(each)) continue;
        front ? text.remove_prefix(each.size()) : text.remove_suffix(each.size());
        found = true;
        break;
      }
    }
  };
  if (left) strip(true);
  if (right) strip(false);
  return std::string(text);
}

std::string replaced_text(std::string_view text, std::string_view from, std::string_view to,
                          int64_t most) {
  if (from.empty()) throw TemplateError("expected a text to replace, got an empty one");
  std::string out;
  while (true) {
    const size_t at = most == 0 ? std::string_view::npos : text.find(from);
    out.append(text.substr(0, at));
    check_size(out.size(), kMostText);
    if (at == std::string_view::npos) return out;
    out.append(to);
    text.remove_prefix(at + from.size());
    --most;
  }
}

List split_text(std::string_view text, const Value* separator, int64_t most) {
  List parts;
  if (separator == nullptr || separator->is_none()) {
    while (true) {
      text.remove_prefix(leading_white_space(text));
      if (text.empty()) return parts;
      size_t end = 0;
      while (end < text.size()) {
        const size_t begin = end;
        if (is_white_space(next_code_point(text, end).code)) {
          end = begin;
          break;
        }
      }
      if (most-- == 0) end = text.size() - trailing_white_space(text);
      parts.emplace_back(std::string(text.substr(0, end)));
      check_size(parts.size(), kMostElements);
      text.remove_prefix(end);
    }
  }
  const std::string& by = text_of(*separator, "a separator");
  if (by.empty()) throw TemplateError("expected a separator, got an empty text");
  while (true) {
    const size_t at = most-- == 0 ? std::string_view::npos : text.find(by);
    parts.emplace_back(std::string(text.substr(0, at)));
    check_size(parts.size(), kMostElements);
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + by.size());
  }
}

enum class Letters { lower, upper, title, capitalized };

std::string with_letters(std::string_view text, Letters letters) {
  std::u32string all = from_utf8(text);
  if (letters == Letters::lower) {
    all = lower_case(all);
  } else {
    bool first = true;  // at the beginning of a word, or of the text
    std::u32string out;
    for (const char32_t code : all) {
      const bool letter = is_letter(code);
      if (letters == Letters::upper || (first && (letter || letters == Letters::capitalized)))
        out += upper_case(std::u32string(1, code));
      else
        out += lower_case(std::u32string(1, code));
      first = letters == Letters::title ? !letter : false;
    }
    all = std::move(out);
  }
  std::string out;
  for (const char32_t code : all) append_utf8(out, code);
  return out;
}

std::string indented(const std::string& text, const Call& call) {
  const Value* width = call.find(0, "width");
  const Value *first = call.find(1, "first"), *blank = call.find(2, "blank");
  std::string margin(4, ' ');
  if (width != nullptr && width->is_text()) {
    margin = *width->as<std::string>();
  } else if (width != nullptr) {
    const int64_t count = width->whole("a width");
    check_size(static_cast<size_t>(std::max<int64_t>(count, 0)), 1024);
    margin.assign(static_cast<size_t>(std::max<int64_t>(count, 0)), ' ');
  }
  std::string out;
  size_t begin = 0;
  for (bool is_first = true; begin <= text.size(); is_first = false) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const bool empty = end == begin;
    if (is_first ? first != nullptr && first->truth()
                 : !empty || (blank != nullptr && blank->truth()))
      out += margin;
    out.append(text, begin, end - begin);
    if (end < text.size()) out += '\n';
    check_size(out.size(), kMostText);
    begin = end + 1;
  }
  return out;
}

// A value by a path such as "function.name".
Value attribute_of(const Value& value, const Value& path) {
  if (!path.is_text()) return member_of(value, path);
  Value found = value;
  const Value dot(".");
  const List parts = split_text(*path.as<std::string>(), &dot, -1);
  for (const Value& part : parts) {
    const std::string& name = *part.as<std::string>();
    int64_t index = 0;
    const bool number = std::from_chars(name.data(), name.data() + name.size(), index).ptr ==
                            name.data() + name.size() &&
                        !name.empty();
    found = member_of(found, number ? Value(index) : part);
  }
  return found;
}

Value number_of(const Value& value, bool whole, const Call& call) {
  const Value* usual = call.find(0, "default");
  const Value other = usual != nullptr ? *usual : whole ? Value(int64_t{0}) : Value(0.0);
  double number = 0;
  if (value.is_number()) {
    if (whole && value.as<int64_t>() != nullptr) return value;
    number = value.number();
  } else if (value.is_text()) {
    const std::string text = stripped(*value.as<std::string>(), nullptr, true, true);
    const char *begin = text.data(), *end = begin + text.size();
    int64_t exact = 0;
    if (const auto read = std::from_chars(begin, end, exact);
        whole && read.ec == std::errc() && read.ptr == end)
      return exact;
    const auto read = std::from_chars(begin, end, number);
    if (read.ec != std::errc() || read.ptr != end) return other;
  } else {
    return other;
  }
  if (!whole) return number;
  if (!(std::abs(number) < 9e18)) return other;
  return static_cast<int64_t>(number);
}

Value rounded(const Value& value, const Call& call) {
  if (!value.is_number()) throw TemplateError("expected a number to round");
  const Value* digits = call.find(0, "precision");
  const double scale =
      std::pow(10.0, digits == nullptr ? 0 : static_cast<double>(digits->whole("a precision")));
  const std::string how = argument_text(call, 1, "method", "common");
  if (how == "common" && value.as<int64_t>() != nullptr && scale >= 1) return value;
  const double scaled = value.number() * scale;
  if (how == "floor") return std::floor(scaled) / scale;
  if (how == "ceil") return std::ceil(scaled) / scale;
  return std::nearbyint(scaled) / scale;
}

bool is_given(const Value* argument) { return argument != nullptr && argument->truth(); }

// Filters compare values by this: the value or an attribute of it, in lower case unless `exact`.
Value key_of(const Value& value, const Value* attribute, bool exact) {
  Value found =
      attribute == nullptr || attribute->is_none() ? value : attribute_of(value, *attribute);
  if (!exact && found.is_text())
    return Value(with_letters(*found.as<std::string>(), Letters::lower));
  return found;
}

void sort_list(List& list, const Value* attribute, bool exact, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& each : list) keyed.emplace_back(key_of(each, attribute, exact), each);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    const int order = compare(a.first, b.first);
    return reverse ? order > 0 : order < 0;
  });
  for (size_t i = 0; i < list.size(); ++i) list[i] = keyed[i].second;
}

// select, reject, selectattr, rejectattr and map: the other arguments are those of a test or
// filter.
Value walk_list(const std::string& name, const Value& value, const Call& call,
                const Caller& filters) {
  List made;
  Call inner;
  if (name == "map") {
    if (const Value* attribute = call.find(SIZE_MAX, "attribute")) {
      const Value* usual = call.find(SIZE_MAX, "default");
      for (const Value& each : value.elements()) {
        Value found = attribute_of(each, *attribute);
        made.push_back(found.is_undefined() && usual != nullptr ? *usual : found);
      }
      return made;
    }
    if (call.arguments.empty()) throw TemplateError("expected a filter for map");
    const std::string filter = text_of(call.arguments[0], "a filter's name");
    for (const Value& each : value.elements()) {
      inner.arguments.assign(call.arguments.begin() + 1, call.arguments.end());
      inner.named = call.named;
      made.push_back(filters(filter, each, inner));
    }
    return made;
  }
  const bool by_attribute = name.ends_with("attr"), wanted = name.starts_with("select");
  const size_t first = by_attribute ? 1 : 0;
  if (call.arguments.size() < first)
    throw TemplateError(fmt::format("expected an attribute for {}", name));
  if (call.arguments.size() > first)
    inner.arguments.assign(call.arguments.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                           call.arguments.end());
  for (const Value& each : value.elements()) {
    const Value tested = by_attribute ? attribute_of(each, call.arguments[0]) : each;
    const bool found =
        call.arguments.size() > first
            ? apply_test(text_of(call.arguments[first], "a test's name"), tested, inner)
            : tested.truth();
    if (found == wanted) made.push_back(each);
  }
  return made;
}

Value items_of(const Value& value) {
  List made;
  if (value.is_undefined()) return made;
  if (value.dict() == nullptr)
    throw TemplateError(fmt::format("expected an object for items, got {}", value.type_name()));
  for (const auto& [key, member] : value.dict()->members)
    made.emplace_back(List{Value(key), member});
  return made;
}

bool starts_or_ends(const std::string& text, const Value& with, bool starts) {
  const auto fits = [&](const Value& part) {
    const std::string& wanted = text_of(part, "a part of a text");
    return starts ? text.starts_with(wanted) : text.ends_with(wanted);
  };
  if (with.list() == nullptr) return fits(with);
  return std::any_of(with.list()->begin(), with.list()->end(), fits);
}

bool all_characters(const std::string& text, bool (*test)(char32_t)) {
  const std::u32string all = from_utf8(text);
  return !all.empty() && std::all_of(all.begin(), all.end(), test);
}

constexpr const char* kTextMethods[] = {
    "split",      "strip",        "lstrip",       "rstrip",     "startswith", "endswith",
    "upper",      "lower",        "title",        "capitalize", "replace",    "find",
    "rfind",      "count",        "join",         "isdigit",    "isalpha",    "isspace",
    "splitlines", "removeprefix", "removesuffix", "isupper",    "islower"};
constexpr const char* kDictMethods[] = {"items", "keys", "values", "get"};

Value call_text_method(const std::string& text, const std::string& name, Call& call) {
  const auto argument = [&](size_t place) -> const Value& {
    if (call.arguments.size() <= place)
      throw TemplateError(fmt::format("expected more arguments for {}", name));
    return call.arguments[place];
  };
  const Value* first = call.find(0, "chars");
  if (name == "strip") return stripped(text, first, true, true);
  if (name == "lstrip") return stripped(text, first, true, false);
  if (name == "rstrip") return stripped(text, first, false, true);
  if (name == "split") {
    const Value *by = call.find(0, "sep"), *most = call.find(1, "maxsplit");
    return split_text(text, by, most == nullptr ? -1 : most->whole("maxsplit"));
  }
  if (name == "splitlines") {
    List lines;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
      lines.emplace_back(text.substr(begin, end - begin));
      begin = end + (text.compare(end, 2, "\r\n") == 0 ? 2 : 1);
    }
    return lines;
  }
  if (name == "startswith") return starts_or_ends(text, argument(0), true);
  if (name == "endswith") return starts_or_ends(text, argument(0), false);
  if (name == "upper") return with_letters(text, Letters::upper);
  if (name == "lower") return with_letters(text, Letters::lower);
  if (name == "title") return with_letters(text, Letters::title);
  if (name == "capitalize") return with_letters(text, Letters::capitalized);
  if (name == "replace") {
    const Value* most = call.find(2, "count");
    return replaced_text(text, text_of(argument(0), "what is replaced"),
                         text_of(argument(1), "what replaces it"),
                         most == nullptr ? -1 : most->whole("a count"));
  }
  if (name == "find" || name == "rfind") {
    const std::string& wanted = text_of(argument(0), "what is looked for");
    const size_t at = name == "find" ? text.find(wanted) : text.rfind(wanted);
    if (at == std::string::npos) return int64_t{-1};
    return static_cast<int64_t>(from_utf8(text.substr(0, at)).size());
  }
  if (name == "count") {
    const std::string& wanted = text_of(argument(0), "what is counted");
    if (wanted.empty()) throw TemplateError("expected a text to count, got an empty one");
    int64_t count = 0;
    for (size_t at = text.find(wanted); at != std::string::npos;
         at = text.find(wanted, at + wanted.size()))
      ++count;
    return count;
  }
  if (name == "join") {
    std::string out;
    const List all = argument(0).elements();
    for (const Value& each : all) {
      if (&each != all.data()) out += text;
      out += text_of(each, "an element to join");
      check_size(out.size(), kMostText);
    }
    return out;
  }
  if (name == "isdigit") return all_characters(text, is_number);
  if (name == "isalpha") return all_characters(text, is_letter);
  if (name == "isspace") return all_characters(text, is_white_space);
  if (name == "isupper")
    return with_letters(text, Letters::upper) == text && with_letters(text, Letters::lower) != text;
  if (name == "islower")
    return with_letters(text, Letters::lower) == text && with_letters(text, Letters::upper) != text;
  const std::string& part = text_of(argument(0), "a part of a text");
  if (name == "removeprefix") return text.starts_with(part) ? text.substr(part.size()) : text;
  return text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text;
}

}  // namespace

bool has_method(const Value& object, const std::string& name) {
  const auto listed = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (object.is_text() && listed(kTextMethods)) ||
         (object.dict() != nullptr && listed(kDictMethods));
}

Value call_method(const Value& object, const std::string& name, Call& call) {
  if (!has_method(object, name))
    throw TemplateError(
        fmt::format("expected a method of {}, got {}", object.type_name(), in_quotes(name)));
  if (object.is_text()) return call_text_method(*object.as<std::string>(), name, call);
  const Dict& dict = *object.dict();
  if (name == "items") return items_of(object);
  List made;
  if (name == "get") {
    const Value *key = call.find(0, "key"), *usual = call.find(1, "default");
    if (key == nullptr) throw TemplateError("expected a key for get");
    const Value* found = key->is_text() ? dict.find(*key->as<std::string>()) : nullptr;
    return found != nullptr ? *found : usual != nullptr ? *usual : Value();
  }
  for (const auto& [key, value] : dict.members) made.push_back(name == "keys" ? Value(key) : value);
  return made;
}

Value member_of(const Value& object, const Value& key) {
  if (const Dict* dict = object.dict(); dict != nullptr && key.is_text()) {
    const Value* found = dict->find(*key.as<std::string>());
    if (found != nullptr) return *found;
  }
  const bool whole = key.as<int64_t>() != nullptr;
  if (whole && (object.list() != nullptr || object.is_text())) {
    int64_t index = *key.as<int64_t>();
    const auto pick = [&](const auto& all) {
      const auto size = static_cast<int64_t>(all.size());
      if (index < 0) index += size;
      return index >= 0 && index < size ? Value(all[static_cast<size_t>(index)])
                                        : Value::undefined("an element");
    };
    if (const List* list = object.list()) return pick(*list);
    return pick(characters_of(*object.as<std::string>()));
  }
  return Value::undefined(key.text());
}

bool apply_test(const std::string& name, const Value& value, const Call& call) {
  const auto other = [&]() -> const Value& {
    if (call.arguments.empty())
      throw TemplateError(fmt::format("expected an argument for the test {}", name));
    return call.arguments[0];
  };
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "boolean") return value.as<bool>() != nullptr;
  if (name == "true") return value.as<bool>() != nullptr && *value.as<bool>();
  if (name == "false") return value.as<bool>() != nullptr && !*value.as<bool>();
  if (name == "integer") return value.as<int64_t>() != nullptr;
  if (name == "float") return value.as<double>() != nullptr;
  if (name == "number") return value.is_number();
  if (name == "string") return value.is_text();
  if (name == "mapping") return value.dict() != nullptr && !value.dict()->is_namespace;
  if (name == "iterable" || name == "sequence")
    return value.is_text() || value.list() != nullptr || value.dict() != nullptr ||
           value.is_undefined();
  if (name == "callable") return value.function() != nullptr;
  if (name == "odd") return value.whole("a number to test") % 2 != 0;
  if (name == "even") return value.whole("a number to test") % 2 == 0;
  if (name == "divisibleby") {
    const int64_t by = other().whole("a divisor");
    if (by == 0) throw TemplateError("expected a divisor, got 0");
    return value.whole("a number to test") % by == 0;
  }
  if (name == "equalto" || name == "eq" || name == "==" || name == "sameas")
    return equal(value, other());
  if (name == "ne" || name == "!=") return !equal(value, other());
  if (name == "lt" || name == "lessthan" || name == "<") return compare(value, other()) < 0;
  if (name == "le" || name == "<=") return compare(value, other()) <= 0;
  if (name == "gt" || name == "greaterthan" || name == ">") return compare(value, other()) > 0;
  if (name == "ge" || name == ">=") return compare(value, other()) >= 0;
  if (name == "in") return contains(other(), value);
  if (name == "lower" || name == "upper")
    return with_letters(value.text(), name == "lower" ? Letters::lower : Letters::upper) ==
           value.text();
  throw TemplateError(fmt::format("expected a test of the language, got {}", in_quotes(name)));
}

Value apply_filter(const std::string& name, const Value& value, Call& call, const Caller& filters,
                   int64_t& steps) {
  const auto elements = [&] {
    List all = value.elements();
    steps -= static_cast<int64_t>(all.size());
    return all;
  };
  if (name == "trim") return stripped(value.text(), call.find(0, "chars"), true, true);
  if (name == "upper") return with_letters(value.text(), Letters::upper);
  if (name == "lower") return with_letters(value.text(), Letters::lower);
  if (name == "title") return with_letters(value.text(), Letters::title);
  if (name == "capitalize") return with_letters(value.text(), Letters::capitalized);
  if (name == "string" || name == "safe") return value.text();
  if (name == "length" || name == "count") return static_cast<int64_t>(elements().size());
  if (name == "tojson") {
    const Value *indent = call.find(0, "indent"), *sorted = call.find(SIZE_MAX, "sort_keys");
    int64_t width = -1;
    if (indent != nullptr && !indent->is_none()) width = indent->whole("an indent");
    if (width > 64) throw TemplateError("expected an indent of at most 64");
    return value.json(width, sorted != nullptr && sorted->truth());
  }
  if (name == "default" || name == "d") {
    const Value *usual = call.find(0, "default_value"), *empty = call.find(1, "boolean");
    const bool missing =
        value.is_undefined() || (empty != nullptr && empty->truth() && !value.truth());
    return !missing ? value : usual != nullptr ? *usual : Value("");
  }
  if (name == "join") {
    const std::string by = argument_text(call, 0, "d", "");
    const Value* attribute = call.find(1, "attribute");
    std::string out;
    const List all = elements();
    for (const Value& each : all) {
      if (&each != all.data()) out += by;
      out += (attribute == nullptr ? each : attribute_of(each, *attribute)).text();
      check_size(out.size(), kMostText);
    }
    return out;
  }
  if (name == "first" || name == "last") {
    const List all = elements();
    if (all.empty()) return Value::undefined("an element of nothing");
    return name == "first" ? all.front() : all.back();
  }
  if (name == "list") return elements();
  if (name == "reverse") {
    List all = elements();
    std::reverse(all.begin(), all.end());
    if (!value.is_text()) return all;
    std::string out;
    for (const Value& each : all) out += each.text();
    return out;
  }
  if (name == "replace") {
    const Value *from = call.find(0, "old"), *to = call.find(1, "new"),
                *most = call.find(2, "count");
    if (from == nullptr || to == nullptr) throw TemplateError("expected two texts for replace");
    return replaced_text(value.text(), from->text(), to->text(),
                         most == nullptr ? -1 : most->whole("a count"));
  }
  if (name == "items") return items_of(value);
  if (name == "dictsort") {
    List all = *items_of(value).list();
    const std::string by = argument_text(call, 1, "by", "key");
    if (by != "key" && by != "value")
      throw TemplateError(fmt::format("expected key or value to sort by, got {}", in_quotes(by)));
    const Value place = by == "key" ? int64_t{0} : int64_t{1};
    sort_list(all, &place, is_given(call.find(0, "case_sensitive")),
              is_given(call.find(2, "reverse")));
    return all;
  }
  if (name == "sort") {
    List all = elements();
    sort_list(all, call.find(2, "attribute"), is_given(call.find(1, "case_sensitive")),
              is_given(call.find(0, "reverse")));
    return all;
  }
  if (name == "unique") {
    const bool exact = is_given(call.find(0, "case_sensitive"));
    List made, keys;
    const List all = elements();
    check_size(all.size(), 4096);
    for (const Value& each : all) {
      const Value key = key_of(each, call.find(1, "attribute"), exact);
      if (std::any_of(keys.begin(), keys.end(), [&](const Value& x) { return equal(x, key); }))
        continue;
      keys.push_back(key);
      made.push_back(each);
    }
    return made;
  }
  if (name == "map" || name == "select" || name == "reject" || name == "selectattr" ||
      name == "rejectattr") {
    elements();
    return walk_list(name, value, call, filters);
  }
  if (name == "int") return number_of(value, true, call);
  if (name == "float") return number_of(value, false, call);
  if (name == "round") return rounded(value, call);
  if (name == "abs") {
    if (const auto* whole = value.as<int64_t>(); whole != nullptr && *whole != INT64_MIN)
      return *whole < 0 ? -*whole : *whole;
    if (!value.is_number()) throw TemplateError("expected a number for abs");
    return std::abs(value.number());
  }
  if (name == "min" || name == "max") {
    const List all = elements();
    if (all.empty()) return Value::undefined("an element of nothing");
    const bool exact = is_given(call.find(0, "case_sensitive"));
    const Value* attribute = call.find(1, "attribute");
    const auto less = [&](const Value& a, const Value& b) {
      return compare(key_of(a, attribute, exact), key_of(b, attribute, exact)) < 0;
    };
    return name == "min" ? *std::min_element(all.begin(), all.end(), less)
                         : *std::max_element(all.begin(), all.end(), less);
  }
  if (name == "sum") {
    const Value* attribute = call.find(0, "attribute");
    Value total = int64_t{0};
    for (const Value& each : elements())
      total = calculated("+", total, attribute == nullptr ? each : attribute_of(each, *attribute));
    return total;
  }
  if (name == "indent") return indented(value.text(), call);
  throw TemplateError(fmt::format("expected a filter of the language, got {}", in_quotes(name)));
}

}  // namespace frugal::data::jinja

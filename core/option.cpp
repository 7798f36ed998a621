#include "core/option.h"

#include <algorithm>
#include <cmath>

#include "core/words/quoted.h"

namespace frugal::by_name {
namespace {

std::string bound(const Range& range, double value) {
  return range.may_be_number ? text_of(Value(value))
                             : fmt::format("{}", static_cast<int64_t>(value));
}

std::string interval(const Range& range) {
  return fmt::format(" in {}{}, {}{}", range.opens_least ? "(" : "[", bound(range, range.least),
                     bound(range, range.most), range.opens_most ? ")" : "]");
}

bool holds(const Range& range, const Value& value) {
  const double d = value.number();
  return std::isfinite(d) && (range.opens_least ? d > range.least : d >= range.least) &&
         (range.opens_most ? d < range.most : d <= range.most);
}

bool is_list(const Range& range) {
  return range.may_be_integers || range.may_be_numbers || range.may_be_texts || range.may_be_layers;
}

bool has_length(const Range& range, const Value::List& list) {
  const auto n = static_cast<int64_t>(list.size());
  return n >= range.fewest && n <= range.longest;
}

}  // namespace

Range entry_of(const Range& range) {
  Range entry = range;
  entry.may_be_integer = range.may_be_integers;
  entry.may_be_number = range.may_be_numbers;
  entry.may_be_text = range.may_be_texts;
  entry.may_be_integers = entry.may_be_numbers = entry.may_be_texts = entry.may_be_nothing = false;
  return entry;
}

std::vector<std::string> choices_of(const Range& range) {
  std::vector<std::string> all;
  std::string_view rest = range.choices == nullptr ? "" : range.choices;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(", "), rest.size());
    all.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
  return all;
}

size_t place_of(const Range& range, const std::string& choice) {
  const std::vector<std::string> all = choices_of(range);
  const auto found = std::find(all.begin(), all.end(), choice);
  FRUGAL_ASSERT(found != all.end());
  return static_cast<size_t>(found - all.begin());
}

std::string text_of(const Range& range) {
  std::vector<std::string> kinds;
  if (range.choices != nullptr) {
    kinds.push_back(fmt::format("one of {}", range.choices));
    if (range.may_be_nothing) kinds.back() += ", or null";
    return kinds.back();
  }
  if (range.may_be_flag) kinds.emplace_back("true or false");
  if (range.may_be_integer)
    kinds.push_back((range.step > 1 ? fmt::format("a multiple of {}", range.step) : "an integer") +
                    interval(range));
  if (range.may_be_number) kinds.push_back("a number" + interval(range));
  if (range.may_be_text) kinds.emplace_back("a text");
  if (is_list(range))
    kinds.push_back(fmt::format(
        "a list of {}, each {}",
        range.fewest == range.longest ? fmt::format("{}", range.fewest)
                                      : fmt::format("{} to {}", range.fewest, range.longest),
        range.may_be_layers ? "an object or a text" : text_of(entry_of(range))));
  if (range.may_be_nothing) kinds.emplace_back("null");
  return fmt::format("{}", fmt::join(kinds, " or "));
}

bool fits(const Range& range, const Value& value) {
  if (value.is_nothing()) return range.may_be_nothing;
  if (value.is<bool>()) return range.may_be_flag;
  if (value.is_number())
    return ((range.may_be_integer && value.is_integer() && value.integer() % range.step == 0) ||
            range.may_be_number) &&
           holds(range, value);
  if (value.is<std::string>()) {
    if (!range.may_be_text || range.choices == nullptr) return range.may_be_text;
    const std::vector<std::string> all = choices_of(range);
    return std::find(all.begin(), all.end(), value.text()) != all.end();
  }
  if (value.is<Value::List>()) return is_list(range) && has_length(range, value.list());
  return false;
}

std::string shown(const Value& value) { return printable(text_of(value), 80); }

void check_range(const Range& range, const Value& value, const std::string& path) {
  if (!fits(range, value))
    throw OptionError(path, fmt::format("expected {}, got {}", text_of(range), shown(value)));
  if (!value.is<Value::List>()) return;
  const Range entry = entry_of(range);
  for (size_t i = 0; i < value.list().size(); ++i) {
    const Value& each = value.list()[i];
    const std::string place = fmt::format("{}[{}]", path, i);
    if (!range.may_be_layers)
      check_range(entry, each, place);
    else if (!each.is<std::string>() && !each.is<Value::Object>())
      throw OptionError(place, fmt::format("expected an object or a text, got {}", shown(each)));
  }
}

}  // namespace frugal::by_name

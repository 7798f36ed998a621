#include "core/value.h"

#include <cmath>

#include "core/error.h"

namespace frugal::by_name {

bool Value::is_integer() const {
  if (is<int64_t>()) return true;
  if (!is<double>()) return false;
  const double d = std::get<double>(held_);
  return std::trunc(d) == d && std::abs(d) <= 9007199254740992.0;  // 2^53: exact in a double
}

int64_t Value::integer() const {
  return is<int64_t>() ? std::get<int64_t>(held_) : static_cast<int64_t>(std::get<double>(held_));
}

double Value::number() const {
  return is<int64_t>() ? static_cast<double>(std::get<int64_t>(held_)) : std::get<double>(held_);
}

std::vector<int64_t> Value::integers() const {
  std::vector<int64_t> all;
  for (const Value& each : list()) all.push_back(each.integer());
  return all;
}

bool Value::operator==(const Value& other) const {
  if (is_number() && other.is_number())
    return is<int64_t>() && other.is<int64_t>() ? integer() == other.integer()
                                                : number() == other.number();
  return held_ == other.held_;
}

namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string text_of(const Value& value) {
  if (value.is<bool>()) return value.flag() ? "true" : "false";
  if (value.is<int64_t>()) return fmt::format("{}", value.integer());
  if (value.is<double>()) {
    const double d = value.number();
    if (!std::isfinite(d)) return "null";
    const std::string text = fmt::format("{}", d);
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }
  if (value.is<std::string>()) return quoted(value.text());
  std::vector<std::string> parts;
  if (value.is<Value::List>()) {
    for (const Value& each : value.list()) parts.push_back(text_of(each));
    return fmt::format("[{}]", fmt::join(parts, ","));
  }
  if (value.is<Value::Object>()) {
    for (const auto& [key, each] : value.object())
      parts.push_back(fmt::format("{}:{}", quoted(key), text_of(each)));
    return fmt::format("{{{}}}", fmt::join(parts, ","));
  }
  return "null";
}

const char* type_name(const Value& value) {
  if (value.is<bool>()) return "boolean";
  if (value.is_number()) return "number";
  if (value.is<std::string>()) return "string";
  if (value.is<Value::List>()) return "array";
  return value.is<Value::Object>() ? "object" : "null";
}

}  // namespace frugal::by_name

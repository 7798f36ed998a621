// Values of options that have names: what a configuration or a program gives for them.
#pragma once
#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace frugal::by_name {

// Nothing, true or false, a number, a text, a list, or an object of named values.
class Value {
 public:
  using List = std::vector<Value>;
  using Object = std::vector<std::pair<std::string, Value>>;  // in the order in which it was given

  Value() = default;  // nothing
  Value(std::nullptr_t) {}
  Value(bool flag) : held_(flag) {}
  template <std::integral T>
  Value(T number) : held_(static_cast<int64_t>(number)) {}
  Value(double number) : held_(number) {}
  Value(const char* text) : held_(std::string(text)) {}
  Value(std::string text) : held_(std::move(text)) {}
  Value(const std::vector<int64_t>& numbers) : held_(List(numbers.begin(), numbers.end())) {}
  Value(List list) : held_(std::move(list)) {}
  Value(Object object) : held_(std::move(object)) {}
  // libstdc++ destroys a variant whose copy threw, as if it held something, where no member of the
  // variant throws when it is moved. So a copy is made outside of it, and moved into it.
  Value(const Value& other)
      : Value(std::visit([](auto held) { return Value(Moved{}, std::move(held)); }, other.held_)) {}
  Value(Value&&) noexcept = default;
  Value& operator=(const Value& other) { return *this = Value(other); }
  Value& operator=(Value&&) noexcept = default;

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(held_);
  }
  bool is_nothing() const { return is<std::monostate>(); }
  bool is_number() const { return is<int64_t>() || is<double>(); }
  bool is_integer() const;  // 1e3 is one, too
  const bool& flag() const { return std::get<bool>(held_); }
  const std::string& text() const { return std::get<std::string>(held_); }
  const List& list() const { return std::get<List>(held_); }
  const Object& object() const { return std::get<Object>(held_); }
  int64_t integer() const;                // REQUIRES: is_integer()
  double number() const;                  // REQUIRES: is_number()
  std::vector<int64_t> integers() const;  // REQUIRES: a list of such

  bool operator==(const Value& other) const;

 private:
  struct Moved {};
  template <class T>
  Value(Moved, T&& held) : held_(std::forward<T>(held)) {}

  std::variant<std::monostate, bool, int64_t, double, std::string, List, Object> held_;
};

using Options = std::map<std::string, Value>;

// As JSON writes it: {"a":[1,0.5,"b"]}. Not for the terminal: printable() (core/words/quoted.h) is.
std::string text_of(const Value& value);
const char* type_name(const Value& value);  // "null", "boolean", "number", "string", "array", ...

}  // namespace frugal::by_name

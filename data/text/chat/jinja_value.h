// Values of the template language (jinja.h). Internal to data/text.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.h"

namespace frugal::data::jinja {

// What a template does wrong; who runs it adds the line.
class TemplateError : public Error {
 public:
  using Error::Error;
};

// No text, list or output of a template is larger (bytes, elements).
constexpr size_t kMostText = size_t{64} << 20, kMostElements = size_t{1} << 20;
// Lists and objects hold others to at most this depth, which bounds recursion.
constexpr int kDeepest = 80;

class Value;
using List = std::vector<Value>;
struct Dict {
  std::vector<std::pair<std::string, Value>> members;  // in the order in which they were written
  bool is_namespace = false;                           // members may be set
  int depth = 1;                                       // 1: no member is a list or an object
  const Value* find(std::string_view key) const;
  void set(const std::string& key, Value value);
};
struct Call;  // arguments of a call
using Function = std::function<Value(Call&)>;

struct SharedList {
  List elements;
  int depth;
};

// Lists and objects are shared by their copies. Thread safety: as std::shared_ptr.
class Value {
 public:
  struct Undefined {
    std::string name;
  };
  struct None {};
  using Data = std::variant<Undefined, None, bool, int64_t, double, std::string,
                            std::shared_ptr<const SharedList>, std::shared_ptr<Dict>,
                            std::shared_ptr<const Function>>;

  Value() : data_(None{}) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(List value);  // Errors (here and below): deeper nesting than kDeepest
  Value(Dict value);
  explicit Value(Function value) : data_(std::make_shared<const Function>(std::move(value))) {}
  static Value undefined(std::string name) {
    Value value;
    value.data_ = Undefined{std::move(name)};
    return value;
  }
  static Value of_json(const nlohmann::ordered_json& json);

  template <class T>
  const T* as() const {
    return std::get_if<T>(&data_);
  }
  bool is_undefined() const { return as<Undefined>() != nullptr; }
  bool is_none() const { return as<None>() != nullptr; }
  bool is_text() const { return as<std::string>() != nullptr; }
  bool is_number() const;  // whole, with a fraction, or a boolean
  const List* list() const;
  const Dict* dict() const;
  Dict* changeable_dict() const;
  const Function* function() const;

  int depth() const;  // 0: neither a list nor an object
  bool truth() const;
  std::string text() const;               // as Python's str(); nothing for what is undefined
  double number() const;                  // REQUIRES: is_number
  int64_t whole(const char* what) const;  // Errors: no whole number
  const char* type_name() const;
  // As Python's json.dumps(value, ensure_ascii=False, indent=...). indent < 0: one line.
  // Errors: what is undefined, and functions.
  std::string json(int64_t indent = -1, bool sort_keys = false) const;
  // The elements of what can be walked through: a list, a text's characters, an object's keys.
  // Errors: other types.
  List elements() const;

 private:
  void append_json(std::string& out, int64_t indent, int64_t depth, bool sort_keys) const;
  void append_repr(std::string& out, int depth) const;
  Data data_;
};

struct Call {
  List arguments;
  std::vector<std::pair<std::string, Value>> named;
  // The argument with this place or name; null: it was not given.
  const Value* find(size_t place, const char* name) const;
};

bool equal(const Value& a, const Value& b);
// < 0, 0 or > 0. Errors: types that have no order.
int compare(const Value& a, const Value& b);
// Whether `part` is in `whole`. Errors: types that contain nothing.
bool contains(const Value& whole, const Value& part);

void check_size(size_t size, size_t most);
std::vector<std::string> characters_of(std::string_view text);

}  // namespace frugal::data::jinja

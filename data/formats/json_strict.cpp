#include "data/formats/json_strict.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "core/words/quoted.h"

namespace frugal::data {
namespace {

// Errors: a NUL byte, which the library takes for the end of the text.
void check_no_nul(std::string_view text) {
  const size_t at = text.find('\0');
  if (at == std::string_view::npos) return;
  const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  throw JsonError(
      "", fmt::format("expected text, got a NUL byte at offset {} (line {})", at, line + 1));
}

// Builds a document from the parser's events, in linear time even if an object has many keys.
template <class J>
class StrictJson : public nlohmann::json_sax<J> {
 public:
  explicit StrictJson(J& root) : root_(root) {}

  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(typename J::number_integer_t value) override { return add(value) != nullptr; }
  bool number_unsigned(typename J::number_unsigned_t value) override {
    return add(value) != nullptr;
  }
  bool number_float(typename J::number_float_t value, const std::string&) override {
    return add(value) != nullptr;
  }
  bool string(std::string& value) override {
    check_text(value);
    return add(std::move(value)) != nullptr;
  }
  bool binary(typename J::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(J::object()); }
  bool key(std::string& name) override {
    check_text(name);
    open_.back().key = name;
    if (!open_.back().keys.insert(name).second)
      throw JsonError(place(), "expected each key once, got this one twice");
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(J::array()); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    throw JsonError("", json_reason(error));
  }

 private:
  struct Open {
    J* value;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  // The path of the next value, such as model.hidden[2].
  std::string place() const {
    std::string path;
    for (size_t i = 0; i < open_.size(); ++i) {
      const Open& each = open_[i];
      if (each.value->is_array()) {
        path += fmt::format("[{}]", each.value->size() - (i + 1 < open_.size() ? 1 : 0));
      } else {
        if (!path.empty()) path += '.';
        path += printable(each.key);
      }
    }
    return path;
  }

  void check_text(const std::string& text) const {
    if (text.find('\0') != std::string::npos)
      throw JsonError(place(),
                      fmt::format("expected text without NUL characters, got {}", in_quotes(text)));
  }

  template <class V>
  J* add(V&& value) {
    if (open_.empty()) return &(root_ = J(std::forward<V>(value)));
    Open& into = open_.back();
    if (into.value->is_array()) {
      auto& list = into.value->template get_ref<typename J::array_t&>();
      return &list.emplace_back(std::forward<V>(value));
    }
    auto& object = into.value->template get_ref<typename J::object_t&>();
    if constexpr (requires { object.emplace_back(into.key, value); }) {
      // An ordered object: the library's own insertion would compare the new key with all others.
      object.emplace_back(into.key, std::forward<V>(value));
      return &object.back().second;
    } else {
      return &object.emplace(into.key, std::forward<V>(value)).first->second;
    }
  }

  bool open(J value) {
    if (open_.size() == kMaxJsonDepth)
      throw JsonError(
          "", fmt::format("expected at most {} levels of nesting, got more", kMaxJsonDepth));
    J* added = add(std::move(value));
    open_.push_back({added, {}, {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  J& root_;
  std::vector<Open> open_;
};

}  // namespace

std::string json_reason(const std::exception& error) {
  const std::string_view what = error.what();
  if (!what.starts_with("[json.exception.")) return std::string(what);
  const size_t prefix = what.find("] ");
  return printable(what.substr(prefix == std::string_view::npos ? 0 : prefix + 2), 300);
}

template <class J>
J parse_json(std::string_view text) {
  check_no_nul(text);
  // The library words this message differently from version to version.
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw JsonError("", "unexpected end of input: the text is empty");
  J root;
  StrictJson<J> events(root);
  const bool whole = J::sax_parse(text.begin(), text.end(), &events);
  if (!whole) throw JsonError("", "expected a JSON document");
  return root;
}

template nlohmann::json parse_json(std::string_view);
template nlohmann::ordered_json parse_json(std::string_view);

}  // namespace frugal::data

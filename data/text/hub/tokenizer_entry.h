// TokenizerEntry: a place in a JSON file that describes a tokenizer. It reads members, and its
// messages name the file and the place. Internal to data/text.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace frugal::data {

// REQUIRES: the document outlives its entries. Thread safety: const.
class TokenizerEntry {
 public:
  using Json = nlohmann::json;
  TokenizerEntry(const Json& document, std::string file)
      : value_(&document), file_(std::move(file)) {}

  const Json& json() const { return *value_; }
  bool is_object() const { return value_->is_object(); }
  // The member is there and not null. Errors: this is no object.
  bool has(const char* key) const;
  // Errors: no such member.
  TokenizerEntry at(const char* key) const;
  // The elements of this list. Errors: this is no list.
  std::vector<TokenizerEntry> list() const;
  // This value, or that of a member. Errors: another type. With `usual`: that, where the member is
  // missing or null.
  std::string text() const;
  std::string text(const char* key) const { return at(key).text(); }
  std::string text(const char* key, const std::string& usual) const {
    return has(key) ? text(key) : usual;
  }
  bool flag(const char* key) const;
  bool flag(const char* key, bool usual) const { return has(key) ? flag(key) : usual; }
  double number() const;
  // Errors: no whole number from 0 to `most`.
  int64_t count(int64_t most) const;
  int64_t count(const char* key, int64_t most) const { return at(key).count(most); }
  // One character. Errors: a text of another length.
  std::string character(const char* key) const;

  // Throws "[tokenizer] FILE: PLACE: expected `expected`, got ...".
  [[noreturn]] void fail(const std::string& expected) const;
  // Throws "[tokenizer] FILE: PLACE: `message`".
  [[noreturn]] void reject(const std::string& message) const;

 private:
  TokenizerEntry(const Json& value, std::string file, std::string place)
      : value_(&value), file_(std::move(file)), place_(std::move(place)) {}

  const Json* value_;
  std::string file_, place_;
};

}  // namespace frugal::data

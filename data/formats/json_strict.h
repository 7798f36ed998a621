// JSON as this project reads it: what the library passes over in silence is an error here.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace frugal::data {

// what() says what is wrong, without the file; place() is the path of the key that is wrong, such
// as optim.lr, and empty where that is the whole text.
class JsonError : public Error {
 public:
  JsonError(std::string place, const std::string& what) : Error(what), place_(std::move(place)) {}
  const std::string& place() const { return place_; }

 private:
  std::string place_;
};

constexpr size_t kMaxJsonDepth = 64;

// One whole document, in linear time whatever the number of keys. J: nlohmann::json or
// nlohmann::ordered_json. Errors (JsonError): no JSON or no UTF-8, anything behind the document, a
// NUL byte or character anywhere, a key given twice in one object, more than kMaxJsonDepth levels.
template <class J>
J parse_json(std::string_view text);

// The library's message without its own prefix, and without what the text holds at length.
std::string json_reason(const std::exception& error);

}  // namespace frugal::data

// Strict JSON: what nlohmann/json accepts without a word, such as a key that is given twice, is an
// error here.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace frugal::data {

// what() says what is wrong, without the file's name. place() is the path of the wrong key, such as
// optim.lr, or empty if the whole text is wrong.
class JsonError : public Error {
 public:
  JsonError(std::string place, const std::string& what) : Error(what), place_(std::move(place)) {}
  const std::string& place() const { return place_; }

 private:
  std::string place_;
};

constexpr size_t kMaxJsonDepth = 64;

// Reads one whole document, in linear time. J is nlohmann::json or nlohmann::ordered_json.
// Errors (JsonError): text that is not JSON or not UTF-8; anything behind the document; a NUL byte
// or character; a key given twice in one object; more than kMaxJsonDepth levels.
template <class J>
J parse_json(std::string_view text);

// What an error says: the library's message without its prefix and without long quotations of the
// text, or the message of any other error as it is. Every message that a person sees goes this way
// where the library may have thrown.
std::string json_reason(const std::exception& error);

}  // namespace frugal::data

#include "data/text/hub/tokenizer_entry.h"

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/text/unicode.h"

namespace frugal::data {

bool TokenizerEntry::has(const char* key) const {
  if (!value_->is_object()) fail("an object");
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

TokenizerEntry TokenizerEntry::at(const char* key) const {
  if (!value_->is_object()) fail("an object");
  const auto found = value_->find(key);
  if (found == value_->end()) reject(fmt::format("expected a member {}, got none", in_quotes(key)));
  return {*found, file_, place_.empty() ? key : place_ + "." + key};
}

std::vector<TokenizerEntry> TokenizerEntry::list() const {
  if (!value_->is_array()) fail("a list");
  std::vector<TokenizerEntry> all;
  all.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i)
    all.push_back({(*value_)[i], file_, fmt::format("{}[{}]", place_, i)});
  return all;
}

std::string TokenizerEntry::text() const {
  if (!value_->is_string()) fail("a text");
  return value_->get<std::string>();
}

bool TokenizerEntry::flag(const char* key) const {
  const TokenizerEntry entry = at(key);
  if (!entry.value_->is_boolean()) entry.fail("true or false");
  return entry.value_->get<bool>();
}

double TokenizerEntry::number() const {
  if (!value_->is_number()) fail("a number");
  return value_->get<double>();
}

int64_t TokenizerEntry::count(int64_t most) const {
  if (!value_->is_number_unsigned() || value_->get<uint64_t>() > static_cast<uint64_t>(most))
    fail(fmt::format("a whole number from 0 to {}", most));
  return value_->get<int64_t>();
}

std::string TokenizerEntry::character(const char* key) const {
  const TokenizerEntry entry = at(key);
  const std::string text = entry.text();
  size_t end = 0;
  if (!text.empty()) next_code_point(text, end);
  if (text.empty() || end != text.size()) entry.fail("one character");
  return text;
}

void TokenizerEntry::fail(const std::string& expected) const {
  reject(fmt::format("expected {}, got {}", expected, printable(value_->dump(), 80)));
}

void TokenizerEntry::reject(const std::string& message) const {
  throw Error(fmt::format("[tokenizer] {}: {}{}{}", in_quotes(file_, 300), printable(place_, 200),
                          place_.empty() ? "" : ": ", message));
}

}  // namespace frugal::data

#include "data/text/characters.h"

#include <algorithm>

#include "core/error.h"
#include "data/text/unicode.h"

namespace frugal::data {
namespace {

template <class F>
void for_each_character(std::string_view text, const F& f) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const CodePoint point = next_code_point(text, at);
    FRUGAL_CHECK(point.valid, "[characters] expected UTF-8, got the byte {:02x} at offset {}",
                 static_cast<uint32_t>(point.code), begin);
    f(point.code, begin);
  }
}

}  // namespace

Characters::Characters(std::u32string alphabet) : alphabet_(std::move(alphabet)) {
  FRUGAL_CHECK(!alphabet_.empty(), "[characters] expected characters, got none");
  for (char32_t code : alphabet_)
    FRUGAL_CHECK(ids_.emplace(code, static_cast<int32_t>(ids_.size())).second,
                 "[characters] expected each character once, got U+{:04X} twice",
                 static_cast<uint32_t>(code));
}

Characters Characters::of(std::string_view text) {
  std::u32string alphabet;
  std::unordered_map<char32_t, int32_t> seen;
  for_each_character(text, [&](char32_t code, size_t) {
    if (seen.emplace(code, 0).second) alphabet.push_back(code);
  });
  std::sort(alphabet.begin(), alphabet.end());
  return Characters(std::move(alphabet));
}

TokenIds Characters::encode(std::string_view text) const {
  TokenIds ids;
  ids.reserve(text.size());
  for_each_character(text, [&](char32_t code, size_t offset) {
    const auto at = ids_.find(code);
    FRUGAL_CHECK(at != ids_.end(),
                 "[characters] expected characters of the alphabet, got U+{:04X} at offset {}",
                 static_cast<uint32_t>(code), offset);
    ids.push_back(at->second);
  });
  return ids;
}

TokenIds Characters::encode_known(std::string_view text, int64_t& unknown) const {
  TokenIds ids;
  ids.reserve(text.size());
  for_each_character(text, [&](char32_t code, size_t) {
    const auto at = ids_.find(code);
    if (at == ids_.end())
      ++unknown;
    else
      ids.push_back(at->second);
  });
  return ids;
}

std::string Characters::decode(const TokenIds& ids) const {
  std::string text;
  for (int32_t id : ids) {
    FRUGAL_CHECK(id >= 0 && id < size(), "[characters] expected an id in [0, {}), got {}", size(),
                 id);
    append_utf8(text, alphabet_[static_cast<size_t>(id)]);
  }
  return text;
}

std::string Characters::describe() const { return fmt::format("{} characters", size()); }

std::optional<int32_t> Characters::find(const std::string& token) const {
  const std::u32string code = from_utf8(token);
  const auto at = code.size() == 1 ? ids_.find(code[0]) : ids_.end();
  if (at == ids_.end()) return std::nullopt;
  return at->second;
}

}  // namespace frugal::data

#include "data/text/vocab.h"

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"

namespace frugal::data {

Vocabulary::Vocabulary(std::vector<std::string> tokens, const std::string& from)
    : from_(from), tokens_(std::move(tokens)) {
  FRUGAL_CHECK(!tokens_.empty(), "[vocabulary] expected tokens in {}, got none", from);
  ids_.reserve(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    FRUGAL_CHECK(!tokens_[i].empty(), "[vocabulary] expected a token at line {} of {}, got nothing",
                 i + 1, from);
    const auto [at, added] = ids_.emplace(tokens_[i], static_cast<int64_t>(i));
    FRUGAL_CHECK(added, "[vocabulary] expected each token once in {}, got {} at lines {} and {}",
                 from, in_quotes(tokens_[i]), at->second + 1, i + 1);
  }
}

std::optional<int64_t> Vocabulary::find(std::string_view token) const {
  const auto at = ids_.find(token);
  if (at == ids_.end()) return std::nullopt;
  return at->second;
}

int64_t Vocabulary::id(std::string_view token) const {
  const auto found = find(token);
  FRUGAL_CHECK(found.has_value(), "[vocabulary] expected the token {} in {}, got none such",
               in_quotes(token), from_);
  return *found;
}

const std::string& Vocabulary::token(int64_t id) const {
  FRUGAL_CHECK(id >= 0 && id < size(), "[vocabulary] expected an id in [0, {}), got {}", size(),
               id);
  return tokens_[static_cast<size_t>(id)];
}

Vocabulary read_vocabulary(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file("vocabulary", path);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  constexpr std::string_view kSpace = " \t\r\v\f";
  std::vector<std::string> tokens;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    const size_t first = line.find_first_not_of(kSpace);
    tokens.emplace_back(first == std::string_view::npos
                            ? std::string_view()
                            : line.substr(first, line.find_last_not_of(kSpace) - first + 1));
    begin = end + 1;
  }
  return {std::move(tokens), path};
}

}  // namespace frugal::data

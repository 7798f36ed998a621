// Vocabulary: the tokens of a text model and their ids, 0 to size() - 1.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace frugal::data {

// Thread safety: const.
class Vocabulary {
 public:
  // Token i gets id i. Messages name the source `from`. Errors: no tokens; an empty token; a token
  // that occurs twice.
  Vocabulary(std::vector<std::string> tokens, const std::string& from);

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  std::optional<int64_t> find(std::string_view token) const;
  // Errors: no such token, naming it and the source.
  int64_t id(std::string_view token) const;
  const std::string& token(int64_t id) const;  // Errors: id outside [0, size())

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::string from_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> ids_;
};

// Reads a vocab.txt: one token per line; white space around it does not count. Errors: an
// unreadable file; those of Vocabulary, with line numbers.
Vocabulary read_vocabulary(const std::string& path);

}  // namespace frugal::data

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
  // Token i gets id i. Errors: none at all, an empty token, a token twice; `from` names the source.
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

// A vocab.txt: one token a line, white space around it ignored. Errors: unreadable; as above, with
// line numbers.
Vocabulary read_vocabulary(const std::string& path);

}  // namespace frugal::data

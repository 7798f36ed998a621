#include "apps/text/wrapped.h"

#include <iterator>
#include <sstream>

namespace frugal::apps {
namespace {

// A line that begins with `begin`, whose words follow and go on with an indent.
std::string broken(std::string begin, const std::vector<std::string>& words, size_t indent) {
  std::string all, line = std::move(begin);
  bool is_first = true;
  for (const std::string& word : words) {
    if (!is_first && line.size() + 1 + word.size() > kColumns) {
      all += line + "\n";
      line = std::string(indent, ' ');
      is_first = true;
    }
    line += (is_first ? "" : " ") + word;
    is_first = false;
  }
  return all + line;
}

}  // namespace

std::string wrapped(const std::vector<std::string>& words) { return broken("", words, 0); }

std::string wrapped(const std::string& text) {
  std::string all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); all += "\n") {
    if (line.size() <= kColumns) {
      all += line;
      continue;
    }
    constexpr size_t kLeast = 24;  // columns that are left for words
    const size_t start = line.find_first_not_of(' ');
    size_t column = start == std::string::npos ? 0 : start;
    for (size_t at = line.find("  ", column); at < kColumns - kLeast; at = line.find("  ", at)) {
      at = line.find_first_not_of(' ', at);
      if (at > kColumns - kLeast) break;
      column = at;
    }
    std::istringstream words(line.substr(column));
    all += broken(line.substr(0, column), {std::istream_iterator<std::string>(words), {}}, column);
  }
  if (!text.empty() && text.back() != '\n') all.pop_back();
  return all;
}

}  // namespace frugal::apps

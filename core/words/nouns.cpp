#include "core/words/nouns.h"

namespace frugal {

std::string noun_for(int64_t count, std::string_view noun, std::string_view plural) {
  if (count == 1) return std::string(noun);
  return plural.empty() ? std::string(noun) + "s" : std::string(plural);
}

std::string ordinal(int64_t number) {
  const int64_t last = number % 10, teens = number % 100 / 10;
  const char* const ending = teens == 1  ? "th"
                             : last == 1 ? "st"
                             : last == 2 ? "nd"
                             : last == 3 ? "rd"
                                         : "th";
  return std::to_string(number) + ending;
}

}  // namespace frugal

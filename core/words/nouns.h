// Counts with their nouns, and ordinal numbers, for messages.
#pragma once
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace frugal {

// The form of a noun for a count: "layer" for 1, "layers" for others. `plural`: where it is not
// the noun with an s.
std::string noun_for(int64_t count, std::string_view noun, std::string_view plural = {});

// "1 layer", "2 layers", "0 boxes".
template <std::integral Count>
std::string with_noun(Count count, std::string_view noun, std::string_view plural = {}) {
  return std::to_string(count) + " " + noun_for(static_cast<int64_t>(count), noun, plural);
}

// "1st", "2nd", "3rd", "4th", "11th". REQUIRES: number >= 0.
std::string ordinal(int64_t number);

}  // namespace frugal

#include "core/words/nouns.h"

#include <doctest/doctest.h>

using namespace frugal;

TEST_CASE("nouns: one has no s, and the others do") {
  CHECK(with_noun(0, "layer") == "0 layers");
  CHECK(with_noun(1, "layer") == "1 layer");
  CHECK(with_noun(size_t{2}, "layer") == "2 layers");
  CHECK(with_noun(1, "box", "boxes") == "1 box");
  CHECK(with_noun(21, "box", "boxes") == "21 boxes");
}

TEST_CASE("nouns: ordinal numbers end as they are spoken") {
  for (const auto& [number, text] : {std::pair{1, "1st"},
                                     {2, "2nd"},
                                     {3, "3rd"},
                                     {4, "4th"},
                                     {10, "10th"},
                                     {11, "11th"},
                                     {12, "12th"},
                                     {13, "13th"},
                                     {21, "21st"},
                                     {102, "102nd"},
                                     {111, "111th"},
                                     {1013, "1013th"}})
    CHECK(ordinal(number) == text);
}

#include "data/text/tokenizer.h"

#include <algorithm>

namespace frugal::data {

TokenIds Tokenizer::with_special(const TokenIds& ids) const {
  TokenIds all = before_text();
  all.insert(all.end(), ids.begin(), ids.end());
  const TokenIds after = after_text();
  all.insert(all.end(), after.begin(), after.end());
  return all;
}

TokenIds Tokenizer::encode_counting(std::string_view text, const std::vector<size_t>& places,
                                    std::vector<int64_t>& counts) const {
  TokenIds ids = encode(text);
  counts.clear();
  for (const size_t place : places) {
    const TokenIds before = encode(text.substr(0, place));
    const auto [same, end] = std::mismatch(ids.begin(), ids.end(), before.begin(), before.end());
    counts.push_back(same - ids.begin());
  }
  return ids;
}

}  // namespace frugal::data

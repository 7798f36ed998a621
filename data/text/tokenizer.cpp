#include "data/text/tokenizer.h"

#include <algorithm>

#include "core/error.h"

namespace frugal::data {
namespace {

void append(TokenIds& to, const TokenIds& ids) { to.insert(to.end(), ids.begin(), ids.end()); }

// The ids that max_length leaves for texts.
size_t room_of(int64_t max_length, size_t special, const char* texts) {
  FRUGAL_CHECK(max_length >= static_cast<int64_t>(special),
               "[tokenizer] expected a max_length of at least {} for {}, got {}", special, texts,
               max_length);
  return static_cast<size_t>(max_length) - special;
}

}  // namespace

TokenPair Tokenizer::single(const TokenIds& a, int64_t max_length) const {
  const EncoderLayout& layout = *encoder_layout();
  const size_t room = room_of(max_length, layout.before.size() + layout.after.size(), "a text");
  TokenPair out{layout.before};
  out.ids.insert(out.ids.end(), a.begin(),
                 a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), room)));
  append(out.ids, layout.after);
  out.second = static_cast<int32_t>(out.ids.size());
  return out;
}

TokenPair Tokenizer::pair(TokenIds a, TokenIds b, int64_t max_length) const {
  const EncoderLayout& layout = *encoder_layout();
  const size_t room = room_of(
      max_length, layout.before.size() + layout.between.size() + layout.behind.size(), "two texts");
  while (a.size() + b.size() > room) (a.size() > b.size() ? a : b).pop_back();
  TokenPair out{layout.before};
  append(out.ids, a);
  append(out.ids, layout.between);
  out.second = static_cast<int32_t>(out.ids.size());
  append(out.ids, b);
  append(out.ids, layout.behind);
  return out;
}

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

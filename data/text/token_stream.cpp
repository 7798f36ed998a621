#include "data/text/token_stream.h"

namespace frugal::data {

TokenStream::TokenStream(const Tokenizer& tokenizer, TokenIds before)
    : tokenizer_(tokenizer), ids_(std::move(before)), written_(ids_.size()) {}

std::string TokenStream::added(bool whole) {
  const auto written_end = ids_.cbegin() + static_cast<std::ptrdiff_t>(written_);
  const std::string before = tokenizer_.decode(TokenIds(ids_.cbegin(), written_end));
  const std::string now = tokenizer_.decode(ids_);
  // A character that is not complete is decoded as U+FFFD.
  const bool complete = !now.ends_with("\xEF\xBF\xBD");
  if (now.size() <= before.size() || (!complete && !whole)) return {};
  const TokenIds last(written_end, ids_.cend());
  // Bytes that make no character may change how those before them are decoded (ByteFallback), which
  // are written already.
  const bool follows = now.starts_with(before);
  // The tokens that were written last decide how the next one is decoded: spaces at the beginning
  // of a text may be nothing, so these stay behind others.
  std::string alone = tokenizer_.decode(last);
  if (!alone.empty()) ids_ = last;
  written_ = ids_.size();
  return follows ? now.substr(before.size()) : alone;
}

std::string TokenStream::add(int32_t id) {
  ids_.push_back(id);
  return added(false);
}

std::string TokenStream::finish() { return added(true); }

}  // namespace frugal::data

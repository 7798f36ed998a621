#include "data/text/hub/added_tokens.h"

#include <algorithm>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/text/unicode.h"

namespace frugal::data {
namespace {

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t at = text.size() - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return is_word_character(next_code_point(text, at).code);
}

bool begins_with_word(std::string_view text) {
  size_t at = 0;
  return !text.empty() && is_word_character(next_code_point(text, at).code);
}

AddedToken read_added_token(const TokenizerEntry& entry) {
  AddedToken token;
  token.id = static_cast<int32_t>(entry.count("id", kMostTokens - 1));
  token.content = entry.text("content");
  token.single_word = entry.flag("single_word", false);
  token.lstrip = entry.flag("lstrip", false);
  token.rstrip = entry.flag("rstrip", false);
  token.special = entry.flag("special", false);
  token.normalized = entry.flag("normalized", !token.special);
  if (token.content.empty() || token.content.size() > kLongestToken)
    entry.at("content").fail(fmt::format("a text of 1 to {} bytes", kLongestToken));
  return token;
}

}  // namespace

AddedTokens::AddedTokens(const TokenizerEntry& entry, const TokenTable& table,
                         const std::function<std::string(std::string)>& normalize,
                         const std::vector<AddedToken>& unsearched) {
  const std::vector<TokenizerEntry> entries = entry.list();
  const int64_t most = 2 * (table.size() + static_cast<int64_t>(entries.size())) + kSpareIds;
  for (const TokenizerEntry& each : entries) {
    AddedToken token = read_added_token(each);
    if (token.id >= most) each.at("id").fail(fmt::format("an id below {}", most));
    const int32_t known = table.find(token.content);
    if (known >= 0 && known != token.id)
      each.at("id").fail(
          fmt::format("{}, the id of {} in the vocabulary", known, in_quotes(token.content)));
    if (token.id < table.size() && known < 0 && !table.token(token.id).empty())
      each.at("id").fail(fmt::format("another id than that of {} in the vocabulary",
                                     in_quotes(table.token(token.id))));
    if (!by_content_.emplace(token.content, 0).second)
      each.at("content").fail("each added token once");
    all_.push_back(std::move(token));
  }
  for (const AddedToken& token : unsearched)
    if (by_content_.emplace(token.content, 0).second) all_.push_back(token);
  std::stable_sort(all_.begin(), all_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (size_t i = 0; i < all_.size(); ++i) {
    const AddedToken& token = all_[i];
    if (i > 0 && all_[i - 1].id == token.id)
      entry.reject(fmt::format("expected one added token with the id {}, got {} and {}", token.id,
                               in_quotes(all_[i - 1].content), in_quotes(token.content)));
    by_content_[token.content] = i;
    if (!token.searched) continue;
    if (!token.normalized) {
      plain_.insert(token.content, static_cast<int32_t>(i));
      continue;
    }
    const std::string text = normalize(token.content);
    if (!text.empty()) normalized_.insert(text, static_cast<int32_t>(i));
  }
}

const AddedToken* AddedTokens::with_id(int64_t id) const {
  const auto at = std::lower_bound(all_.begin(), all_.end(), id,
                                   [](const AddedToken& token, int64_t i) { return token.id < i; });
  return at != all_.end() && at->id == id ? &*at : nullptr;
}

const AddedToken* AddedTokens::find(const std::string& content) const {
  const auto at = by_content_.find(content);
  return at == by_content_.end() ? nullptr : &all_[at->second];
}

std::vector<AddedPart> AddedTokens::split(std::string_view text, bool normalized) const {
  const ByteTrie& trie = normalized ? normalized_ : plain_;
  std::vector<AddedPart> parts;
  size_t done = 0, white_end = 0;  // white_end: of the white space that was looked at last
  for (size_t begin = 0; begin < text.size();) {
    if (!trie.begins(text[begin])) {
      ++begin;
      continue;
    }
    int32_t found = -1;
    size_t end = begin;
    ByteTrie::Node node = ByteTrie::kRoot;
    for (size_t at = begin; at < text.size();) {
      node = trie.next(node, text[at++]);
      if (node == ByteTrie::kNone) break;
      if (trie.value(node) < 0) continue;
      found = trie.value(node);
      end = at;
    }
    if (found < 0) {
      ++begin;
      continue;
    }
    const AddedToken& token = all_[static_cast<size_t>(found)];
    const size_t first = begin;
    begin = end;
    if (token.single_word &&
        (ends_with_word(text.substr(0, first)) || begins_with_word(text.substr(end))))
      continue;
    size_t from = first;
    // White space that the token before has taken stays with it.
    if (token.lstrip && done < first)
      from = first - trailing_white_space(text.substr(done, first - done));
    if (token.rstrip) {
      if (end >= white_end) white_end = end + leading_white_space(text.substr(end));
      end = white_end;
    }
    if (done < from) parts.push_back({{done, from}, -1});
    parts.push_back({{from, end}, token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({{done, text.size()}, -1});
  return parts;
}

}  // namespace frugal::data

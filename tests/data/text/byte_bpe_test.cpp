#include "data/text/byte_bpe.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/rng.h"
#include "data/text/characters.h"
#include "data/text/unicode.h"
#include "tests/data/files.h"

namespace frugal::data {
namespace {

using frugal_test::TemporaryFolder;
using WordViews = std::vector<std::string_view>;

// A byte as GPT-2's files write it.
std::string written(const std::string& bytes) {
  std::string out;
  for (char c : bytes) {
    const auto b = static_cast<uint8_t>(c);
    char32_t code = b;
    if (b <= 0x20) code = 256 + b;
    if (b >= 0x7F && b <= 0xA0) code = 256 + 33 + (b - 0x7Fu);
    if (b == 0xAD) code = 256 + 33 + 34;
    append_utf8(out, code);
  }
  return out;
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

using Pair = std::pair<std::string, std::string>;

// Merges the best pair wherever it stands, one pass for each: the definition, without care for
// time.
std::vector<std::string> merged(const std::string& word, const std::map<Pair, size_t>& ranks) {
  std::vector<std::string> parts;
  for (char c : word) parts.emplace_back(1, c);
  while (true) {
    const std::pair<const Pair, size_t>* best = nullptr;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto at = ranks.find({parts[i], parts[i + 1]});
      if (at != ranks.end() && (best == nullptr || at->second < best->second)) best = &*at;
    }
    if (best == nullptr) return parts;
    std::vector<std::string> next;
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool here = i + 1 < parts.size() && Pair(parts[i], parts[i + 1]) == best->first;
      next.push_back(here ? parts[i] + parts[i + 1] : parts[i]);
      if (here) ++i;
    }
    parts = std::move(next);
  }
}

// Files of a vocabulary: all bytes, then what the pairs make, and a special token.
struct BpeFiles {
  explicit BpeFiles(const std::vector<Pair>& pairs) {
    std::string encoder = "{", merges = "#version: 0.2\n";
    std::vector<std::string> tokens;
    for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
    for (const auto& [a, b] : pairs) {
      ranks.emplace(Pair(a, b), ranks.size());
      merges += written(a) + " " + written(b) + "\n";
      if (std::find(tokens.begin(), tokens.end(), a + b) == tokens.end()) tokens.push_back(a + b);
    }
    tokens.push_back("<|endoftext|>");
    for (size_t id = 0; id < tokens.size(); ++id)
      encoder +=
          (id > 0 ? ", " : "") + json_string(written(tokens[id])) + ": " + std::to_string(id);
    encoder_path = folder.write("encoder.json", encoder + "}");
    merges_path = folder.write("merges.txt", merges);
  }
  ByteBpe load() const { return {encoder_path, merges_path}; }
  TemporaryFolder folder;
  std::map<Pair, size_t> ranks;
  std::string encoder_path, merges_path;
};

std::vector<std::string> texts(const ByteBpe& bpe, const TokenIds& ids) {
  std::vector<std::string> out;
  for (int32_t id : ids) out.push_back(bpe.decode({id}));
  return out;
}

TEST_CASE("text is cut as GPT-2 cuts it") {
  CHECK(gpt2_words("").empty());
  CHECK(gpt2_words("Hello world!") == WordViews{"Hello", " world", "!"});
  CHECK(gpt2_words("I've we'll DON'T it's'd") ==
        WordViews{"I", "'ve", " we", "'ll", " DON", "'", "T", " it", "'s", "'d"});
  CHECK(gpt2_words("'tis 're") == WordViews{"'t", "is", " '", "re"});
  CHECK(gpt2_words("a1b 22 \u00bd") == WordViews{"a", "1", "b", " 22", " \u00bd"});
  // The last of several spaces belongs to the word; line ends do not.
  CHECK(gpt2_words("a   b") == WordViews{"a", "  ", " b"});
  CHECK(gpt2_words("a \n b") == WordViews{"a", " \n", " b"});
  CHECK(gpt2_words("a\nb") == WordViews{"a", "\n", "b"});
  CHECK(gpt2_words("a\n\nb") == WordViews{"a", "\n", "\n", "b"});
  CHECK(gpt2_words("a \t ") == WordViews{"a", " \t "});
  CHECK(gpt2_words(" ") == WordViews{" "});
  CHECK(gpt2_words("  ") == WordViews{"  "});
  CHECK(gpt2_words("a\u00a0\u3000b") == WordViews{"a", "\u00a0", "\u3000", "b"});
  // Marks are neither letters nor numbers; nor are underscores.
  CHECK(gpt2_words("e\u0301t\u00e9 x_y") == WordViews{"e", "\u0301", "t\u00e9", " x", "_", "y"});
  CHECK(gpt2_words("\u4e2d\u6587\u3002 \U0001f600!?") ==
        WordViews{"\u4e2d\u6587", "\u3002", " \U0001f600!?"});
  CHECK(gpt2_words("a\xff\xfe"
                   "b \xe4\xb8") == WordViews{"a", "\xff\xfe", "b", " \xe4\xb8"});
  CHECK(gpt2_words("\x1c\x1d") == WordViews{"\x1c\x1d"});  // controls, no white space
}

TEST_CASE("pairs merge by rank") {
  const BpeFiles files(
      {{"l", "o"}, {"lo", "w"}, {"e", "r"}, {" ", "low"}, {"a", "a"}, {"aa", "aa"}});
  const ByteBpe bpe = files.load();
  CHECK(bpe.size() == 263);
  CHECK(texts(bpe, bpe.encode("low lower")) == std::vector<std::string>{"low", " low", "er"});
  CHECK(texts(bpe, bpe.encode("aaaaa")) == std::vector<std::string>{"aaaa", "a"});
  CHECK(texts(bpe, bpe.encode("aaaaaaa")) == std::vector<std::string>{"aaaa", "aa", "a"});
  CHECK(bpe.find("<|endoftext|>") == 262);
  CHECK_FALSE(bpe.find("nothing").has_value());
  CHECK(bpe.encode("").empty());
  CHECK(bpe.encode("<|endoftext|>").size() > 1);
  CHECK_THROWS_WITH_AS(bpe.decode({263}), doctest::Contains("id in [0, 263), got 263"), Error);
  CHECK_THROWS_AS(bpe.decode({-1}), Error);
  // A word of a million letters takes no quadratic time.
  CHECK(bpe.encode(std::string(1000000, 'a')).size() == 250000);
}

TEST_CASE("any pairs, any bytes: as the definition says, and back") {
  Rng rng(7);
  const auto draw = [&](uint64_t bound) { return uniform_int(rng.next(), 0, bound); };
  for (int round = 0; round < 40; ++round) {
    // Ranks in any order: what a merge makes may rank before it.
    const std::string letters = "abc ";
    std::vector<std::string> known;
    for (char c : letters) known.emplace_back(1, c);
    std::vector<Pair> pairs;
    for (int i = 0; i < 12; ++i) {
      const Pair pair(known[draw(known.size())], known[draw(known.size())]);
      if (std::find(pairs.begin(), pairs.end(), pair) != pairs.end()) continue;
      known.push_back(pair.first + pair.second);
      pairs.push_back(pair);
    }
    if (round % 2 == 1)
      for (size_t i = pairs.size(); i > 1; --i) std::swap(pairs[i - 1], pairs[draw(i)]);
    const BpeFiles files(pairs);
    const ByteBpe bpe = files.load();
    for (int t = 0; t < 20; ++t) {
      std::string text;
      for (uint64_t i = draw(60); i > 0; --i)
        text += t % 4 == 3 ? static_cast<char>(draw(256)) : letters[draw(letters.size())];
      std::vector<std::string> expected;
      for (std::string_view word : gpt2_words(text))
        for (const std::string& part : merged(std::string(word), files.ranks))
          expected.push_back(part);
      const TokenIds ids = bpe.encode(text);
      CHECK(texts(bpe, ids) == expected);
      CHECK(bpe.decode(ids) == text);
    }
  }
}

TEST_CASE("files that cannot be") {
  const BpeFiles good(std::vector<Pair>{{"a", "b"}});
  const std::string encoder = frugal_test::content_of(good.encoder_path);
  const auto rejects = [&](const std::string& changed, const std::string& merges, const char* why) {
    const std::string a = good.folder.write("a", changed), b = good.folder.write("b", merges);
    CHECK_THROWS_WITH_AS(ByteBpe(a, b), doctest::Contains(why), Error);
  };
  rejects("", "", "expected JSON");
  rejects("[1]", "", "expected an object of tokens");
  rejects("{}", "", "expected an object of tokens");
  rejects("{\"a\": 1}", "", "expected ids 0 to 0");
  rejects("{\"a\": 0, \"b\": 0}", "", "expected ids 0 to 1");
  rejects("{\"a\": -1}", "", "expected ids");
  rejects("{\"a\": \"x\"}", "", "expected ids");
  rejects("{\"a b\": 0}", "", "expected bytes as GPT-2 writes them");
  rejects("{\"a\": 0}", "", "a token for every byte");
  rejects(encoder, "a b c\n", "two tokens in line 1");
  rejects(encoder, "#version\nab\n", "two tokens in line 2");
  rejects(encoder, "a b\nb a\n", "tokens of the vocabulary in line 2");
  rejects(encoder, "a b\na b\n", "again in line 2");
  CHECK_THROWS_AS(ByteBpe(good.folder / "none", good.merges_path), Error);
  // Ends of lines as Windows writes them, and none at the end.
  const ByteBpe bpe(good.encoder_path, good.folder.write("b", "#version: 0.2\r\na b\r\n\r\n"));
  CHECK(bpe.encode("ab").size() == 1);
  CHECK(ByteBpe(good.encoder_path, good.folder.write("b", "a b")).encode("ab").size() == 1);
}

TEST_CASE("characters in Unicode's order") {
  const Characters letters = Characters::of("b\u00e9a b\n\U0001f600");
  CHECK(letters.alphabet() == U"\n ab\u00e9\U0001f600");
  CHECK(letters.encode("a\u00e9\n") == TokenIds{2, 4, 0});
  CHECK(letters.decode(letters.encode("b\u00e9a b\n\U0001f600")) == "b\u00e9a b\n\U0001f600");
  CHECK(letters.encode("").empty());
  CHECK_THROWS_WITH_AS(letters.encode("b\u00e9z"), doctest::Contains("U+007A at offset 3"), Error);
  CHECK_THROWS_WITH_AS(letters.decode({6}), doctest::Contains("[0, 6), got 6"), Error);
  CHECK_THROWS_WITH_AS(Characters::of("a\xff"), doctest::Contains("byte ff at offset 1"), Error);
  CHECK_THROWS_WITH_AS(Characters::of(""), doctest::Contains("expected characters"), Error);
  CHECK_THROWS_WITH_AS(Characters(U"aba"), doctest::Contains("U+0061 twice"), Error);
}

}  // namespace
}  // namespace frugal::data

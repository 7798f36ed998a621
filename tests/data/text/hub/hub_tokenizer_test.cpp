#include "data/text/hub/hub_tokenizer.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/rng.h"
#include "data/formats/json_strict.h"
#include "data/text/hub/split_pattern.h"
#include "data/text/token_stream.h"
#include "data/text/unicode.h"
#include "tests/data/files.h"

namespace frugal::data {
namespace {

using frugal_test::fails;
using Json = nlohmann::json;

// A byte-fallback BPE of few tokens.
Json small_file() {
  return parse_json<Json>(R"({
    "version": "1.0", "added_tokens": [
      {"id": 6, "content": "<end>", "special": true, "normalized": false}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "aba": 4, " ": 5},
              "unk_token": "<unk>", "merges": [["a", "b"], ["ab", "a"]]}})");
}

HubTokenizer made(const Json& json) { return {json.dump(), "x.json"}; }

TEST_CASE("tokenizer.json: ids and texts are those of the reference implementation") {
  // tools/tokenizer_golden.sh --cases fills in what it says.
  const Json cases =
      parse_json<Json>(frugal_test::content_of(FRUGAL_TEST_FILES "/data/text/hub/cases.json"));
  REQUIRE(cases.size() == 38);
  for (const Json& each : cases) {
    const auto name = each.at("name").get<std::string>();
    CAPTURE(name);
    const HubTokenizer tokenizer(each.at("tokenizer").dump(), name);
    REQUIRE(each.at("texts").size() == each.at("expected").size());
    for (size_t i = 0; i < each.at("texts").size(); ++i) {
      const auto text = each.at("texts")[i].get<std::string>();
      const Json& expected = each.at("expected")[i];
      CAPTURE(text);
      const TokenIds ids = tokenizer.encode(text);
      CHECK(ids == expected.at("ids").get<TokenIds>());
      CHECK(tokenizer.with_special(ids) == expected.value("full", ids));
      if (!ids.empty()) CHECK(tokenizer.decode(ids) == expected.at("text").get<std::string>());
      // The ids before a place are those of the text before it, as far as they are the same. A
      // token that takes white space behind it is not there before the white space.
      if (each.at("tokenizer").at("added_tokens").size() > 7) continue;
      std::vector<size_t> places;
      for (size_t at = 0; at < text.size(); next_code_point(text, at))
        if (at % 3 != 0) places.push_back(at);
      std::vector<int64_t> counts, expected_counts;
      CHECK(tokenizer.encode_counting(text, places, counts) == ids);
      tokenizer.Tokenizer::encode_counting(text, places, expected_counts);
      CHECK(counts == expected_counts);
    }
  }
}

TEST_CASE("tokenizer.json: what a tokenizer says of itself") {
  const HubTokenizer tokenizer = made(small_file());
  CHECK(tokenizer.size() == 7);
  CHECK(tokenizer.find("ab") == 3);
  CHECK(tokenizer.find("<end>") == 6);
  CHECK_FALSE(tokenizer.find("c").has_value());
  CHECK(tokenizer.is_special(6));
  CHECK_FALSE(tokenizer.is_special(3));
  CHECK(tokenizer.encode("aba<end>ab c") == TokenIds{4, 6, 3, 5, 0});
  CHECK(tokenizer.decode({4, 6, 3}) == "aba <end> ab");
  CHECK(tokenizer.decode_plain({4, 6, 3}) == "aba ab");
  CHECK(tokenizer.describe() == "BPE, 6 tokens and 1 added, whole texts");
  CHECK(tokenizer.encode("a\xff") == TokenIds{1, 0});  // what is no UTF-8 is U+FFFD
  fails("id in [0, 7), got 7", [&] { tokenizer.decode({7}); });
}

TEST_CASE("tokenizer.json: tokens that come one by one give the text of all") {
  const Json cases =
      parse_json<Json>(frugal_test::content_of(FRUGAL_TEST_FILES "/data/text/hub/cases.json"));
  for (const Json& each : cases) {
    const auto name = each.at("name").get<std::string>();
    if (each.at("tokenizer").at("decoder").is_null() ||
        each.at("tokenizer").at("decoder").at("type") == "CTC" ||
        each.at("tokenizer").at("decoder").at("type") == "BPEDecoder")
      continue;  // what a token becomes depends on those behind it
    CAPTURE(name);
    const HubTokenizer tokenizer(each.at("tokenizer").dump(), name);
    for (const Json& text : each.at("texts")) {
      const TokenIds ids = tokenizer.encode(text.get<std::string>());
      TokenStream stream(tokenizer);
      std::string all;
      for (const int32_t id : ids) all += stream.add(id);
      all += stream.finish();
      CHECK(all == tokenizer.decode(ids));
    }
  }
  // A character of two tokens comes when it is complete.
  const HubTokenizer bytes(cases[0].at("tokenizer").dump(), "x");
  const TokenIds ids = bytes.encode("\u0e01");
  REQUIRE(ids.size() == 3);
  TokenStream stream(bytes, bytes.encode("a"));
  CHECK(stream.add(ids[0]).empty());
  CHECK(stream.add(ids[1]).empty());
  CHECK(stream.add(ids[2]) == "\u0e01");
  CHECK(stream.add(ids[0]).empty());
  CHECK(stream.finish() == "\ufffd");
}

TEST_CASE("tokenizer.json: files that cannot be name the entry") {
  const auto rejects = [](const char* change, const char* why) {
    CAPTURE(change);
    Json json = small_file();
    json.merge_patch(parse_json<Json>(change));
    fails(why, [&] { made(json); });
  };
  fails("\"x.json\": expected JSON", [] { HubTokenizer("{", "x.json"); });
  fails("expected JSON", [] { HubTokenizer("{\"model\": \"\xff\"}", "x.json"); });
  fails("expected a member \"model\"", [] { HubTokenizer("{}", "x.json"); });
  rejects(R"({"model": {"type": "CharBPE"}})", "model.type: expected BPE, Unigram, WordPiece");
  rejects(R"({"model": {"vocab": []}})", "model.vocab: expected an object of tokens");
  rejects(R"({"model": {"vocab": {"c": 2}}})", "model.vocab: expected one token with the id 2");
  rejects(R"({"model": {"vocab": {"c": 4000000000}}})",
          "expected ids from 0 to 65549 for 7 tokens");
  rejects(R"({"model": {"vocab": {"c": -1}}})", "model.vocab: expected ids");
  rejects(R"({"model": {"unk_token": "?"}})",
          "model.unk_token: expected a token of the vocabulary");
  rejects(R"({"model": {"dropout": 0.1}})", "model.dropout: expected a dropout of 0");
  rejects(R"({"model": {"merges": [["a", "b"], ["a", "b"]]}})",
          "model.merges: expected each merge once, got [\"a\",\"b\"] again as merge 1");
  rejects(R"({"model": {"merges": ["a b", "b a"]}})", "to have what merge 1 makes");
  rejects(R"({"model": {"merges": ["a c"]}})", "tokens of the vocabulary in merge 0");
  rejects(R"({"model": {"merges": ["a b c"]}})", "two tokens in merge 0");
  rejects(R"({"model": {"merges": {"a": "b"}}})", "model.merges: expected a list");
  rejects(R"({"added_tokens": [{"id": 3, "content": "x"}]})",
          "added_tokens[0].id: expected another");
  rejects(R"({"added_tokens": [{"id": 9, "content": "ab"}]})", "added_tokens[0].id: expected 3");
  rejects(R"({"added_tokens": [{"id": 1000000, "content": "x"}]})",
          "added_tokens[0].id: expected an");
  rejects(R"({"added_tokens": [{"id": 7, "content": ""}]})", "added_tokens[0].content: expected");
  rejects(R"({"added_tokens": [{"id": 7, "content": "x"}, {"id": 8, "content": "x"}]})",
          "added_tokens[1].content: expected each added token once");
  rejects(R"({"added_tokens": [{"id": 7, "content": "x"}, {"id": 7, "content": "y"}]})",
          "one added token with the id 7");
  rejects(
      R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Rot"}]}})",
      "normalizer.normalizers[1].type: expected NFC");
  rejects(R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}})",
          "rules for characters");
  rejects(R"({"normalizer": {"type": "Replace", "pattern": {"Regex": "(a"}, "content": ""}})",
          "normalizer.pattern: [tokenizer] expected a regular expression");
  rejects(
      R"({"pre_tokenizer": {"type": "Split", "pattern": {"String": ""}, "behavior": "Removed"}})",
      "pre_tokenizer.pattern");
  rejects(R"({"pre_tokenizer": {"type": "Split", "pattern": {"String": "x"}, "behavior": "Gone"}})",
          "pre_tokenizer.behavior: expected Isolated");
  rejects(R"({"pre_tokenizer": {"type": "Stir"}})",
          "pre_tokenizer.type: expected BertPreTokenizer");
  rejects(R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "ab"}})",
          "pre_tokenizer.replacement: expected one character");
  rejects(R"({"post_processor": {"type": "Stamp"}})",
          "post_processor.type: expected BertProcessing");
  rejects(R"({"post_processor": {"type": "BertProcessing", "sep": ["x", 9], "cls": ["y", 1]}})",
          "post_processor: expected ids below 7, got 9");
  rejects(R"({"decoder": {"type": "Sequence", "decoders": [{"type": "Morse"}]}})",
          "decoder.decoders[0].type: expected BPEDecoder");
  rejects(R"({"model": {"type": "Unigram", "vocab": [["a", -1], ["b"]]}})",
          "a piece and its score as entry 1");
  rejects(R"({"model": {"type": "Unigram", "vocab": [["a", -1]], "unk_id": 1}})",
          "model.unk_id: expected a whole number from 0 to 0");
}

TEST_CASE("tokenizer.json: long texts take linear time") {
  const HubTokenizer tokenizer = made(small_file());
  std::string text;
  for (int i = 0; i < 300000; ++i) text += "aba";
  CHECK(tokenizer.encode(text).size() == 300000);
  // A long added token, whose beginning is everywhere, and white space that several tokens may
  // take.
  Json json = small_file();
  json["added_tokens"].push_back({{"id", 5}, {"content", " "}, {"lstrip", true}, {"rstrip", true}});
  CHECK(made(json).encode(std::string(300000, ' ')).size() == 300000);
  // An expression that tries too much is given up.
  json["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a*)*(a*)*c"}}}, {"behavior", "Isolated"}};
  fails("takes too many steps", [&] { made(json).encode(std::string(100000, 'a') + "b"); });
  json["pre_tokenizer"]["pattern"]["Regex"] = "a*a*a*a*c";
  fails("takes too many steps", [&] { made(json).encode(std::string(100000, 'a') + "b"); });
}

TEST_CASE("expressions: the fast matcher finds what ICU finds") {
  const std::vector<std::string> expressions = {
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"(\p{N}{1,3})",
      "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      R"(ab?(?=c)|(?:ab|c)d{2,}|[^a-c]{3}|\d\t)"};
  const std::u32string letters =
      U"aabbccddsStTlLmMrReEvV''  \t\n\r12345.,!-/\u017f\u212a\u00e9\u0301\u0e01\u3042\u0130\u01c5"
      U"\u02b0\u0661\u00bd\u2028\u00a0\u3000\U0001f600\U0001d400\u0903\ufffd";
  Rng rng(11);
  for (const std::string& expression : expressions) {
    CAPTURE(expression);
    const SplitPattern fast = SplitPattern::of_expression(expression);
    const SplitPattern icu = SplitPattern::through_icu(expression);
    CHECK_FALSE(fast.by_icu());
    CHECK(icu.by_icu());
    for (int i = 0; i < 400; ++i) {
      const RngKey key = rng.next();
      std::string text;
      const uint64_t count = uniform_int(key, 0, 60);
      for (uint64_t k = 0; k < count; ++k)
        append_utf8(text, letters[uniform_int(key, k + 1, letters.size())]);
      CAPTURE(text);
      CHECK(fast.find(text) == icu.find(text));
    }
  }
  // What the fast matcher does not know goes to ICU.
  for (const char* other : {"a*", "(a|bc)+", "a+?", "a++", "(?<=a)b", "[a&&b]", R"(\w+)", "^a",
                            "a$", ".", "[[a]b]", "(?i:[a-c])", "a(b)", R"(\p{Greek})", R"(\b)"}) {
    CAPTURE(other);
    CHECK(SplitPattern::of_expression(other).by_icu());
  }
}

}  // namespace
}  // namespace frugal::data

// tokenizer.model: files that the tests write byte by byte, against SentencePiece's ids.
#include "data/text/hub/piece_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "data/formats/json_strict.h"
#include "data/text/chat/text_samples.h"
#include "data/text/hub/hub_tokenizer.h"
#include "data/text/token_stream.h"
#include "tests/data/files.h"
#include "tests/data/piece_model.h"

namespace frugal::data {
namespace {

using namespace frugal_test;
using PieceJson = nlohmann::json;

// The base64 of the cases.
std::string bytes_of_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
  }
  return out;
}

std::string wire_model(const PieceJson& model) {
  std::string out;
  for (const PieceJson& piece : model.at("pieces"))
    out += wire_piece(piece[0].get<std::string>(), piece[1].get<float>(), piece[2].get<uint64_t>());
  std::string trainer;
  if (model.value("space_behind", false)) trainer += wire_number(24, 1);
  if (model.value("byte_fallback", false)) trainer += wire_number(35, 1);
  if (model.contains("unknown_surface"))
    trainer += wire_content(44, model["unknown_surface"].get<std::string>());
  out += wire_trainer(model.at("type").get<uint64_t>(), trainer);
  std::string normalizer = wire_content(2, bytes_of_base64(model.value("rules", "")));
  if (!model.value("dummy_prefix", true)) normalizer += wire_number(3, 0);
  if (!model.value("remove_spaces", true)) normalizer += wire_number(4, 0);
  if (!model.value("escape_spaces", true)) normalizer += wire_number(5, 0);
  return out + wire_content(3, normalizer);
}

TEST_CASE("tokenizer.model: ids and texts are those of SentencePiece") {
  // tools/piece_cases.py fills in what it says.
  const auto cases =
      parse_json<PieceJson>(content_of(FRUGAL_TEST_FILES "/data/text/hub/pieces.json"));
  REQUIRE(cases.size() == 10);
  const TemporaryFolder folder;
  for (const PieceJson& each : cases) {
    const auto name = each.at("name").get<std::string>();
    CAPTURE(name);
    folder.write("x.model", wire_model(each.at("model")));
    const HubTokenizer tokenizer(folder / "x.model");
    CHECK(tokenizer.size() == static_cast<int64_t>(each.at("model").at("pieces").size()));
    REQUIRE(each.at("texts").size() == each.at("expected").size());
    for (size_t i = 0; i < each.at("texts").size(); ++i) {
      const auto text = each.at("texts")[i].get<std::string>();
      const auto expected = each.at("expected")[i].at("ids").get<TokenIds>();
      CAPTURE(text);
      CHECK(tokenizer.encode(text) == expected);
      CHECK(tokenizer.decode(expected) == each.at("expected")[i].at("text").get<std::string>());
      TokenStream stream(tokenizer);
      std::string all;
      for (const int32_t id : expected) all += stream.add(id);
      CHECK(all + stream.finish() == tokenizer.decode(expected));
    }
  }
}

TEST_CASE("tokenizer.model: what a folder says beside it") {
  const TemporaryFolder folder;
  const auto write = [&](const char* name, const std::string& text) { folder.write(name, text); };
  write("tokenizer.model", small_piece_model());
  // The file alone: <s> is a text like any other.
  const HubTokenizer alone(folder / "tokenizer.model");
  CHECK(alone.encode("ab <own>") == TokenIds{3, 6, 3, 7});
  CHECK(alone.encode("<s>") == TokenIds{3, 0});
  CHECK(alone.before_text().empty());
  CHECK(alone.decode({1, 3, 6, 3, 7, 2, 0}) == "<s> ab <own></s> \xE2\x81\x87 ");
  CHECK(alone.decode_plain({1, 3, 6, 3, 7, 2}) == "ab <own>");
  CHECK(alone.is_special(2));
  CHECK_FALSE(alone.is_special(6));
  CHECK(alone.find("</s>") == 2);
  CHECK(alone.describe() == "BPE, 8 tokens and 2 added, whole texts");
  // A folder without further files: what LlamaTokenizer does.
  const auto opened = [&] { return HubTokenizer::of_folder(folder / ""); };
  CHECK(opened()->before_text() == TokenIds{1});
  CHECK(opened()->after_text().empty());
  write(
      "tokenizer_config.json",
      R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": {"content": "<end>"},
            "pad_token": null, "unk_token": "<unk>", "add_eos_token": true, "add_bos_token": false,
            "added_tokens_decoder": {"2": {"content": "</s>", "special": true},
              "8": {"content": "<end>", "special": true, "rstrip": true},
              "9": {"content": "cc", "special": false}}})");
  write("added_tokens.json", R"({"<more>": 10})");
  write("special_tokens_map.json", R"({"additional_special_tokens": ["<more>", "<own>"]})");
  const auto tokenizer = opened();
  CHECK(tokenizer->size() == 11);
  CHECK(tokenizer->before_text().empty());
  CHECK(tokenizer->after_text() == TokenIds{8});
  // Behind an added token, a text begins with a space once more.
  CHECK(tokenizer->encode("<s>ab</s>ab<end>  cca<more>") ==
        TokenIds{1, 3, 6, 2, 3, 6, 8, 9, 3, 4, 10});
  CHECK(tokenizer->decode({1, 3, 6, 9, 10}) == "<s> abcc<more>");
  CHECK(tokenizer->decode_plain({1, 3, 6, 9, 10}) == "abcc");
  const SampleEncoder samples = read_sample_encoder(folder / "");
  CHECK(samples.end == 8);
  CHECK(sample_files(folder / "") ==
        std::vector<std::string>{"tokenizer.model", "tokenizer_config.json", "added_tokens.json",
                                 "special_tokens_map.json"});
  write("tokenizer_config.json", R"({"legacy": false, "bos_token": "<s>"})");
  CHECK(opened()->encode("ab<s>ab<s> ab") == TokenIds{3, 6, 1, 6, 1, 3, 6});
  write("tokenizer_config.json", R"({"legacy": false, "add_prefix_space": false})");
  CHECK(opened()->encode("ab<own>ab") == TokenIds{6, 7, 6});

  const auto rejects = [&](const char* config, const char* why) {
    CAPTURE(config);
    write("tokenizer_config.json", config);
    fails(why, opened);
  };
  rejects("[]", "tokenizer_config.json\": expected an object, got []");
  rejects("{", "tokenizer_config.json\": expected JSON");
  rejects(R"({"tokenizer_class": "XLMRobertaTokenizer"})",
          "tokenizer_class: expected LlamaTokenizer or GemmaTokenizer");
  rejects(R"({"pad_token": "[PAD]"})", "pad_token: expected a token of");
  rejects(R"({"add_bos_token": 1})", "add_bos_token: expected true or false");
  rejects(R"({"added_tokens_decoder": {"x": {"content": "y"}}})",
          "added_tokens_decoder.x: expected an id and its token");
  rejects(R"({"added_tokens_decoder": {"6": {"content": "y"}}})", "another id than that of \"ab\"");
  rejects(R"({"added_tokens_decoder": {"11": {"special": true}}})",
          "expected a member \"content\"");
  write("tokenizer_config.json", "{}");
  write("added_tokens.json", R"({"y": -1})");
  fails("added_tokens.json\": y: expected a whole number", opened);
  // A tokenizer.json comes first.
  write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  CHECK(opened()->size() == 1);
}

TEST_CASE("tokenizer.model: files that cannot be name the entry") {
  const TemporaryFolder folder;
  const auto rejects = [&](const std::string& bytes, const char* why) {
    fails(why, [&] { read_piece_file(bytes, "x.model"); });
    folder.write("x.model", bytes);
    fails(why, [&] { HubTokenizer(folder / "x.model"); });
  };
  const std::string good = small_piece_model();
  CHECK(read_piece_file(good, "x").pieces.size() == 8);
  // Fields that are not known are left out, whatever their type.
  CHECK(read_piece_file(good + wire_number(99, 1) + wire_single(98, 1) + wire_content(97, "x") +
                            wire_varint(96 << 3 | 1) + std::string(8, 'x'),
                        "x")
            .pieces.size() == 8);
  for (size_t size = 1; size < good.size(); ++size) {
    try {
      read_piece_file(good.substr(0, size), "x");
    } catch (const Error&) {  // any other exception ends the test
    }
  }
  rejects("", "pieces: expected an unknown piece, got none");
  rejects("\x0a\xff\xff\xff\xff\x0f", "bytes in field 1, got 0: is the file cut off?");
  rejects(std::string(11, '\xff'), "expected a whole number of at most 10 bytes");
  rejects("\x0b", "expected a field of type 0, 1, 2 or 5, got 3");
  rejects(std::string(1, '\0'), "expected the number of a field");
  rejects(wire_number(1, 5), "expected pieces as a field of type 2, got 0");
  rejects(good + wire_content(1, wire_content(1, "x") + wire_number(2, 1)),
          "pieces[8]: expected score as a field of type 5, got 0");
  rejects(good + wire_piece("", 0, 1), "pieces[8]: expected a piece of 1 to 4096 bytes, got 0");
  rejects(good + wire_piece(std::string(4097, 'x'), 0, 1), "4096 bytes, got 4097");
  rejects(good + wire_piece("\xff", 0, 1), "pieces[8]: expected a piece of UTF-8");
  rejects(good + wire_piece("x", 0, 7), "pieces[8]: expected a type from 1 to 6, got 7");
  rejects(good + wire_piece("x", std::numeric_limits<float>::infinity(), 1),
          "pieces[8]: expected a number as score, got inf");
  rejects(good + wire_piece("ab", 0, 1), "expected each piece once, got \"ab\" as 6 and 8");
  rejects(good + wire_piece("?", 0, 2), "expected one unknown piece, got 0 and 8");
  rejects(good + wire_piece("x", 0, 5), "expected no unused piece in a BPE model, got \"x\"");
  rejects(good + wire_piece("<0x00>", 0, 6), "no pieces of bytes without byte_fallback, got 1");
  rejects(small_piece_model(wire_trainer(kBpe, wire_number(35, 1))),
          "expected 256 pieces of bytes, of which one is \"<0x00>\"");
  rejects(small_piece_model(wire_trainer(4)),
          "trainer_spec: expected the model_type 1 or 2, Unigram");
  folder.write("x.model", small_piece_model(wire_content(3, wire_content(2, "xyz"))));
  fails("normalizer_spec.precompiled_charsmap: [tokenizer] expected rules for characters",
        [&] { HubTokenizer(folder / "x.model"); });
  rejects(small_piece_model(wire_content(5, wire_content(2, "xyz"))),
          "denormalizer_spec: expected no rules for decoding, got 3 bytes");
}

TEST_CASE("tokenizer.model: a long text is cut as its parts are") {
  // Sums in f32 of a text of this length have steps above the difference of the two ways, and would
  // choose the worse one.
  const std::string bytes = wire_piece("<unk>", 0, 2) + wire_piece("\xE2\x96\x81", -1, 1) +
                            wire_piece("a", -3, 1) + wire_piece("b", -3, 1) +
                            wire_piece("ab", -6.0078125F, 1) + wire_trainer(kUnigram);
  const TemporaryFolder folder;
  folder.write("x.model", bytes);
  const HubTokenizer tokenizer(folder / "x.model");
  std::string text;
  for (int i = 0; i < 2000000; ++i) text += "ab ";
  const TokenIds ids = tokenizer.encode(text);
  CHECK(ids.size() == 6000000);
  CHECK(std::count(ids.begin(), ids.end(), 4) == 0);
  // A BPE model whose tokens are all ways to write a long one takes time in proportion to it.
  std::string pieces = wire_piece("<unk>", 0, 2);
  for (size_t length = 1; length <= 1500; ++length)
    pieces += wire_piece(std::string(length, 'a'), static_cast<float>(length), 1);
  folder.write("y.model", pieces + wire_trainer(kBpe));
  CHECK(HubTokenizer(folder / "y.model").encode(std::string(1500, 'a')).size() <= 2);
}

}  // namespace
}  // namespace frugal::data

// Folders of BERT, RoBERTa and DistilBERT as the hub lays them out: looked at, trained on pairs of
// texts, asked, judged, written again.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "apps/config/hub_folder.h"
#include "data/formats/json_strict.h"
#include "data/formats/safetensors.h"
#include "models/state.h"
#include "models/zoo/bert.h"
#include "ops/dense/copy.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

constexpr int64_t kVocabulary = 44;

// Config files with the keys that published ones have.
Json config_of(const std::string& kind) {
  Json json = {{"model_type", kind},
               {"vocab_size", kVocabulary},
               {"initializer_range", 0.02},
               {"transformers_version", "4.46.0"}};
  if (kind == "distilbert") {
    json.update({{"architectures", {"DistilBertForMaskedLM"}},
                 {"activation", "gelu"},
                 {"attention_dropout", 0.1},
                 {"dim", 16},
                 {"dropout", 0.1},
                 {"hidden_dim", 24},
                 {"max_position_embeddings", 32},
                 {"n_heads", 2},
                 {"n_layers", 2},
                 {"pad_token_id", 0},
                 {"qa_dropout", 0.1},
                 {"seq_classif_dropout", 0.2},
                 {"sinusoidal_pos_embds", false},
                 {"tie_weights_", true}});
    return json;
  }
  json.update({{"architectures", {"ForMaskedLM"}},
               {"attention_probs_dropout_prob", 0.1},
               {"hidden_act", "gelu"},
               {"hidden_dropout_prob", 0.1},
               {"hidden_size", 16},
               {"intermediate_size", 24},
               {"num_attention_heads", 2},
               {"num_hidden_layers", 2}});
  if (kind == "roberta")
    json.update({{"bos_token_id", 0},
                 {"eos_token_id", 2},
                 {"pad_token_id", 1},
                 {"layer_norm_eps", 1e-5},
                 {"max_position_embeddings", 34},
                 {"type_vocab_size", 1}});
  else
    json.update({{"layer_norm_eps", 1e-12},
                 {"max_position_embeddings", 32},
                 {"pad_token_id", 0},
                 {"type_vocab_size", 2}});
  return json;
}

// RoBERTa's tokens are bytes, those of the others pieces of words.
Json tokenizer_of(const std::string& kind) {
  const bool bytes = kind == "roberta";
  std::vector<std::string> special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  if (bytes) special = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"};
  Json vocabulary = Json::object(), added = Json::array();
  for (const std::string& token : special) {
    const auto id = static_cast<int64_t>(vocabulary.size());
    vocabulary[token] = id;
    added.push_back({{"id", id}, {"content", token}, {"special", true}});
  }
  for (char c = 'a'; c <= 'z'; ++c) vocabulary[std::string(1, c)] = vocabulary.size();
  if (bytes) {
    vocabulary["\u0120"] = vocabulary.size();  // a space
  } else {
    for (char c = 'a'; c <= 'k'; ++c) vocabulary["##" + std::string(1, c)] = vocabulary.size();
  }
  Json json = {{"added_tokens", added}};
  if (bytes) {
    json.update({{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                 {"post_processor",
                  {{"type", "RobertaProcessing"},
                   {"sep", {"</s>", 2}},
                   {"cls", {"<s>", 0}},
                   {"trim_offsets", true},
                   {"add_prefix_space", false}}},
                 {"decoder", {{"type", "ByteLevel"}}},
                 {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}});
    return json;
  }
  const auto token = [](const char* name, int type) {
    return Json{{"SpecialToken", {{"id", name}, {"type_id", type}}}};
  };
  const auto text = [](const char* name, int type) {
    return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  const Json own = {
      {"[CLS]", {{"id", "[CLS]"}, {"ids", Json::array({2})}, {"tokens", Json::array({"[CLS]"})}}},
      {"[SEP]", {{"id", "[SEP]"}, {"ids", Json::array({3})}, {"tokens", Json::array({"[SEP]"})}}}};
  json.update({{"normalizer", {{"type", "BertNormalizer"}, {"lowercase", true}}},
               {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
               {"post_processor",
                {{"type", "TemplateProcessing"},
                 {"single", Json::array({token("[CLS]", 0), text("A", 0), token("[SEP]", 0)})},
                 {"pair", Json::array({token("[CLS]", 0), text("A", 0), token("[SEP]", 0),
                                       text("B", 1), token("[SEP]", 1)})},
                 {"special_tokens", own}}},
               {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
               {"model",
                {{"type", "WordPiece"},
                 {"unk_token", "[UNK]"},
                 {"continuing_subword_prefix", "##"},
                 {"max_input_chars_per_word", 100},
                 {"vocab", vocabulary}}}});
  return json;
}

// A folder with random weights of the model that guesses tokens, as the published ones are, with
// the tied copies that old files have.
std::string made_folder(const TempFolder& folder, const std::string& kind) {
  const std::string path = folder / kind;
  std::filesystem::create_directories(path);
  write_file(path + "/config.json", config_of(kind).dump());
  write_file(path + "/tokenizer.json", tokenizer_of(kind).dump());
  write_file(path + "/tokenizer_config.json", "{}");
  models::BertOptions options = models::bert_options(kind + "_base");
  options.layers = 2, options.hidden = 16, options.heads = 2, options.intermediate = 24;
  options.vocab_size = kVocabulary;
  options.max_positions = kind == "roberta" ? 34 : 32;
  options.head = models::BertHead::masked_lm;
  models::Init init;
  models::Bert net(init, options);
  models::NamedTensors state = models::state_dict(net);
  const auto copy = [&](const std::string& name, const std::string& of) {
    for (size_t i = 0; i < state.size(); ++i)
      if (state[i].first == of)
        return state.emplace_back(name, ops::clone(state[i].second)), void();
    FAIL("no tensor ", of);
  };
  const std::string words = kind + ".embeddings.word_embeddings.weight";
  if (kind == "bert") copy("cls.predictions.decoder.weight", words);
  if (kind == "roberta") copy("lm_head.decoder.weight", words);
  if (kind == "roberta") copy("lm_head.decoder.bias", "lm_head.bias");
  if (kind == "distilbert") copy("vocab_projector.weight", words);
  data::write_safetensors(path + "/model.safetensors", state, {{"format", "pt"}});
  return path;
}

Json said(const std::string& arguments) {
  const Ran ran = frugal(arguments);
  REQUIRE_MESSAGE(ran.status == 0, arguments, ": ", ran.err);
  return data::parse_json<Json>(ran.out);
}

}  // namespace

TEST_CASE("hub: an encoder's folder without a tokenizer.json has its words in vocab.txt") {
  const TempFolder folder;
  const std::string path = made_folder(folder, "bert");
  std::vector<std::string> words;
  for (int64_t i = 0; i < kVocabulary; ++i) words.push_back(fmt::format("[unused{}]", i));
  const Json numbers = tokenizer_of("bert")["model"]["vocab"];
  for (const auto& [word, id] : numbers.items()) words.at(id.get<size_t>()) = word;
  std::filesystem::remove(path + "/tokenizer.json");
  write_file(path + "/vocab.txt", fmt::format("{}\n", fmt::join(words, "\n")));
  std::string lines;
  for (int i = 0; i < 8; ++i)
    lines += fmt::format("{{\"text\": \"a cat\", \"label\": {}}}\n", i % 2);
  write_file(folder / "lines.jsonl", lines);
  write_file(folder / "config.json", Json({{"model", {{"weights", path}, {"head", "reset"}}},
                                           {"data",
                                            {{"name", "jsonl"},
                                             {"dir", folder / "lines.jsonl"},
                                             {"batch_size", 4},
                                             {"max_length", 8}}},
                                           {"train", {{"steps", 1}}}})
                                         .dump());
  const Ran ran = frugal("train " + folder / "config.json" + " --out " + folder / "run");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(read_file(folder / "run/vocab.txt") == read_file(path + "/vocab.txt"));
}

TEST_CASE("hub: encoders from a folder to classes of pairs, and to a folder again") {
  for (const std::string kind : {"bert", "roberta", "distilbert"}) {
    CAPTURE(kind);
    const TempFolder folder;
    const std::string path = made_folder(folder, kind);
    const Json seen = said("inspect --json " + path);
    CHECK(seen["fits"] == true);
    CHECK(seen["model"]["name"] == kind + "_base");
    CHECK(seen["model"]["layers"] == 2);
    std::string lines;
    for (int i = 0; i < 24; ++i)
      lines += i % 2 == 0 ? R"({"text": "a cat", "other": "a cat", "label": "same"})"
                            "\n"
                          : R"({"text": "a cat", "other": "the dog", "label": "other"})"
                            "\n";
    write_file(folder / "pairs.jsonl", lines);
    write_file(folder / "config.json", Json({{"model", {{"weights", path}, {"head", "reset"}}},
                                             {"data",
                                              {{"name", "jsonl"},
                                               {"dir", folder / "pairs.jsonl"},
                                               {"second_text", "other"},
                                               {"batch_size", 8},
                                               {"max_length", 24}}},
                                             {"optim", {{"name", "adamw"}, {"lr", 0.01}}},
                                             {"train", {{"epochs", 20}}}})
                                           .dump());
    const std::string run = folder / "run", out = folder / "out";
    const Ran trained = frugal("train " + folder / "config.json" + " --out " + run);
    REQUIRE_MESSAGE(trained.status == 0, trained.err);
    std::filesystem::rename(path, path + "_moved");  // the run's folder is enough
    const Json judged = said("eval " + run + " --weights last --json");
    CHECK(judged["loss"].get<double>() < 0.6);
    write_file(folder / "asked.txt", "a cat\tthe dog\na cat\ta cat\n");
    const Ran asked = frugal("predict " + run + " " + folder / "asked.txt" + " --json --top 1");
    CHECK_MESSAGE(asked.status == 0, asked.err);
    CHECK_MESSAGE(has(asked.out, "other"), asked.out);
    CHECK_MESSAGE(has(asked.out, "same"), asked.out);
    CHECK(frugal("predict " + run + " none.jsonl").status == 2);
    std::filesystem::rename(path + "_moved", path);

    const Ran exported = frugal("export " + run + " --weights last --format hf --output " + out);
    REQUIRE_MESSAGE(exported.status == 0, exported.err);
    const Json written = data::parse_json<Json>(read_file(out + "/config.json"));
    CHECK(written["model_type"] == kind);
    CHECK(written["id2label"].size() == 2);
    const Json published = config_of(kind);
    for (const auto& [key, value] : published.items())
      if (written.contains(key) && key != "architectures")
        CHECK_MESSAGE(written[key] == value, key);
    CHECK(std::filesystem::is_regular_file(out + "/tokenizer.json"));
    CHECK(said("inspect --json " + out)["fits"] == true);
    // Read back, the folder gives the same outputs.
    const std::string sets = " --set model.weights=" + out +
                             " --set model.head=keep --checkpoint " + out +
                             "/model.safetensors --json";
    const Json again = said("eval " + folder / "config.json" + sets);
    CHECK(again["loss"] == judged["loss"]);
  }
}

TEST_CASE("hub: what an encoder's config.json says and we do not compute is refused") {
  const TempFolder folder;
  const std::string path = made_folder(folder, "roberta");
  // Two of RoBERTa's positions are no token's.
  write_file(folder / "config.json",
             Json({{"model", {{"weights", path}, {"head", "reset"}}},
                   {"data", {{"name", "random_tokens"}, {"max_length", 33}}}})
                 .dump());
  const Ran longer = frugal("train " + folder / "config.json");
  CHECK(longer.status == 2);
  CHECK_MESSAGE(has(longer.err, "expected at least data.max_length and 2 more, 35, got 34"),
                longer.err);
  Json wrong = config_of("roberta");
  const auto refused = [&](const char* key, const Json& value) {
    wrong = config_of("roberta");
    if (value.is_null())
      wrong.erase(key);
    else
      wrong[key] = value;
    write_file(path + "/config.json", wrong.dump());
    CHECK_THROWS_WITH_AS(hub_keys(path), doctest::Contains(key), ConfigError);
  };
  refused("layer_norm_eps", 1e-12);
  refused("layer_norm_eps", nullptr);  // then it is 1e-12
  refused("type_vocab_size", 2);
  refused("pad_token_id", 0);
  refused("position_embedding_type", "relative_key");
  refused("an_unknown_key", 1);
  Json distil = config_of("distilbert");
  distil["sinusoidal_pos_embds"] = true;
  write_file(path + "/config.json", distil.dump());
  CHECK_THROWS_WITH_AS(hub_keys(path), doctest::Contains("sinusoidal_pos_embds"), ConfigError);
}

}  // namespace frugal::apps

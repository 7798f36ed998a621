// Folders of Hugging Face's hub as model.weights.
#include "apps/config/hub_folder.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <set>

#include "apps/config/make_model.h"
#include "data/formats/safetensors.h"
#include "models/state.h"
#include "models/zoo/decoder.h"
#include "ops/dense/copy.h"
#include "tests/apps/run.h"
#include "tests/data/piece_model.h"

namespace frugal::apps {
namespace {

Json tiny(const char* type) {
  return {{"model_type", type},       {"vocab_size", 40},
          {"hidden_size", 16},        {"intermediate_size", 24},
          {"num_hidden_layers", 3},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},     {"torch_dtype", "bfloat16"},
          {"bos_token_id", 1},        {"eos_token_id", {2, 3}}};
}

std::string root(const TempFolder& folder) {
  return std::filesystem::path(folder / "x").parent_path().string();
}

std::string with_config(const TempFolder& folder, const Json& config) {
  write_file(folder / "config.json", config.dump());
  return root(folder);
}

// What the configuration of such a folder makes of model.
ModelConfig model_of(const std::string& folder, Json keys = Json::object()) {
  keys["weights"] = folder;
  return parse_config({{"model", keys}}).model;
}

void check_refused(const TempFolder& folder, const Json& config, const std::string& part) {
  with_config(folder, config);
  CHECK_THROWS_WITH_AS(hub_keys(root(folder)), doctest::Contains(part.c_str()), ConfigError);
  CHECK_THROWS_WITH_AS(hub_keys(root(folder)), doctest::Contains("config.json"), ConfigError);
}

// A folder with random weights, in two shards.
std::string made_folder(const TempFolder& folder, const Json& config, DType dtype) {
  with_config(folder, config);
  const ModelConfig model = model_of(root(folder));
  models::Options options = model.options;
  options["vocab_size"] = *model.vocab_size;
  models::Init init;
  models::NamedTensors state = models::state_dict(*models::make(model.name, options, init));
  models::NamedTensors shards[2];
  Json map = Json::object();
  for (size_t i = 0; i < state.size(); ++i) {
    state[i].second = ops::cast(state[i].second, dtype);
    shards[i % 2].push_back(state[i]);
    map[state[i].first] = fmt::format("model-0000{}-of-00002.safetensors", i % 2 + 1);
  }
  for (size_t i = 0; i < 2; ++i)
    data::write_safetensors(folder / fmt::format("model-0000{}-of-00002.safetensors", i + 1),
                            shards[i], {{"format", "pt"}});
  write_file(folder / "model.safetensors.index.json", Json({{"weight_map", map}}).dump());
  return root(folder);
}

constexpr const char* kShort =
    " --set data.name=random_tokens --set data.max_length=8 --set data.train_samples=32 --set "
    "data.batch_size=4 --set train.steps=2 --set optim.lr=0.01";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("hub: config.json gives the keys of the network, in both versions of its keys") {
  const TempFolder folder;
  Json old = tiny("llama");
  old["head_dim"] = 8;
  old["rope_theta"] = 500000.0;
  old["rope_scaling"] = {{"type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 32}};
  Json now = old;
  now.erase("rope_theta");
  now["rope_parameters"] = now["rope_scaling"];
  now.erase("rope_scaling");
  now["rope_parameters"].erase("type");
  now["rope_parameters"]["rope_type"] = "llama3";
  now["rope_parameters"]["rope_theta"] = 500000.0;
  const Json keys = hub_keys(with_config(folder, old));
  CHECK(keys == hub_keys(with_config(folder, now)));
  const Json expected = Json({{"name", "decoder"},
                              {"family", "llama"},
                              {"layers", 3},
                              {"width", 16},
                              {"heads", 4},
                              {"kv_heads", 2},
                              {"head_size", 8},
                              {"feed_forward", 24},
                              {"vocab_size", 40},
                              {"max_positions", 64},
                              {"norm_eps", 1e-5},
                              {"tied", false},
                              {"activation", "silu"},
                              {"rope_base", 500000.0},
                              {"rope_scaling", "llama3"},
                              {"rope_factor", 8.0},
                              {"rope_first_length", 32.0},
                              {"rope_low", 1.0},
                              {"rope_high", 4.0}});
  for (const auto& [key, value] : expected.items()) {
    const auto& this_key = key;
    CAPTURE(this_key);
    CHECK(keys.at(key) == value);
  }
  // What the configuration says itself counts more.
  const ModelConfig model = model_of(root(folder), {{"rope_factor", 2.0}});
  CHECK(model.name == "decoder");
  CHECK(model.options.at("rope_factor").number() == 2);
  CHECK(model.options.at("rope_high").number() == 4);
  CHECK_THROWS_WITH_AS(model_of(root(folder), {{"name", "gpt2"}}),
                       doctest::Contains("expected decoder"), ConfigError);
}

TEST_CASE("hub: what a family has beside sizes") {
  const TempFolder folder;
  const auto keys = [&](const char* type, const Json& more) {
    Json config = tiny(type);
    if (!more.is_null()) config.update(more);
    return hub_keys(with_config(folder, config));
  };
  const Json mistral = keys("mistral", {{"sliding_window", 5}});
  CHECK(mistral["attention_window"] == 5);
  CHECK(mistral["window_layers"] == Json::array({1, 1, 1}));
  CHECK(keys("mistral", {{"sliding_window", nullptr}})["attention_window"] == 0);
  CHECK(keys("mistral", {})["attention_window"] == 4096);
  CHECK(keys("qwen2", {{"sliding_window", 5}})["attention_window"] == 0);
  const Json qwen = keys(
      "qwen2", {{"use_sliding_window", true}, {"sliding_window", 5}, {"max_window_layers", 1}});
  CHECK(qwen["attention_window"] == 5);
  CHECK(qwen["window_layers"] == Json::array({0, 1, 1}));
  CHECK(keys("qwen3", {})["head_size"] == 128);
  const Json smol = keys("smollm3", {{"no_rope_layer_interval", 2}});
  CHECK(smol["rope_layers"] == Json::array({1, 0, 1}));
  CHECK(smol["tied"] == true);
  CHECK(smol["rope_base"] == 2e6);
  const Json second = keys("gemma2", {{"query_pre_attn_scalar", 64}, {"head_dim", 32}});
  CHECK(second["attention_cap"] == 50.0);
  CHECK(second["logit_cap"] == 30.0);
  CHECK(second["attention_scale"] == 0.125);
  CHECK(second["window_layers"] == Json::array({1, 0, 1}));
  CHECK(second["activation"] == "gelu_tanh");
  CHECK(keys("gemma2", {{"final_logit_softcapping", nullptr}})["logit_cap"] == 0.0);
  const Json third =
      keys("gemma3_text",
           {{"layer_types", {"sliding_attention", "sliding_attention", "full_attention"}},
            {"rope_parameters",
             {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}}}});
  CHECK(third["window_layers"] == Json::array({1, 1, 0}));
  CHECK(third["rope_local_base"] == 1e4);
  CHECK(third["rope_scaling"] == "linear");
  CHECK(third["rope_base"] == 1e6);
  CHECK(third["attention_cap"] == 0.0);
  const Json yarn = keys("llama", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}});
  CHECK(yarn["rope_gain"].get<double>() == doctest::Approx(0.1 * std::log(4.0) + 1));
  CHECK(yarn["rope_first_length"] == 64.0);
  const Json dynamic =
      keys("llama", {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.5}}}});
  CHECK(dynamic["rope_first_length"] == 64.0);
  CHECK(dynamic["max_positions"] == 160);
}

TEST_CASE("hub: a key that may change results and is not understood is an error that names it") {
  const TempFolder folder;
  const auto with = [](const char* key, const Json& value, const char* type = "llama") {
    Json config = tiny(type);
    config[key] = value;
    return config;
  };
  check_refused(folder, with("model_type", "mamba"), "model_type: expected one of gpt2, bert");
  check_refused(folder, with("expert_count", 8), "expert_count: expected no such key");
  check_refused(folder, with("sliding_window", 8), "sliding_window: expected no such key");
  check_refused(folder, with("quantization_config", Json::object()), "quantization_config");
  check_refused(folder, with("partial_rotary_factor", 0.5), "partial_rotary_factor: expected 1.0");
  check_refused(folder, with("hidden_act", "relu2"), "hidden_act: expected silu");
  check_refused(folder, with("num_hidden_layers", "3"), "num_hidden_layers: expected a whole");
  check_refused(folder, with("num_hidden_layers", 4097),
                "num_hidden_layers: expected at most 4096 layers, got 4097");
  check_refused(folder, with("rope_scaling", {{"rope_type", "longrope"}}),
                "rope_scaling.rope_type: expected default, linear");
  check_refused(folder, with("rope_scaling", {{"rope_type", "llama3"}, {"factor", 2}}),
                "rope_scaling.original_max_position_embeddings: expected a number");
  check_refused(folder, with("rope_scaling", {{"rope_type", "linear"}, {"factor", 2}, {"x", 1}}),
                "rope_scaling.x: expected no such key");
  check_refused(folder, with("layer_types", Json::array({"full_attention"}), "qwen3"),
                "layer_types: expected an entry for each of 3");
  check_refused(folder, with("use_bidirectional_attention", true, "gemma2"),
                "use_bidirectional_attention: expected false");
  Json less = tiny("llama");
  less.erase("hidden_size");
  check_refused(folder, less, "hidden_size: expected a whole number of 0 or more, got none");
  // null is no value
  CHECK_NOTHROW(hub_keys(with_config(folder, with("expert_count", nullptr))));
}

TEST_CASE("hub: GPT-2 and BERT are the zoo's") {
  const TempFolder folder;
  const Json gpt2 = {{"model_type", "gpt2"},
                     {"n_layer", 2},
                     {"n_embd", 16},
                     {"n_head", 2},
                     {"n_positions", 32},
                     {"vocab_size", 40},
                     {"n_ctx", 32},
                     {"activation_function", "gelu_new"},
                     {"layer_norm_epsilon", 1e-5},
                     {"summary_type", "cls_index"}};
  const ModelConfig first = model_of(with_config(folder, gpt2));
  CHECK(first.name == "gpt2");
  CHECK(first.integer("layers") == 2);
  CHECK(first.integer("max_positions") == 32);
  CHECK(first.vocab_size == 40);
  Json other = gpt2;
  other["scale_attn_by_inverse_layer_idx"] = true;
  check_refused(folder, other, "scale_attn_by_inverse_layer_idx: expected false");
  const Json bert = {
      {"model_type", "bert"},     {"num_hidden_layers", 2},  {"hidden_size", 16},
      {"num_attention_heads", 2}, {"intermediate_size", 32}, {"max_position_embeddings", 32},
      {"vocab_size", 40},         {"type_vocab_size", 2},    {"layer_norm_eps", 1e-12},
      {"hidden_act", "gelu"},     {"pad_token_id", 0},       {"hidden_dropout_prob", 0.2}};
  const ModelConfig second = model_of(with_config(folder, bert));
  CHECK(second.name == "bert_base");
  CHECK(second.integer("feed_forward") == 32);
  CHECK(second.options.at("dropout").number() == 0.2);
}

TEST_CASE("hub: a folder is looked at, trained, exported and read again") {
  const TempFolder folder, work;
  Json config = tiny("gemma3_text");
  config["head_dim"] = 8;
  config["sliding_window"] = 4;
  config["sliding_window_pattern"] = 2;
  const std::string path = made_folder(folder, config, DType::bf16);
  write_file(folder / "tokenizer.json", "{}");
  const Ran seen = frugal("inspect " + path);
  REQUIRE_MESSAGE(seen.status == 0, seen.err);
  CHECK(contains(seen.out, "\"gemma3_text\""));
  CHECK(contains(seen.out, "all parameters are loaded"));
  const Json said = Json::parse(frugal("inspect --json " + path).out);
  CHECK(said["fits"] == true);
  CHECK(said["dtypes"]["bf16"] == said["tensors"]);

  write_file(work / "config.json", Json({{"model", {{"weights", path}}}}).dump());
  const std::string run = work / "run";
  const Ran trained = frugal("train " + work / "config.json" + kShort + " --out " + run);
  REQUIRE_MESSAGE(trained.status == 0, trained.err);
  const std::string out = work / "out";
  const Ran exported = frugal("export " + run + " --weights last --format hf --output " + out);
  REQUIRE_MESSAGE(exported.status == 0, exported.err);
  CHECK(std::filesystem::is_regular_file(out + "/tokenizer.json"));
  const Json written = Json::parse(read_file(out + "/config.json"));
  CHECK(written["eos_token_id"] == Json::array({2, 3}));
  CHECK(written["architectures"] == Json::array({"Gemma3ForCausalLM"}));
  CHECK(hub_keys(out)["window_layers"] == hub_keys(path)["window_layers"]);

  // They are the run's weights, bit for bit, in a network of the same outputs.
  const auto last = data::SafetensorsFile::open(run + "/checkpoint/last.safetensors");
  const auto again = data::SafetensorsFile::open(out + "/model.safetensors");
  for (const std::string& name : again.names())
    CHECK(again.read(name).to_vector() == last.read(name).to_vector());
  const auto loss = [&](const std::string& arguments) {
    const Ran ran = frugal("eval " + arguments + " --json");
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(ran.out)["loss"].get<double>();
  };
  write_file(work / "again.json", Json({{"model", {{"weights", out}}}}).dump());
  CHECK(loss(run + " --weights last") ==
        loss(work / "again.json" + kShort + " --checkpoint " + out + "/model.safetensors"));
  // The run does not need the folder any more.
  std::filesystem::remove_all(path);
  CHECK(loss(run + " --weights last") > 0);
}

TEST_CASE("hub: random weights of a configuration are written with the tokenizer of its data") {
  const TempFolder work;
  const std::string out = work / "model", configs = FRUGAL_CONFIGS;
  const std::string data = " --set data.dir=" + configs + "/lora_sft";
  const Ran exported =
      frugal("export " + configs + "/lora_sft.json --random --format hf --out " + out + data);
  REQUIRE_MESSAGE(exported.status == 0, exported.err);
  for (const char* const name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    CHECK(read_file(out + "/" + name) == read_file(configs + "/lora_sft/" + name));
  // So it is a whole folder of a model.
  const std::string talk = R"({"prompt": "Which key?", "completion": "adapter.rank"})"
                           "\n";
  write_file(work / "talks.jsonl", talk + talk);
  const Ran trained = frugal(
      "train " + configs + "/lora_sft.json --quiet --set model.weights=" + out +
      " --set data.dir=" + work / "talks.jsonl --set data.validation=0.5 --set train.steps=1" +
      " --set data.batch_size=1 --out " + work / "run");
  CHECK_MESSAGE(trained.status == 0, trained.err);
}

TEST_CASE("hub: weights that do not fit are errors that name file and tensor") {
  const TempFolder folder;
  const std::string path = made_folder(folder, tiny("llama"), DType::f32);
  const auto refused = [&](const std::string& part) {
    const Ran ran = frugal("inspect " + path);
    CHECK(ran.status == 1);
    CHECK_MESSAGE(contains(ran.err, part), ran.err);
  };
  Json config = tiny("llama");
  config["intermediate_size"] = 32;
  with_config(folder, config);
  refused("model.layers.0.mlp.gate_proj.weight: expected [32, 16], got [24, 16]");
  refused("model.safetensors.index.json");
  config = tiny("qwen2");
  with_config(folder, config);
  refused("model.layers.0.self_attn.q_proj.bias");
  with_config(folder, tiny("llama"));
  std::filesystem::remove(folder / "model-00002-of-00002.safetensors");
  refused("model-00002-of-00002.safetensors");
  const TempFolder empty;
  const Ran ran = frugal("inspect " + root(empty));
  CHECK(ran.status == 2);
  CHECK(contains(ran.err, "expected a safetensors file, or a folder"));
}

TEST_CASE("hub: a value of config.json that no key takes is named with the file") {
  const TempFolder folder;
  write_file(folder / "run.json", R"({"data": {"name": "random_tokens"}})");
  const auto train = [&](const Json& config, const std::string& more) {
    return frugal(fmt::format("train {} --set model.weights={}{}", folder / "run.json",
                              with_config(folder, config), more));
  };
  for (const auto& [key, ours] : {std::pair{"num_attention_heads", "model.heads"},
                                  {"num_hidden_layers", "model.layers"},
                                  {"vocab_size", "model.vocab_size"}}) {
    Json config = tiny("llama");
    config[key] = 0;
    const Ran ran = train(config, "");
    CHECK(ran.status == 2);
    CHECK(has(ran.err, fmt::format("{}: expected", ours)));
    CHECK(has(ran.err, "config.json"));
  }
  // Also where a value is wrong beside others.
  Json odd = tiny("llama");
  odd["num_attention_heads"] = 5;
  const Ran ran = train(odd, "");
  CHECK(ran.status == 2);
  CHECK(has(ran.err, "model.heads: expected"));
  CHECK(has(ran.err, "config.json\" says so)"));
  const Ran own = train(tiny("llama"), " --set model.heads=0");
  CHECK(has(own.err, "model.heads: expected"));
  CHECK(lacks(own.err, "config.json"));
}

TEST_CASE("hub: a folder in the place of a run's says what it is") {
  const TempFolder folder;
  const std::string path = made_folder(folder, tiny("llama"), DType::f32);
  for (const char* command : {"generate", "eval", "export --format onnx"}) {
    CAPTURE(command);
    const Ran ran = frugal(fmt::format("{} {}", command, path));
    CHECK(ran.status == 2);
    CHECK(has(ran.err, "expected the folder of a run"));
    CHECK(has(ran.err, "whose config.json is that of a model"));
  }
}

TEST_CASE("hub: a folder without a config.json says so, unless the network is named") {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "model");
  write_file(folder / "run.json", R"({"data": {"name": "random_tokens"}})");
  const std::string command =
      fmt::format("train {} --set model.weights={}", folder / "run.json", folder / "model");
  const Ran ran = frugal(command);
  CHECK(ran.status == 2);
  CHECK(has(ran.err, "model.weights: expected a folder whose config.json has a model_type"));
  CHECK(has(ran.err, folder / "model"));
  CHECK(lacks(frugal(command + " --set model.name=bert_tiny").err, "config.json"));
  write_file(folder / "model/adapter_config.json", R"({"peft_type": "LORA"})");
  const Ran adapter = frugal(command);
  CHECK(adapter.status == 2);
  CHECK(has(adapter.err, "model.adapter names it"));
}

TEST_CASE("hub: a GPT-2 is written as published, with its run's tokenizer, and read back equal") {
  const TempFolder folder;
  const std::string data = folder / "data/", out = folder / "out", run = folder / "run";
  std::filesystem::create_directory(data);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "train.jsonl", "test.jsonl"})
    std::filesystem::copy(std::string(FRUGAL_CONFIGS) + "/lora_sft/" + name, data);
  const auto config = [&](const std::string& model, const std::string& vocabulary) {
    return R"({"model": {)" + model + R"(}, "data": {"name": "conversations", "dir": ")" + data +
           "train.jsonl" + R"(", "vocabulary": ")" + vocabulary +
           R"(", "batch_size": 4, "max_length": 32, "truncate": true},
           "optim": {"name": "adamw", "lr": 0.01}, "train": {"steps": 3}})";
  };
  write_file(folder / "c.json",
             config(R"("name": "gpt2", "layers": 2, "width": 16, "heads": 2, "feed_forward": 40,
                       "max_positions": 48)",
                    data));
  const auto ran = [](const std::string& arguments) {
    Ran done = frugal(arguments);
    REQUIRE_MESSAGE(done.status == 0, done.err);
    return done;
  };
  ran("train " + folder / "c.json" + " --out " + run);
  ran("export " + run + " --format hf --weights last --output " + out);
  const Json json = Json::parse(read_file(out + "/config.json"));
  const int64_t vocabulary = json.at("vocab_size").get<int64_t>();
  const Json expected = {{"architectures", {"GPT2LMHeadModel"}},
                         {"model_type", "gpt2"},
                         {"vocab_size", vocabulary},
                         {"n_positions", 48},
                         {"n_ctx", 48},
                         {"n_embd", 16},
                         {"n_layer", 2},
                         {"n_head", 2},
                         {"n_inner", 40},
                         {"activation_function", "gelu_new"},
                         {"resid_pdrop", 0.1},
                         {"embd_pdrop", 0.1},
                         {"attn_pdrop", 0.1},
                         {"layer_norm_epsilon", 1e-5},
                         {"initializer_range", 0.02},
                         {"scale_attn_weights", true},
                         {"tie_word_embeddings", true},
                         {"torch_dtype", "float32"},
                         {"use_cache", true},
                         {"bos_token_id", nullptr},
                         {"eos_token_id", nullptr}};
  CHECK(json == expected);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    CHECK(read_file(out + "/" + name) == read_file(data + name));
  // Conv1D has [in, out], and the head is the embedding.
  std::map<std::string, Shape> shapes;
  for (const auto& [name, tensor] :
       data::SafetensorsFile::open(out + "/model.safetensors").read_all())
    shapes[name] = tensor.shape();
  CHECK(shapes.size() == 2 + 2 * 12 + 2);
  CHECK(shapes.at("transformer.wte.weight") == Shape{vocabulary, 16});
  CHECK(shapes.at("transformer.wpe.weight") == Shape{48, 16});
  CHECK(shapes.at("transformer.h.1.attn.c_attn.weight") == Shape{16, 48});
  CHECK(shapes.at("transformer.h.1.attn.c_proj.weight") == Shape{16, 16});
  CHECK(shapes.at("transformer.h.1.mlp.c_fc.weight") == Shape{16, 40});
  CHECK(shapes.at("transformer.h.1.mlp.c_proj.weight") == Shape{40, 16});
  CHECK(shapes.at("transformer.ln_f.bias") == Shape{16});
  // The folder alone is the network and its tokenizer.
  write_file(folder / "again.json", config(R"("weights": ")" + out + "\"", out));
  const auto loss = [&](const std::string& arguments) {
    return Json::parse(ran("eval " + arguments + " --json").out).at("loss").get<double>();
  };
  CHECK(loss(folder / "again.json --checkpoint " + out) == loss(run + " --weights last"));
  ran("export " + folder / "again.json --format hf --checkpoint " + out + " --output " +
      folder / "twice");
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.json"})
    CHECK(read_file(folder / (std::string("twice/") + name)) == read_file(out + "/" + name));
}

TEST_CASE("hub: a network that config.json cannot describe is not exported") {
  ModelConfig model;
  model.name = "decoder";
  model.vocab_size = 40;
  model.options = {{"layers", 2}, {"width", 16}, {"heads", 2}};
  CHECK(hub_config(model, "float32", "")["num_key_value_heads"] == 2);
  // config.json has a gain for yarn alone.
  for (const auto& [scaling, exported] : std::initializer_list<std::pair<const char*, bool>>{
           {"none", false}, {"linear", false}, {"yarn", true}}) {
    CAPTURE(scaling);
    ModelConfig louder = model;
    louder.options["rope_gain"] = 3.0;
    louder.options["rope_scaling"] = std::string(scaling);
    if (exported)
      CHECK(hub_config(louder, "float32", "")["rope_scaling"]["attention_factor"] == 3);
    else
      CHECK_THROWS_WITH_AS(hub_config(louder, "float32", ""), doctest::Contains("rope_gain"),
                           ConfigError);
  }
  model.options["attention_window"] = 4;  // no Llama has one
  CHECK_THROWS_WITH_AS(hub_config(model, "float32", ""),
                       doctest::Contains("the config.json of llama"), ConfigError);
  model.options["family"] = "mistral";
  CHECK(hub_config(model, "float32", "")["sliding_window"] == 4);
  model.name = "encoder";
  CHECK_THROWS_WITH_AS(hub_config(model, "float32", ""), doctest::Contains("expected decoder"),
                       ConfigError);
}

TEST_CASE("hub: a folder whose tokenizer is a tokenizer.model, from its files to a merged folder") {
  const TempFolder folder;
  const std::string base = made_folder(folder, tiny("llama"), DType::f32);
  std::string pieces = frugal_test::small_piece_model();
  for (char c = 'c'; c <= 'z'; ++c) pieces += frugal_test::wire_piece(std::string(1, c), -9, 1);
  for (int i = 32; i < 40; ++i) pieces += frugal_test::wire_piece(fmt::format("<{}>", i), 0, 3);
  write_file(folder / "tokenizer.model", pieces);
  write_file(folder / "tokenizer_config.json",
             R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"})");
  std::string lines;
  for (int i = 0; i < 12; ++i)
    lines += R"({"prompt": "a cab", "completion": "ab abba"})"
             "\n";
  write_file(folder / "x.jsonl", lines);
  write_file(folder / "adapt.json", "{}");
  const TempFolder runs;
  const Ran ran = frugal(fmt::format(
      "train {} --set model.weights={} --set adapter.type=lora --set data.name=conversations --set "
      "data.dir={} --set data.max_length=24 --set data.batch_size=4 --set train.epochs=2 --out {}",
      folder / "adapt.json", base, folder / "x.jsonl", runs / "run"));
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  for (const char* name : {"tokenizer.model", "tokenizer_config.json"})
    CHECK(read_file(runs / "run/" + name) == read_file(folder / name));
  const Ran text =
      frugal(fmt::format("generate {} --prompt 'a cab' --tokens 4 --temperature 0", runs / "run"));
  REQUIRE_MESSAGE(text.status == 0, text.err);
  CHECK(text.out.starts_with("a cab"));
  const Ran merged =
      frugal(fmt::format("export {} --format merged --output {}", runs / "run", runs / "merged"));
  REQUIRE_MESSAGE(merged.status == 0, merged.err);
  CHECK(read_file(runs / "merged/tokenizer.model") == pieces);
  const Ran inspected = frugal(fmt::format("inspect {}", runs / "merged"));
  CHECK_MESSAGE(inspected.status == 0, inspected.err);
}

}  // namespace frugal::apps

// Lists of layers in configurations: model.modules.
#include <doctest/doctest.h>

#include "apps/cli/training_run.h"
#include "apps/config/make_model.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "models/sequential_parts.h"
#include "tests/apps/run.h"
#include "train/planning/meta_step.h"

namespace frugal::apps {
namespace {

// A network for random images of 8 x 8 x 3 and 10 classes, or for random texts.
Config read(const std::string& modules, const std::string& data = R"("random", "shape": [8, 8, 3])",
            const std::string& more = "") {
  Config config =
      parse_config(Json::parse(R"({"model": {"name": "sequential", "modules": )" + modules +
                               R"(}, "data": {"name": )" + data + "}" + more + "}"));
  resolve(config);
  return config;
}

std::string modules_complaint(const std::string& modules,
                              const std::string& data = R"("random", "shape": [8, 8, 3])") {
  try {
    read(modules, data);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

constexpr const char* kTexts = R"("random_tokens", "max_length": 12)";

std::vector<std::string> parameters(const Config& config) {
  std::vector<std::string> all;
  const auto model = make_model(config, batch_spec(config), kMeta);
  for (const auto& p : model->parameters())
    all.push_back(p.name + " " + p.parameter->shape().str());
  return all;
}

}  // namespace

TEST_CASE("what is wrong with a list of layers names the entry") {
  const std::pair<const char*, const char*> rows[] = {
      {"[]", "model.modules: expected the layers of the network"},
      {"3", "model.modules: expected a list"},
      {"[3]", "model.modules[0]: expected an object or a text, got 3"},
      {R"(["relu", {"a": 1, "b": 2}])", "model.modules[1]: expected one layer"},
      {R"(["relu", {}])", "model.modules[1]: expected one layer"},
      {R"([{"conv": 3}])", "model.modules[0]: unknown layer \"conv\"; the nearest one is 'conv2d'"},
      {R"([{"conv2d": {"out": 3}}])",
       "[0].conv2d.out: unknown key; the nearest valid key is 'out_"},
      {R"([{"conv2d": {"out_channels": 3, "kernel": 3}}])", "nearest valid key is 'kernel_size'"},
      {R"([{"conv2d": 3}])", "model.modules[0].conv2d.kernel_size: expected an integer in [1"},
      {R"(["conv2d"])", "model.modules[0].conv2d.out_channels: expected an integer"},
      {R"([{"conv2d": {"out_channels": 3, "kernel_size": 9}}])",
       "model.modules[0].conv2d.kernel_size: expected windows of at most 8, the height of its "
       "input, "
       "an image [8, 8, 3]; got 9"},
      {R"([{"conv2d": {"out_channels": 3, "kernel_size": 3, "groups": 2}}])",
       "[0].conv2d.groups: expected a divisor of 3 and 3"},
      {R"([{"conv2d": {"out_channels": 3, "kernel_size": 2, "padding": "same"}}])",
       "[0].conv2d.padding: expected numbers"},
      {R"([{"conv2d": {"out_channels": 3, "kernel_size": 3, "in_channels": 4}}])",
       "[0].conv2d.in_channels: expected 3, of its input"},
      {R"([{"conv2d": {"out_channels": 1048576, "kernel_size": 8192, "padding": 8192}}])",
       "[0].conv2d: expected at most 17179869184 weights"},
      {R"([{"max_pool2d": {"kernel_size": 2, "padding": 2}}])", "expected at most half of kernel"},
      {R"([{"relu": {"inplace": true}}])", "[0].relu.inplace: unknown key; relu has none"},
      {R"([{"relu": 3}])", "[0].relu: expected no value, got 3"},
      {R"([{"dropout": 1}])", "model.modules[0].dropout: expected a number in [0.0, 1.0), got 1"},
      {R"([{"dropout": {"p": 1}}])", "model.modules[0].dropout.p: expected a number"},
      {R"([{"linear": 10}])",
       "[0].linear: expected a row [features] or tokens [T, channels] as its "
       "input, got an image [8, 8, 3]; a flatten or mean_pool before it"},
      {R"(["flatten", {"linear": 9}])",
       "[1].linear: expected a row [10] from the last layer, one number for each class; got a row "
       "[9]"},
      {R"(["flatten", {"linear": 10}, "softmax"])", "[2]: unknown layer softmax: the loss takes"},
      {R"([{"attention": 2}])", "tokens or patch_embedding makes tokens of that"},
      {R"(["tokens", {"attention": 2}])", "[1].attention: expected a divisor of 3"},
      {R"([{"group_norm": 2}])", "[0].group_norm: expected a divisor of 3"},
      {R"([{"patch_embedding": {"embed_dim": 8, "patch_size": 3}}])",
       "[0].patch_embedding.patch_size: expected divisors of the height and width"},
      {R"([{"residual": [{"conv2d": {"out_channels": 4, "kernel_size": 1}}]}])",
       "[0].residual: expected an image [8, 8, 3], its input, to add it to; got an image [8, 8, "
       "4]"},
      {R"([{"residual": {"modules": ["relu"], "shortcut": ["flatten"]}}])",
       "[0].residual.modules: expected a row [192], which its shortcut gives, to add it to"},
      {R"([{"conv1d": {"out_channels": 4, "kernel_size": 3}}])", "[0].conv1d: expected"},
      {R"(["tokens", {"conv1d": {"out_channels": 4, "kernel_size": 65}}])",
       "[1].conv1d.kernel_size: expected windows of at most 64, the length of its input"},
      {R"(["tokens", {"conv1d": {"out_channels": 3, "kernel_size": 1, "groups": 2}}])",
       "[1].conv1d.groups: expected a divisor of 3 and 3"},
      {R"(["tokens", {"max_pool1d": {"kernel_size": 2, "padding": 2}}])",
       "[1].max_pool1d.padding: expected at most half of kernel_size 2"},
      {R"(["flatten", "dropout2d"])", "[1].dropout2d: expected"},
      {R"([{"residual": []}])", "[0].residual: expected a list of 1 to 1024"},
      {R"([{"residual": ["relu", {"droput": 1}]}])", "model.modules[0].residual[1]: unknown layer"},
      {R"([{"repeat": {"times": 2, "modules": [{"sequential": [{"linear": "x"}]}]}}])",
       "model.modules[0].repeat.modules[0].sequential[0].linear: expected an integer"},
      {R"([{"repeat": {"times": 1024, "modules": ["relu", "relu"]}}])",
       "[0].repeat: expected at most 1024 layers"},
      {R"([{"embedding": 8}])", "[0].embedding: expected to be the first layer of a network for"},
  };
  for (const auto& [modules, what] : rows) {
    const std::string text = modules_complaint(modules);
    CHECK_MESSAGE(text.find(what) != std::string::npos, modules, ": ", text);
  }
  std::string deep = "\"relu\"";
  for (int i = 0; i < 40; ++i) deep = fmt::format(R"({{"residual": [{}]}})", deep);
  CHECK(modules_complaint(fmt::format("[{}]", deep)).find("lists within lists") !=
        std::string::npos);
}

TEST_CASE("what is wrong with a list of layers for texts") {
  const std::pair<const char*, const char*> rows[] = {
      {R"(["flatten"])", "[0].flatten: expected an embedding as the first layer"},
      {R"([{"embedding": 8}, "flatten", {"linear": 2}])", "tokens [T, 8], whose T changes"},
      {R"([{"embedding": 8}, "transpose", "mean_pool", {"linear": 2}])",
       "[1].transpose: expected a"},
      {R"([{"embedding": 8}, "class_token", "mean_pool", {"linear": 2}])", "first_token takes"},
      {R"([{"embedding": {"embedding_dim": 8, "num_embeddings": 9}}, "mean_pool", {"linear": 2}])",
       "[0].embedding.num_embeddings: expected at least 30522"},
      {R"([{"embedding": {"embedding_dim": 8, "padding_idx": 99999}}, "mean_pool"])",
       "padding_idx"},
      {R"([{"embedding": 8}, {"position_embedding": 9}, "mean_pool"])",
       "expected at least 12, the"},
      {R"([{"embedding": 8}, {"attention": 2}, {"linear": null}])",
       "[1].attention.is_causal: expected true in a network that guesses each next token"},
      {R"([{"embedding": 8}, "relu"])", "expected tokens [T, 30522] from the last layer"},
      {R"([{"embedding": 30522}, "relu"])", "[1].relu: expected a linear as the last layer"},
      {R"([{"embedding": 8}, {"avg_pool1d": 2}, "mean_pool", "linear"])",
       "[1].avg_pool1d: expected a fixed number of tokens"},
      {R"([{"embedding": 8}, {"group_norm": 4}, "mean_pool", "linear"])",
       "[1].group_norm: expected a fixed number of tokens, or it would see padding"},
      {R"([{"embedding": 8}, {"residual": ["batch_norm"]}, "mean_pool", "linear"])",
       "[1].residual[0].batch_norm: expected a fixed number of tokens, or it would see padding"},
      {R"([{"embedding": 8}, {"group_norm": 4}, "linear"])",
       "[1].group_norm: expected a norm of each token in a network that guesses each next token"},
      {R"([{"embedding": 8}, "batch_norm", "linear"])",
       "[1].batch_norm: expected a norm of each token in a network that guesses each next token"},
  };
  for (const auto& [modules, what] : rows) {
    const std::string text = modules_complaint(modules, kTexts);
    CHECK_MESSAGE(text.find(what) != std::string::npos, modules, ": ", text);
  }
  // A row is one text: behind a pool, norms take what they take of other rows.
  for (const char* norm : {R"("batch_norm")", R"({"group_norm": 4})"})
    CHECK(modules_complaint(fmt::format(R"([{{"embedding": 8}}, "mean_pool", {}, "linear"])", norm),
                            kTexts) == "");
  const std::string graph = modules_complaint(
      R"(["flatten"])", R"("random_graph", "nodes": 20, "edges": 30, "features": 4)");
  CHECK(graph.find("model.name: expected a network for the data") != std::string::npos);
}

TEST_CASE("parameters are named by position, also within residuals, and a repeat is its copies") {
  const Config config = read(R"([
    {"conv2d": {"out_channels": 4, "kernel_size": [1, 3], "padding": "same", "bias": false}},
    {"repeat": {"times": 2, "modules": [
      {"residual": {"modules": [{"group_norm": 2}, "silu"], "shortcut": ["batch_norm"]}}, "relu"]}},
    {"sequential": [{"avg_pool2d": 2}, {"adaptive_avg_pool2d": 2}]},
    "flatten", {"linear": {}}])");
  CHECK(parameters(config) ==
        std::vector<std::string>{"0.weight [4, 1, 3, 3]", "1.0.weight [4]", "1.0.bias [4]",
                                 "1.shortcut.0.weight [4]", "1.shortcut.0.bias [4]",
                                 "3.0.weight [4]", "3.0.bias [4]", "3.shortcut.0.weight [4]",
                                 "3.shortcut.0.bias [4]", "7.weight [10, 16]", "7.bias [10]"});
  CHECK(to_json(parse_config(to_json(config)))["model"] == to_json(config)["model"]);
}

TEST_CASE("windows over tokens, and layers of whole channels") {
  const Config config = read(R"([
    {"dropout2d": 0.1}, {"adaptive_max_pool2d": [4, 6]}, "tokens",
    {"conv1d": {"out_channels": 6, "kernel_size": 3, "stride": 2, "padding": 1}},
    {"max_pool1d": 2}, {"avg_pool1d": {"kernel_size": 3, "stride": 1, "padding": 1}},
    "flatten", {"linear": {}}])");
  CHECK(parameters(config) == std::vector<std::string>{"3.weight [6, 3, 3]", "3.bias [6]",
                                                       "7.weight [10, 36]", "7.bias [10]"});
}

TEST_CASE("a network of tokens reads texts, as a whole or up to each token") {
  const Config whole = read(R"([{"embedding": 8}, "position_embedding", {"residual": [
      "layer_norm", {"attention": {"num_heads": 2, "dropout": 0.1}}]}, "mean_pool", "linear"])",
                            kTexts);
  CHECK(family_of(whole.model) == Family::encoder);
  CHECK(parameters(whole).back() == "4.bias [2]");
  const Config each = read(R"([{"embedding": 8}, {"residual": [
      {"attention": {"num_heads": 2, "is_causal": true}}]}, "linear"])",
                           kTexts, R"(, "compression": {"bits": 2})");
  CHECK(family_of(each.model) == Family::decoder);
  CHECK(parameters(each).back() == "2.bias [30522]");
  CHECK(std::dynamic_pointer_cast<models::LanguageModel>(
            make_model(each, batch_spec(each), kMeta)) != nullptr);
}

TEST_CASE("residuals and what ends in a pool are blocks, and a relu behind one is in it") {
  const auto blocks = [](const char* modules) {
    const Config config = read(modules);
    return MetaStep(meta_run(config), 2).blocks();
  };
  CHECK(blocks(R"([{"max_pool2d": 2}, "relu", {"max_pool2d": 2}, "flatten", {"linear": 10}])") ==
        2);
  CHECK(blocks(R"([{"max_pool2d": 2}, {"residual": ["relu"]}, "relu", {"sequential": ["relu"]},
                   "flatten", {"linear": 10}])") == 2);
  CHECK(blocks(R"(["flatten", {"linear": 10}])") == 0);
  CHECK_FALSE(network_reads(read(R"(["flatten", "linear"])").model, "checkpointing"));
  CHECK(network_reads(read(R"([{"max_pool2d": 2}, "flatten", "linear"])").model, "checkpointing"));
}

TEST_CASE("--set reaches into the list, by number, in both spellings") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({"model": {"name": "sequential", "modules": [
      "flatten", {"dropout": 0.5}, "gelu", {"residual": [{"linear": 192}]}, {"linear": {}}]},
      "data": {"name": "random", "shape": [8, 8, 3]}})");
  const auto modules = [&](const std::vector<std::string>& sets) {
    return Json(to_json(load_config(folder / "c.json", sets))["model"]["modules"]);
  };
  const Json all =
      modules({"model.modules.1.dropout.p=0.2", "model.modules[2].gelu.approximate=tanh",
               "model.modules[3].residual[0].linear.bias=false", "model.modules.4=\"relu\""});
  CHECK(all[1] == Json::parse(R"({"dropout": {"p": 0.2}})"));
  CHECK(all[2] == Json::parse(R"({"gelu": {"approximate": "tanh"}})"));
  CHECK(all[3] ==
        Json::parse(R"({"residual": [{"linear": {"out_features": 192, "bias": false}}]})"));
  CHECK(all[4] == "relu");
  for (const char* wrong : {"model.modules.5.relu=1", "model.modules.x=1", "model.modules.-1=1",
                            "model.modules[99999999999999999999]=1"})
    CHECK_THROWS_WITH_AS(modules({wrong}), doctest::Contains("one of 5 entries"), ConfigError);
  write_file(folder / "c.json", R"({"model": {"modules": ["flatten"]}})");
  CHECK_THROWS_WITH_AS(modules({}), doctest::Contains("it is read by sequential"), ConfigError);
}

TEST_CASE("the example networks are read, and have as many parameters as they should") {
  const std::pair<const char*, int64_t> rows[] = {{"cifar10_lenet", 62006},
                                                  {"cifar10_vgg_small", 160234},
                                                  {"cifar10_mixer", 306826},
                                                  {"cifar10_vit_small", 546186}};
  for (const auto& [name, count] : rows) {
    Config config = load_config(fmt::format("{}/{}.json", FRUGAL_CONFIGS, name),
                                {"data.name=random", "data.crop_padding=0", "data.flip=false"});
    resolve(config);
    int64_t numbers = 0;
    const auto model = make_model(config, batch_spec(config), kMeta);
    for (const auto& p : model->parameters()) numbers += p.parameter->value().numel();
    CHECK_MESSAGE(numbers == count, name);
  }
}

TEST_CASE("a run of a list of layers resumes to the same bits, under a plan and with checkpoints") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({"model": {"name": "sequential", "modules": [
      {"conv2d": {"out_channels": 8, "kernel_size": 3, "padding": 1}}, "batch_norm", "relu",
      {"residual": [{"conv2d": {"out_channels": 8, "kernel_size": 3, "padding": 1}}, "batch_norm"]},
      "relu", "tokens", {"residual": ["layer_norm", {"attention": 2}, {"dropout": 0.1}]},
      "mean_pool", "linear"]},
      "data": {"name": "random", "shape": [8, 8, 3], "batch_size": 16, "train_samples": 64,
               "test_samples": 16},
      "optim": {"lr": 0.01}, "compression": {"bits": 2.5, "advanced": {"min_elements": 64}},
      "train": {"steps": 6, "checkpoint_interval": 2, "checkpointing": true}, "threads": 1})");
  const auto train = [&](const std::string& out, bool resume, int64_t stop) {
    Config config = load_config(folder / "c.json");
    resolve(config);
    TrainOptions options;
    options.out = folder / out;
    options.resume = resume;
    options.quiet = true;
    options.saved = [stop](int64_t step) {
      if (step == stop) throw std::runtime_error("stop");
    };
    try {
      TrainingRun(config, options).run();
    } catch (const std::runtime_error& e) {
      CHECK(std::string(e.what()) == "stop");
    }
    return read_file(folder / out + "/checkpoint/last.safetensors");
  };
  const std::string whole = train("a", false, -1);
  CHECK(train("b", false, 4) != whole);
  CHECK(train("b", true, -1) == whole);
  const std::string config = folder / "c.json";
  const std::string plan =
      "--set train.checkpointing=false --set compression.bits=4 --set "
      "compression.memory_budget='\"1/4 activations\"'";
  const Ran trained = frugal("train " + config + " " + plan + " --json");
  CHECK_MESSAGE(trained.status == 0, trained.err);
  const Ran planned = frugal("plan " + config + " " + plan);
  CHECK_MESSAGE(planned.status == 0, planned.err);
  CHECK(planned.out.find("sequential, ") != std::string::npos);
  const Ran shown = frugal("train " + config + " --print-config");
  CHECK(shown.out.find("\"kernel_size\": 3") != std::string::npos);
}

TEST_CASE("a list of layers for texts trains, as a whole and up to each token") {
  const TempFolder folder;
  const char* const ends[] = {R"("mean_pool", "linear")", R"("first_token", "linear")",
                              R"("linear")"};
  for (const char* end : ends) {
    write_file(folder / "c.json",
               fmt::format(R"({{"model": {{"name": "sequential", "vocab_size": 50,
        "modules": [{{"embedding": {{"embedding_dim": 16, "padding_idx": 0}}}}, "position_embedding",
          {{"repeat": {{"times": 2, "modules": [
            {{"residual": ["layer_norm", {{"attention": {{"num_heads": 2, "dropout": 0.1,
                           "is_causal": true}}}}]}},
            {{"residual": ["layer_norm", {{"linear": 32}}, "gelu", {{"linear": 16}}]}}]}}}}, {}]}},
        "data": {{"name": "random_tokens", "max_length": 12, "batch_size": 8, "train_samples": 64}},
        "optim": {{"name": "adamw", "lr": 0.01}},
        "compression": {{"preset": "small", "advanced": {{"min_elements": 64}}}},
        "train": {{"steps": 3, "checkpointing": true}}, "threads": 1}})",
                           end));
    const Ran ran = frugal("train " + folder / "c.json" + " --json");
    REQUIRE_MESSAGE(ran.status == 0, end, ": ", ran.err);
    CHECK(Json::parse(ran.out)["memory"]["packed_bytes"].get<int64_t>() > 0);
  }
}

}  // namespace frugal::apps

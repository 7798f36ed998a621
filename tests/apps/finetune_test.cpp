// Runs that start from weights, with frozen layers and rates by layer, and runs that go on.
#include <doctest/doctest.h>

#include <algorithm>

#include "apps/cli/training_run.h"
#include "apps/config/make_model.h"
#include "apps/config/make_optimizer.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "core/random/random_streams.h"
#include "data/formats/safetensors.h"
#include "models/state.h"
#include "models/zoo/resnet_cifar.h"
#include "optim/optimizers.h"
#include "optim/registry.h"
#include "tests/apps/run.h"
#include "train/run/model_file.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

// Two epochs of five steps of ResNet-20 on noise.
Json small(int64_t classes = 3) {
  return {{"model", {{"name", "resnet20"}}},
          {"data",
           {{"name", "random"},
            {"shape", {8, 8, 3}},
            {"classes", classes},
            {"batch_size", 16},
            {"test_batch_size", 16},
            {"train_samples", 69},
            {"test_samples", 16},
            {"workers", 0}}},
          {"optim", {{"lr", 0.05}}},
          {"schedule", {{"name", "constant"}}},
          {"compression", {{"bits", 4}, {"advanced", {{"min_elements", 400}}}}},
          {"train", {{"epochs", 2}, {"log_interval", 1}, {"checkpoint_interval", 1}}},
          {"threads", 1}};
}

Config resolved(const Json& json) {
  Config config = parse_config(json);
  resolve(config);
  return config;
}

struct Left {
  std::string metrics, last;
  bool operator==(const Left&) const = default;
};
Left left_in(const std::string& folder) {
  return {read_file(folder + "/metrics.jsonl"), read_file(folder + "/checkpoint/last.safetensors")};
}

Json train(const Json& json, const std::string& out, bool resume = false, bool extend = false,
           const std::function<void(int64_t)>& saved = {}) {
  TrainOptions options;
  options.out = out;
  options.resume = resume;
  options.extend = extend;
  options.quiet = true;
  options.saved = saved;
  return TrainingRun(resolved(json), options).run();
}

std::map<std::string, std::vector<double>> values_in(const std::string& path) {
  std::map<std::string, std::vector<double>> all;
  for (const auto& [name, tensor] : data::SafetensorsFile::open(path).read_all())
    all[name] = tensor.to_vector();
  return all;
}

// small(), with 8 layers instead of 20.
Json smaller() {
  Json config = small();
  config["model"]["layers"] = 8;
  return config;
}

// Weights with so many classes, under the names that published files have.
void write_published(const std::string& path, int64_t classes) {
  models::CifarResNetOptions options = models::cifar_resnet_options("resnet20");
  options.num_classes = classes;
  models::Init init{Rng(77)};
  models::CifarResNet net(init, options);
  models::NamedTensors state;
  for (const auto& [name, tensor] : models::state_dict(net))
    state.emplace_back("module." + name, tensor);
  data::write_safetensors(path, state);
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a run starts from published weights, with a new last layer where classes differ") {
  const TempFolder folder;
  const std::string file = folder / "published.safetensors";
  write_published(file, 10);
  Json config = small();
  config["model"]["weights"] = file;
  config["train"]["steps"] = 1;
  config["optim"]["lr"] = 1e-30;
  const std::string what = error_of([&] { train(config, folder / "keep"); });
  CHECK(has(what, "3 classes"));
  CHECK(has(what, "got 10"));
  CHECK(has(what, "model.head=reset"));
  CHECK_FALSE(fs::exists(folder / "keep"));
  config["model"]["head"] = "reset";
  train(config, folder / "reset");
  const auto published = values_in(file);
  const auto trained = values_in(folder / "reset/checkpoint/last.safetensors");
  CHECK(trained.at("conv1.weight") == published.at("module.conv1.weight"));
  CHECK(trained.at("linear.weight").size() == 3 * 64);

  // A resumed run does not read them again; what is there may be gone.
  fs::remove(file);
  CHECK_NOTHROW(train(config, folder / "reset", true));
  CHECK(has(error_of([&] { train(config, folder / "other"); }), "which is not there"));
}

TEST_CASE("what a run starts from is said within 80 columns, by the option, too") {
  const TempFolder folder;
  write_published(folder / "w.safetensors", 10);
  Json config = small();
  config["model"]["head"] = "reset";
  config["train"]["steps"] = 1;
  write_file(folder / "c.json", config.dump());
  // Nothing reads model.head without weights.
  const std::string train = "cd " + (folder / "") + " && FRUGAL train c.json ";
  const Ran none = shell(train + "--out none");
  CHECK(none.status == 2);
  CHECK(has(none.err, "model.head"));
  config["model"].erase("head");
  write_file(folder / "c.json", config.dump());
  const Ran wrong = shell(train + "--init-from w.safetensors --out wrong");
  CHECK(wrong.status == 2);
  CHECK(has(wrong.err, "model.head=reset"));
  const Ran right = shell(train +
                          "--init-from w.safetensors --set model.head=reset --set "
                          "'train.freeze=[\"all but head\"]' --out right");
  CHECK(right.status == 0);
  CHECK(has(right.err, "frozen: 269072 of 269267 weights"));
  CHECK(has(right.err, "weights of w.safetensors"));
  CHECK(has(right.err, "the last layer starts anew, with 3 classes instead of 10"));
  CHECK(has(right.err, "linear.weight"));
  std::istringstream lines(right.err);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("epoch ")) CHECK(line.size() <= 80);
  // A run's folder stands for its best checkpoint.
  const Ran next = shell(train + "--init-from right --out next");
  CHECK(next.status == 0);
  CHECK(has(next.err, "weights of right/checkpoint/best.safetensors"));
  const Ran missing = shell(train + "--init-from nowhere --out never");
  CHECK(missing.status == 2);
  CHECK(has(missing.err, "model.weights: expected a file or a folder of weights"));
}

TEST_CASE("frozen layers keep their values, whatever the optimizer decays, and save nothing") {
  const TempFolder folder;
  write_published(folder / "w", 3);
  const auto published = values_in(folder / "w");
  for (const optim::Kind& kind : optim::kinds()) {
    const std::string& optimizer = kind.name;
    CAPTURE(optimizer);
    Json config = small();
    config["model"]["weights"] = folder / "w";
    config["optim"] = {{"name", optimizer}, {"lr", 0.01}, {"weight_decay", 0.1}, {"ema", 0.9}};
    config["train"]["freeze"] = {"all but head"};
    config["train"]["steps"] = 3;
    const std::string out = folder / optimizer;
    const Json summary = train(config, out);
    const auto trained = values_in(out + "/checkpoint/last.safetensors");
    for (const auto& [name, values] : trained)
      CHECK((values == published.at("module." + name)) == !name.starts_with("linear."));
    // The last layer's input of 16 images, 64 numbers each, and what the loss keeps.
    CHECK(summary["memory"]["activation_bytes"].get<int64_t>() <=
          16 * 64 * 4 + 16 * 3 * 4 + 16 * 8 + 64);
    const auto state = data::SafetensorsFile::open(out + "/checkpoint/state.safetensors");
    for (const std::string& name : state.names())
      if (name.starts_with("optimizer/") && name.find("/ema") == std::string::npos &&
          name.find("linear.") == std::string::npos)
        CHECK(name == "optimizer/ema_updates");
  }
}

TEST_CASE("frozen layers beside updates in backward, plans, tracking and recomputed blocks") {
  const TempFolder folder;
  const std::vector<std::pair<const char*, Json>> with = {
      {"whole", Json::object()},
      {"in_backward", {{"optim", {{"in_backward", true}}}}},
      {"checkpointing", {{"train", {{"checkpointing", true}}}}},
      {"plan", {{"compression", {{"memory_budget", "2/3 activations"}}}}},
      {"peak", {{"compression", {{"memory_budget", "1/1"}}}}},
      {"tracked",
       {{"compression",
         {{"guard", 0.1}, {"advanced", {{"track_interval", 2}, {"track_samples", 4}}}}}}},
      {"adaptive", {{"compression", {{"gact", {{"adaptive", true}, {"interval", 2}}}}}}},
      {"actnn", {{"compression", {{"policy", "actnn"}}}}},
      {"acgc", {{"compression", {{"policy", "acgc"}}}}}};
  for (const auto& [name, keys] : with)
    for (const char* pattern : {"all but head", "layer2."}) {
      const auto& this_name = name;
      CAPTURE(this_name);
      CAPTURE(pattern);
      Json config = smaller();
      if (keys.contains("compression")) config["compression"].erase("bits");
      config.merge_patch(keys);
      config["train"]["freeze"] = {pattern};
      config["train"]["steps"] = 3;
      const std::string out = folder / (std::string(name) + pattern);
      CHECK_NOTHROW(train(config, out));
      if (std::string(name) == "in_backward")
        CHECK(left_in(out).last == left_in(folder / (std::string("whole") + pattern)).last);
    }
}

TEST_CASE("layers that are thawed train from then on, and a cut run ends with the same bits") {
  const TempFolder folder;
  const std::vector<std::pair<const char*, Json>> with = {
      {"adam", {{"optim", {{"name", "adamw"}, {"lr", 0.01}}}}},
      {"adaptive",
       {{"compression",
         {{"gact", {{"adaptive", true}, {"interval", 3}, {"samples", 4}, {"share", 1}}}}}}},
      {"guard",
       {{"compression",
         {{"guard", 0.05}, {"advanced", {{"track_interval", 2}, {"track_samples", 2}}}}}}},
      {"acgc", {{"compression", {{"policy", "acgc"}, {"acgc", {{"interval", 3}}}}}}}};
  for (const auto& [name, keys] : with) {
    const auto& this_name = name;
    CAPTURE(this_name);
    Json config = smaller();
    if (keys.contains("compression")) config["compression"].erase("bits");
    config.merge_patch(keys);
    config["train"]["freeze"] = {"all but head"};
    config["train"]["freeze_epochs"] = 1;
    const std::string whole = folder / name;
    std::map<int64_t, std::vector<double>> first;  // conv1.weight by step
    std::vector<int64_t> cuts;
    train(config, whole, false, false, [&](int64_t step) {
      first[step] = data::SafetensorsFile::open(whole + "/checkpoint/last.safetensors")
                        .read("conv1.weight")
                        .to_vector();
      if (step != 3 && step != 5 && step != 6) return;
      fs::copy(whole, whole + std::to_string(step), fs::copy_options::recursive);
      cuts.push_back(step);
    });
    CHECK(first.at(1) == first.at(5));
    CHECK(first.at(5) != first.at(6));
    REQUIRE(cuts.size() == 3);
    for (const int64_t cut : cuts) {
      CAPTURE(cut);
      const std::string resumed = whole + std::to_string(cut);
      train(config, resumed, true);
      CHECK(left_in(resumed) == left_in(whole));
    }
  }
  Json planned = smaller();
  planned["compression"] = {{"memory_budget", "1/2"}};
  planned["train"]["freeze"] = {"layer1."};
  planned["train"]["freeze_epochs"] = 1;
  CHECK(has(error_of([&] { train(planned, folder / "planned"); }), "train.freeze_epochs"));
}

TEST_CASE("a parameter that starts late has the moments of its own steps") {
  const TempFolder folder;
  Json config = smaller();
  config["optim"] = {{"name", "adamw"}, {"lr", 0.01}};
  config["train"]["freeze"] = {"layer1."};
  config["train"]["freeze_epochs"] = 1;
  train(config, folder / "run");
  const auto state = values_in(folder / "run/checkpoint/state.safetensors");
  CHECK(state.at("optimizer/steps/linear.weight") == std::vector<double>{10});
  CHECK(state.at("optimizer/steps/layer1.0.conv1.weight") == std::vector<double>{5});
}

TEST_CASE("patterns that fit nothing, and rates, are checked before anything is trained") {
  const TempFolder folder;
  const auto error = [&](const char* section, const char* key, const Json& value) {
    Json config = small();
    config[section][key] = value;
    return error_of([&] { train(config, folder / "never"); });
  };
  CHECK(has(error("train", "freeze", {"leyer1."}), "train.freeze: expected a pattern"));
  CHECK(has(error("train", "freeze", {"*"}), "left to train"));
  CHECK(has(error("optim", "lr_of", {"linear."}), "expected NAME=FACTOR"));
  CHECK(has(error("optim", "lr_of", {"linear.=0"}), "train.freeze"));
  CHECK(has(error("optim", "lr_of", {"fc.=2"}), "got \"fc.\""));
  CHECK_FALSE(fs::exists(folder / "never"));
}

TEST_CASE("rates by pattern and by layer multiply the schedule's") {
  Json json = small();
  json["optim"] = {{"lr", 1},
                   {"momentum", 0},
                   {"weight_decay", 0},
                   {"layer_decay", 0.5},
                   {"lr_of", {"linear.bias=4", "*.bias=2", "layer3.2.conv?.weight=3"}}};
  const Config config = resolved(json);
  const auto model = make_model(config, batch_spec(config), kCpu);
  const auto optimizer = make_optimizer(config, *model);
  std::map<std::string, double> rates;
  for (const auto& p : model->parameters()) {
    p.parameter->set_value(Tensor::zeros(p.parameter->shape()));
    p.parameter->set_grad(Tensor::full(p.parameter->shape(), -1));
  }
  optimizer->step(1);
  for (const auto& p : model->parameters())
    rates[p.name] = p.parameter->value().to_vector().front();
  CHECK(rates.at("linear.weight") == 1);
  CHECK(rates.at("linear.bias") == 4);
  CHECK(rates.at("layer3.2.bn2.weight") == 0.5);
  CHECK(rates.at("layer3.2.bn2.bias") == 1);
  CHECK(rates.at("layer3.2.conv1.weight") == 1.5);
  CHECK(rates.at("layer1.0.conv1.weight") == std::pow(0.5, 9));
  CHECK(rates.at("conv1.weight") == std::pow(0.5, 10));
}

TEST_CASE("dropout and stochastic depth reach every network that has them, and 0 draws nothing") {
  // How many random keys a forward pass of the network takes in training.
  const auto draws = [](const char* name, const Json& keys) {
    Json json = {{"model", keys},
                 {"data", {{"name", "random"}, {"shape", {32, 32, 3}}}},
                 {"compression", {{"bits", 0}}}};
    json["model"]["name"] = name;
    const Config config = resolved(json);
    const BatchSpec spec = batch_spec(config);
    const auto model = make_model(config, spec, kMeta);
    Batch batch = shape_of_batch(spec, 2, kMeta);
    Rng rng(1);
    const uint64_t before = rng.state().offset;
    Context context;
    context.rng = &rng;
    model->forward(Variable(std::move(batch.input)), context);
    return rng.state().offset - before;
  };
  for (const char* name : {"vit_b_16", "swin_t"}) {
    CAPTURE(name);
    CHECK(draws(name, {{"stochastic_depth", 0}}) == 0);
    CHECK(draws(name, {{"stochastic_depth", 0.1}}) == 2 * 11);
    CHECK(draws(name, {{"stochastic_depth", 0}, {"attention_dropout", 0.1}}) == 12);
    CHECK(draws(name, {{"stochastic_depth", 0}, {"dropout", 0.1}}) >= 36);
  }
  CHECK(draws("vit_b_16", Json::object()) == 0);
  CHECK(draws("swin_t", Json::object()) == 2 * 11);
  CHECK(draws("densenet121", Json::object()) == 0);
  CHECK(draws("densenet121", {{"dropout", 0.1}}) == 58);
  CHECK(draws("vgg11", {{"dropout", 0}}) == 0);
  CHECK(draws("vgg11", Json::object()) == 2);
}

TEST_CASE("a run that has ended goes on, and ends as one that was longer from the start") {
  const TempFolder folder;
  Json config = smaller();
  config["optim"]["ema"] = 0.9;
  Json longer = config;
  longer["train"]["epochs"] = 4;
  train(longer, folder / "longer");
  train(config, folder / "run");
  const Left short_run = left_in(folder / "run");
  CHECK(has(error_of([&] { train(longer, folder / "run", true); }), "train.epochs"));
  // Without more epochs nothing happens.
  train(config, folder / "run", true, true);
  CHECK(left_in(folder / "run") == short_run);
  // Cut while it goes on, and told the same again.
  std::string cut;
  train(longer, folder / "run", true, true, [&](int64_t step) {
    if (step != 13) return;
    cut = folder / "cut";
    fs::copy(folder / "run", cut, fs::copy_options::recursive);
  });
  CHECK(left_in(folder / "run") == left_in(folder / "longer"));
  CHECK(Json::parse(read_file(folder / "run/config.json"))["train"]["epochs"] == 4);
  REQUIRE(!cut.empty());
  train(longer, cut, true, true);
  CHECK(left_in(cut) == left_in(folder / "longer"));
  CHECK(has(error_of([&] { train(config, folder / "run", true, true); }),
            "expected at least the 4 of the run"));
  // By steps, also from the middle of an epoch: the weights are those of the longer run.
  Json steps = config, more = config;
  steps["train"]["steps"] = 7;
  more["train"]["steps"] = 11;
  train(steps, folder / "steps");
  train(more, folder / "steps", true, true);
  train(more, folder / "more");
  CHECK(left_in(folder / "steps").last == left_in(folder / "more").last);
}

TEST_CASE("--extend counts all epochs, and wants --resume") {
  const TempFolder folder;
  write_file(folder / "c.json", small().dump());
  const std::string train = "cd " + (folder / "") + " && FRUGAL train c.json --out run ";
  CHECK(shell(train).status == 0);
  const Ran refused = shell(train + "--extend 3");
  CHECK(refused.status == 2);
  CHECK(has(refused.err, "--resume"));
  const Ran extended = shell(train + "--resume --extend 3 --json");
  CHECK(extended.status == 0);
  CHECK(has(extended.out, "\"steps\": 15"));
}

TEST_CASE("commands that run steps begin with the weights that a configuration names") {
  const TempFolder folder;
  write_file(folder / "c.json", small().dump());
  REQUIRE(binary("train " + folder / "c.json --quiet --out " + folder / "a").status == 0);
  const std::string weights = " --set model.weights=" + folder / "a";
  const auto first_loss = [&](const std::string& sets) {
    const Ran ran = binary("lr-find " + folder / "c.json --json --steps 20" + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(ran.out)["points"][0]["loss"].get<double>();
  };
  REQUIRE(binary("train " + folder / "c.json --quiet --out " + folder / "b" + weights).status == 0);
  std::stringstream metrics(read_file(folder / "b/metrics.jsonl"));
  std::string line;
  std::getline(metrics, line);
  CHECK(first_loss(weights) == doctest::Approx(Json::parse(line)["loss"].get<double>()));
  CHECK(first_loss(weights) != first_loss(""));
  for (const char* const command :
       {"train", "lr-find", "plan", "profile", "profile --set device=meta", "bench step",
        "bench step --set device=meta"}) {
    CAPTURE(command);
    const Ran ran = binary(
        fmt::format("{} {} --set model.weights={}", command, folder / "c.json", folder / "none"));
    CHECK(ran.status == 2);
    CHECK_MESSAGE(has(ran.err, fmt::format("model.weights: expected a file or a folder of weights, "
                                           "got \"{}\", which is not there",
                                           folder / "none")),
                  ran.err);
  }
}

TEST_CASE("weights that are not there are named before a network that does not fit the data") {
  const TempFolder folder;
  write_file(folder / "talks.jsonl", R"({"prompt": "a", "completion": "b"})");
  const Json json = {{"model", {{"weights", folder / "none"}}},
                     {"data", {{"name", "conversations"}, {"dir", folder / "talks.jsonl"}}}};
  write_file(folder / "c.json", json.dump());
  const Ran ran = binary("train " + folder / "c.json");
  CHECK(ran.status == 2);
  CHECK_MESSAGE(has(ran.err, "model.weights: expected a file or a folder of weights"), ran.err);
}

TEST_CASE("~ at the beginning of a path is the home folder, behind an equals sign and in a file") {
  const TempFolder folder;
  write_file(folder / "c.json", small().dump());
  REQUIRE(binary("train " + folder / "c.json --quiet --out " + folder / "a").status == 0);
  Json from = small();
  from["model"]["weights"] = "~/a";
  write_file(folder / "from.json", from.dump());
  for (const std::string& given :
       {folder / "c.json --set 'model.weights=~/a'", folder / "from.json"}) {
    CAPTURE(given);
    const Ran ran = shell("HOME=" + folder / "" + " FRUGAL train " + given +
                          " --quiet --set train.steps=1 --overwrite '--out=~/b'");
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    CHECK(Json::parse(read_file(folder / "b/config.json"))["model"]["weights"] == folder / "/a");
  }
}

}  // namespace frugal::apps

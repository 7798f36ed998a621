// How samples are cut into batches, and which of them count more: as a file says it.
#include <doctest/doctest.h>

#include "apps/config/config.h"
#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

struct SmallTable {
  TempFolder folder;
  std::string config = folder / "c.json", run = folder / "run";
  // 9 rows to train on, and 3 each to validate and to test on.
  Ran train(const Json& model, Json data = Json::object(), const Json& train = {{"epochs", 2}}) {
    const auto part = [&](const char* name, int rows) {
      std::string text = "x,y,target\n";
      for (int i = 0; i < rows; ++i)
        text += fmt::format("{},{},{}\n", i, (i * 7) % 5, i % 3 == 0 ? "no" : "yes");
      write_file(folder / name, text);
    };
    part("train.csv", 9);
    part("test.csv", 3);
    data["name"] = "csv";
    data["dir"] = folder / "";
    if (!data.contains("batch_size")) data["batch_size"] = 8;
    write_file(config,
               Json({{"model", model}, {"data", data}, {"train", train}, {"threads", 1}}).dump());
    std::filesystem::remove_all(run);
    return frugal("train " + config + " --quiet --json --out " + run);
  }
};

TEST_CASE_FIXTURE(SmallTable, "a last batch of one sample before batch norm says what to do") {
  const Json model = {{"name", "sequential"},
                      {"modules", {{{"linear", 8}}, "batch_norm", "relu", "linear"}}};
  const Ran failed = train(model);
  CHECK(failed.status == 1);
  CHECK(has(failed.err, "data.drop_last=true"));
  CHECK(has(failed.err, "1 of 9 samples"));
  const Ran trained = train(model, {{"drop_last", true}});
  REQUIRE_MESSAGE(trained.status == 0, trained.err);
  CHECK(Json::parse(trained.out)["steps"] == 2);  // one each epoch
  CHECK(frugal("eval " + run).status == 0);
  // Nothing is left out of an evaluation.
  CHECK(Json::parse(frugal("eval " + run + " --json").out)["samples"] == 3);
  const Ran none = train(model, {{"drop_last", true}, {"batch_size", 10}});
  CHECK(none.status != 0);
  CHECK(has(none.err, "drop_last"));
}

TEST_CASE_FIXTURE(SmallTable,
                  "weights of classes of rows change what is learned, not what is judged") {
  const Json model = {{"name", "mlp"}, {"hidden", {8}}};
  const auto run_with = [&](const Json& weights) {
    const Ran ran = train(model, Json::object(), {{"epochs", 30}, {"class_weights", weights}});
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return read_file(run + "/checkpoint/last.safetensors");
  };
  const std::string plain = run_with(Json::array());
  CHECK(run_with({1, 1}) != "");
  CHECK(run_with({1, 50}) != plain);
  const Ran wrong = train(model, Json::object(), {{"epochs", 1}, {"class_weights", {1, 2, 3}}});
  CHECK(wrong.status == 2);
  CHECK(has(wrong.err, "train.class_weights"));
  CHECK(has(wrong.err, "each of 2 classes, got 3"));
  // In f32 they would be 0, and the loss no number.
  const Ran tiny = train(model, Json::object(), {{"epochs", 1}, {"class_weights", {1, 1e-300}}});
  CHECK(tiny.status == 2);
  CHECK_MESSAGE(has(tiny.err, "train.class_weights[1]: expected a number in [1e-30, 1000000.0]"),
                tiny.err);
}

TEST_CASE("weights of classes are read with each kind of classes") {
  for (const char* data :
       {R"({"data": {"name": "random"}})", R"({"model": {"name": "mlp"}, "data": {"name": "csv"}})",
        R"({"model": {"name": "bert_tiny"}, "data": {"name": "sst2"}})",
        R"({"model": {"name": "gcn"}, "data": {"name": "cora"}})",
        R"({"model": {"name": "unet"}, "data": {"name": "random_masks"}})"}) {
    CAPTURE(data);
    Json document = Json::parse(data);
    document["train"]["class_weights"] = {1, 2};
    const TempFolder folder;
    write_file(folder / "c.json", document.dump());
    CHECK_NOTHROW(load_config(folder / "c.json"));
  }
}

TEST_CASE("a test batch is as large as a training batch unless it is given") {
  const auto test_batch = [](const char* data) {
    return parse_config({{"data", Json::parse(data)}}).data.test_batch();
  };
  CHECK(test_batch(R"({"batch_size": 8})") == 8);
  CHECK(test_batch("{}") == 128);
  CHECK(test_batch(R"({"batch_size": 8, "test_batch_size": 256})") == 256);
}

// 256 sequences of 64 tokens in a layer of 256 units take 16 MiB, 2 of them 128 KiB.
TEST_CASE("a language model's evaluation fits where its steps fit, with the same result") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 33000; ++i) text += static_cast<char>('a' + (i * i + i / 7) % 23);
  write_file(folder / "text.txt", text);
  Json config = {{"model", {{"name", "gpt2"}, {"layers", 1}, {"width", 64}, {"heads", 2}}},
                 {"data",
                  {{"name", "text"},
                   {"dir", folder / "text.txt"},
                   {"max_length", 64},
                   {"batch_size", 2},
                   {"validation", 0.5}}},
                 {"train", {{"steps", 2}}},
                 {"threads", 1},
                 {"memory_limit", "12 MiB"}};
  const auto train = [&] {
    write_file(folder / "c.json", config.dump());
    return frugal("train " + folder / "c.json --quiet --json");
  };
  const Ran alike = train();
  REQUIRE_MESSAGE(alike.status == 0, alike.err);
  config["data"]["test_batch_size"] = 256;
  CHECK(train().status == 1);
  config.erase("memory_limit");
  const Ran whole = train();
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  const Json one = Json::parse(alike.out)["final"], other = Json::parse(whole.out)["final"];
  CHECK(one["test_accuracy"] == other["test_accuracy"]);
  CHECK(one["test_loss"].get<double>() == doctest::Approx(other["test_loss"].get<double>()));
}

}  // namespace
}  // namespace frugal::apps

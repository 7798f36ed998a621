// Networks that learn from two views, from a configuration to the trunk's file.
#include <doctest/doctest.h>

#include "apps/json.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

constexpr const char* kSimSiam = R"({
  "model": {"name": "simsiam", "trunk": "resnet20", "layers": 8, "width": 4,
            "projector": [16, 8], "neighbours": 5},
  "data": {"name": "random", "shape": [12, 12, 3], "classes": 3, "batch_size": 8,
           "train_samples": 20, "test_samples": 10, "test_batch_size": 4},
  "optim": {"lr": 0.02}, "schedule": {"name": "constant"},
  "compression": {"bits": 4, "advanced": {"min_elements": 0}},
  "train": {"epochs": 2}, "threads": 1})";

struct Folder {
  TempFolder folder;
  Folder() { write_file(folder / "c.json", kSimSiam); }
  Ran train(const std::string& name, const std::string& sets = "") const {
    return frugal("train " + (folder / "c.json") + " --out " + (folder / name) + sets);
  }
  std::string weights(const std::string& name) const {
    return read_file(folder / (name + "/checkpoint/last.safetensors"));
  }
};

const std::string kSmall[] = {
    " --set model.predictor=6",
    " --set model.name=byol --set model.predictor=6 --set optim.name=lars",
    " --set model.name=moco_v2 --set model.queue=12"};

TEST_CASE("two views: weights do not depend on workers, and a run that was cut goes on the same") {
  for (const std::string& method : kSmall) {
    CAPTURE(method);
    const Folder run;
    const Ran whole = run.train("a", method + " --set data.workers=0");
    REQUIRE_MESSAGE(whole.status == 0, whole.err);
    const Json last = Json::parse(read_file(run.folder / "a/summary.json"))["final"];
    CHECK(last["test_knn"].get<double>() >= 0);
    CHECK(last["test_knn"].get<double>() <= 1);
    CHECK(whole.out.find("best test knn") != std::string::npos);
    CHECK(whole.out.find("accuracy") == std::string::npos);
    const std::string page = read_file(run.folder / "a/report.html");
    CHECK(page.find("Test knn") != std::string::npos);
    CHECK(page.find("Test accuracy") == std::string::npos);
    REQUIRE(run.train("b", method + " --set data.workers=2 --set train.epochs=1").status == 0);
    const Ran longer = run.train("b", method + " --set data.workers=2 --resume --extend 2");
    if (method == kSmall[1]) continue;  // BYOL's momentum follows the length of the run
    REQUIRE_MESSAGE(longer.status == 0, longer.err);
    CHECK(run.weights("a") == run.weights("b"));
  }
}

TEST_CASE("the trunk is exported under its own names, and another run starts from it") {
  const Folder run;
  REQUIRE(run.train("a", kSmall[2]).status == 0);
  const std::string file = run.folder / "trunk.safetensors";
  const Ran exported = frugal("export " + (run.folder / "a") + " --trunk --output " + file);
  REQUIRE_MESSAGE(exported.status == 0, exported.err);
  const data::SafetensorsFile trunk = data::SafetensorsFile::open(file);
  CHECK(trunk.contains("conv1.weight"));
  CHECK(trunk.contains("layer3.0.bn2.running_var"));
  CHECK(!trunk.contains("linear.weight"));
  const std::string linear =
      " --set model.name=resnet20 --set model.projector=null --set model.neighbours=200"
      " --set model.head=reset --set 'train.freeze=[\"all but head\"]' --set model.weights=";
  for (const std::string& from : {file, run.folder / "a"}) {
    const std::string name = from == file ? "b" : "c";
    const Ran tuned = run.train(name, linear + from);
    REQUIRE_MESSAGE(tuned.status == 0, tuned.err);
    CHECK(tuned.err.find("frozen: ") != std::string::npos);
  }
  CHECK(run.weights("b") == run.weights("c"));
  const Ran whole =
      frugal("export " + (run.folder / "b") + " --trunk --output " + (run.folder / "x"));
  CHECK(whole.status == 2);
  const Ran predicted = frugal("predict " + (run.folder / "a") + " x.jpg");
  CHECK(predicted.status == 2);
  CHECK(predicted.err.find("expected a network that gives classes, got moco_v2") !=
        std::string::npos);
}

TEST_CASE("what contradicts learning from views names the key") {
  const Folder run;
  const auto key_of = [&](const std::string& sets) {
    const Ran ran = run.train("x", kSmall[0] + sets);
    CHECK(ran.status == 2);
    return ran.err;
  };
  const std::pair<const char*, const char*> wrong[] = {
      {"train.freeze", " --set 'train.freeze=[\"trunk.\"]'"},
      {"train.label_smoothing", " --set train.label_smoothing=0.1"},
      {"optim.ema", " --set optim.ema=0.9"},
      {"train.early_stop.metric", " --set train.early_stop.patience=1"},
      {"data.batch_size", " --set data.batch_size=1"},
      {"data.flip", " --set data.flip=true"},
      {"model.trunk", " --set model.trunk=vgg11"},
      {"model.queue", " --set model.queue=8"},
      {"data.views.color_jitter", " --set data.views.color_jitter=[1]"},
      {"data.views.color_jitter", " --set data.shape=[8,8,1]"}};
  for (const auto& [key, sets] : wrong) {
    const auto& this_sets = sets;
    CAPTURE(this_sets);
    CHECK(key_of(sets).find(key) != std::string::npos);
  }
}

TEST_CASE("a plan of two views holds both, and its copy keeps nothing") {
  const Folder run;
  const auto bytes = [&](const std::string& sets) {
    const Ran ran = frugal("plan " + (run.folder / "c.json") + " --json" + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(ran.out);
  };
  CHECK(!bytes(kSmall[1]).empty());
}

TEST_CASE("tracking gives a bound where no loss is below 0, and none to SimSiam") {
  for (const std::string& method : {kSmall[0], kSmall[2]}) {
    CAPTURE(method);
    const Folder run;
    const Ran ran = run.train("a", method +
                                       " --set compression.advanced.track_interval=2"
                                       " --set compression.advanced.track_samples=4");
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const Json found = Json::parse(read_file(run.folder / "a/summary.json"))["convergence"];
    CHECK(found["alpha"].is_number());
    const bool is_bounded = method == kSmall[2];
    for (const char* name : {"bound", "bound_uncompressed", "bound_applies"})
      CHECK(found[name].is_null() != is_bounded);
    if (is_bounded) CHECK(found["bound"] > 0);
    CHECK(frugal("compare " + (run.folder / "a")).status == 0);
  }
}

}  // namespace
}  // namespace frugal::apps

// What a run writes is what commands accept; how a run goes on, is replaced, or is printed.
#include <doctest/doctest.h>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

std::string table(int rows) {
  std::string text = "x,y,target\n";
  for (int i = 0; i < rows; ++i)
    text += fmt::format("{},{},{}\n", i % 7, i % 5, i % 7 > i % 5 ? "up" : "down");
  return text;
}

struct ReusedRuns {
  TempFolder folder;
  std::string config = folder / "c.json", run = folder / "run", rows = folder / "rows.csv";
  ReusedRuns() {
    write_file(config, kTinyConfig);
    write_file(rows, table(60));
  }
  std::string train(const std::string& more = "") const {
    return "train " + config + " --quiet --out " + run + more;
  }
};

TEST_CASE_FIXTURE(ReusedRuns, "a run whose --set took the reader from keys of its file is usable") {
  // Pictures' keys in the file (flip, crop_padding, shape, classes) have no reader with a table.
  const std::string sets = " --set data.name=csv --set data.dir=" + rows +
                           " --set data.train_samples=0 --set data.test_samples=0";
  const Ran trained = frugal(train(sets));
  REQUIRE_MESSAGE(trained.status == 0, trained.err);
  for (const std::string& command :
       {"eval " + run, "predict " + run + " " + rows,
        "export " + run + " --output " + folder / "n.safetensors",
        "train " + run + "/config.json --quiet --out " + folder / "again",
        train(sets + " --resume --extend 3"), "plan " + run + "/config.json",
        "train " + run + "/config.json --print-config"}) {
    CAPTURE(command);
    const Ran ran = frugal(command);
    CHECK_MESSAGE(ran.status == 0, ran.err);
  }
  // As earlier versions wrote it.
  Json written = Json::parse(read_file(run + "/config.json"));
  written["data"]["flip"] = true;
  write_file(run + "/config.json", written.dump());
  CHECK(frugal("eval " + run).status == 0);
  CHECK(frugal("train " + run + "/config.json --quiet --out " + folder / "third").status == 0);
  // In a file of one's own it is a mistake.
  write_file(config, written.dump());
  CHECK(frugal("train " + config).status == 2);
}

TEST_CASE_FIXTURE(ReusedRuns, "--resume with other keys names the ways on") {
  REQUIRE(frugal(train()).status == 0);
  const Ran longer = frugal(train(" --resume --set train.epochs=3"));
  CHECK(longer.status == 2);
  CHECK(has(longer.err, "train.epochs"));
  CHECK(has(longer.err, "--extend"));
  CHECK(has(longer.err, "--init-from"));
  const Ran other = frugal(train(" --resume --extend 3 --set optim.lr=0.01"));
  CHECK(other.status == 2);
  CHECK(has(other.err, "optim.lr"));
  CHECK(has(other.err, "--init-from " + run));
  CHECK(lacks(other.err, "--extend N"));
}

TEST_CASE_FIXTURE(ReusedRuns, "--overwrite replaces a run, and nothing else") {
  REQUIRE(frugal(train()).status == 0);
  const std::string before = read_file(run + "/checkpoint/last.safetensors");
  const Ran refused = frugal(train());
  CHECK(refused.status == 2);
  CHECK(has(refused.err, "--overwrite"));
  // A start that fails leaves the run as it was.
  CHECK(frugal(train(" --overwrite --set compression.offload=/nowhere/at/all")).status != 0);
  CHECK(frugal(train(" --overwrite --set train.patience=2")).status == 2);
  CHECK(read_file(run + "/checkpoint/last.safetensors") == before);
  const Ran replaced = frugal(train(" --overwrite --set seed=5"));
  REQUIRE_MESSAGE(replaced.status == 0, replaced.err);
  CHECK(read_file(run + "/checkpoint/last.safetensors") != before);
  CHECK(frugal("eval " + run).status == 0);
  CHECK(frugal(train(" --overwrite --resume")).status == 2);
  CHECK(frugal("train " + config + " --overwrite").status == 2);
  CHECK(frugal("train " + config + " --quiet --overwrite --out " + folder / "new").status == 0);
  // Files that are none of a run stay, wherever they are.
  for (const char* own : {"/notes.txt", "/checkpoint/notes.txt"}) {
    CAPTURE(own);
    write_file(run + own, "mine");
    const Ran kept = frugal(train(" --overwrite"));
    CHECK(kept.status == 2);
    CHECK(has(kept.err, "notes.txt"));
    CHECK(fs::exists(run + "/checkpoint/state.safetensors"));
    fs::remove(run + own);
  }
  const std::string other = folder / "other";
  fs::create_directories(other);
  write_file(other + "/report.html", "mine");  // a name that runs use, too
  CHECK(frugal("train " + config + " --overwrite --out " + other).status == 2);
  CHECK(read_file(other + "/report.html") == "mine");
  // What a link names stays.
  write_file(folder / "far", "mine");
  fs::remove(run + "/report.html");
  fs::create_symlink(folder / "far", run + "/report.html");
  CHECK(frugal(train(" --overwrite")).status == 0);
  CHECK(read_file(folder / "far") == "mine");
}

TEST_CASE_FIXTURE(ReusedRuns, "a configuration is printed without its data") {
  for (const char* data :
       {R"({"name": "cifar10"})", R"({"name": "csv", "dir": "/none.csv"})",
        R"({"name": "image_folder", "dir": "/none"})", R"({"name": "tensors", "dir": "/none.npz"})",
        R"({"name": "image_masks", "dir": "/none"})"}) {
    CAPTURE(data);
    Json all = {{"model", {{"name", "mlp"}}}, {"data", Json::parse(data)}};
    const bool masks = all["data"]["name"] == "image_masks";
    if (masks) all["model"]["name"] = "unet";
    write_file(config, all.dump());
    const Ran ran = frugal("train " + config + " --print-config");
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const Json printed = Json::parse(ran.out);
    CHECK(printed["model"]["num_classes"].is_null());
    CHECK(printed["compression"]["advanced"]["rounding"] != "auto");
    CHECK(has(ran.err, "stays null"));
  }
  // Mistakes that have nothing to do with the data are errors.
  write_file(config, R"({"data": {"name": "cifar10"}, "compression": {"bits": 17}})");
  CHECK(frugal("train " + config + " --print-config").status == 2);
}

TEST_CASE_FIXTURE(ReusedRuns,
                  "a run says which network it took where the configuration names none") {
  Json all = Json::parse(kTinyConfig);
  all["model"] = Json::object();
  all["data"]["shape"] = {8, 8, 3};
  all["data"]["train_samples"] = 32;
  all["train"] = {{"steps", 1}};
  write_file(config, all.dump());
  CHECK(has(frugal("train " + config).err, "network: resnet20"));
  all["model"] = {{"name", "resnet20"}};
  write_file(config, all.dump());
  CHECK(lacks(frugal("train " + config).err, "network:"));
}

}  // namespace
}  // namespace frugal::apps

// What a run's folder takes and refuses: starts that fail, states that are missing, and in which
// order files are made to last.
#include <doctest/doctest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <set>

#include "apps/cli/training_run.h"
#include "apps/config/resolve.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"

namespace {
std::vector<std::string>* synced = nullptr;  // the paths that fsync() was called for
}

// In the place of the C library's, for the libraries that are linked in.
extern "C" int fsync(int file) {
  if (synced != nullptr)
    synced->push_back(
        std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file)).string());
  return static_cast<int>(syscall(SYS_fsync, file));
}

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

Json tiny(const Json& compression = {{"level", "L1"}, {"advanced", {{"min_elements", 96}}}}) {
  Json config = Json::parse(kTinyConfig);
  config["compression"] = compression;
  config["train"] = {{"steps", 6}, {"log_interval", 1}, {"checkpoint_interval", 2}};
  return config;
}

Config resolved(const Json& json) {
  Config config = parse_config(json);
  resolve(config);
  return config;
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

}  // namespace

TEST_CASE("an empty --out is refused before anything is trained") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  check_fails(frugal("train " + folder / "c.json" + " --out ''"), 2, {"--out", "empty name"});
  check_fails(frugal("train " + folder / "c.json" + " --resume --out ''"), 2, {"--out"});
}

TEST_CASE("a start that fails leaves nothing, so the next one works") {
  const TempFolder folder;
  write_file(folder / "c.json", tiny().dump());
  const std::string train = "train " + folder / "c.json" + " --out ";
  const std::string missing =
      " --set data.name=mnist --set data.shape=null --set data.classes=null --set data.dir=/none";
  for (const std::string& why :
       {missing, std::string(" --set compression.offload=/nowhere/at/all"),
        std::string(" --set train.patience=2"), std::string(" --set 'memory_limit=10 KiB'"),
        std::string(" --set optim.lr=1e30 --set train.checkpoint_interval=0 --set "
                    "optim.clip_norm=0 --set data.batch_size=640")}) {
    CAPTURE(why);
    const Ran failed = frugal(train + folder / "new/run" + why);
    CHECK(failed.status != 0);
    if (why.find("lr") != std::string::npos) continue;  // it made steps before it failed
    CHECK(!fs::exists(folder / "new"));
  }
  fs::remove_all(folder / "new");
  fs::create_directory(folder / "empty");
  CHECK(frugal(train + folder / "empty" + missing).status != 0);
  CHECK(names_in(folder / "empty").empty());
  // A process that was killed before it had started leaves a bare folder.
  fs::create_directory(folder / "empty/checkpoint");
  CHECK(frugal(train + folder / "empty").status == 0);
  // What was there stays.
  const auto before = names_in(folder / "empty");
  CHECK(frugal(train + folder / "empty" + missing).status == 2);
  CHECK(frugal(train + folder / "empty --resume" + missing).status != 0);
  CHECK(names_in(folder / "empty") == before);
}

TEST_CASE("a checkpoint without its state is not trained from scratch") {
  const TempFolder folder;
  write_file(folder / "c.json", tiny().dump());
  const std::string train = "train " + folder / "c.json" + " --resume --out " + folder / "run";
  REQUIRE(frugal(train).status == 0);
  const std::string weights = read_file(folder / "run/checkpoint/last.safetensors");
  fs::remove(folder / "run/checkpoint/state.safetensors");
  check_fails(frugal(train), 2, {"last.safetensors", "state.safetensors", "another --out"});
  fs::remove(folder / "run/checkpoint/last.safetensors");
  check_fails(frugal(train), 2, {"summary.json", "state.safetensors"});
  // Before the first checkpoint, a run has neither.
  fs::remove(folder / "run/summary.json");
  CHECK(frugal(train).status == 0);
  CHECK(read_file(folder / "run/checkpoint/last.safetensors") == weights);
}

TEST_CASE("a run that goes on writes those files again that its folder has lost") {
  const TempFolder folder;
  const std::string data = folder / "data/", run = folder / "run";
  fs::create_directory(data);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "train.jsonl", "test.jsonl"})
    fs::copy(std::string(FRUGAL_CONFIGS) + "/lora_sft/" + name, data);
  const std::string talks =
      R"("data": {"name": "conversations", "dir": ")" + data + R"(", "batch_size": 4,
          "max_length": 64, "truncate": true}, "train": {"steps": 2})";
  write_file(folder / "base.json", R"({"model": {"name": "decoder", "layers": 1, "width": 8,
      "heads": 2, "max_positions": 64}, )" +
                                       talks + "}");
  const Ran base =
      frugal("export " + folder / "base.json --random --format hf --output " + folder / "base");
  REQUIRE_MESSAGE(base.status == 0, base.err);
  std::string table = "a,b,kind\n", text;
  for (int i = 0; i < 40; ++i)
    table += fmt::format("{},{},{}\n", i, i % 7, i % 3 == 0 ? "yes" : "no");
  for (int i = 0; i < 100; ++i) text += "abcd abce ";
  write_file(folder / "table.csv", table);
  write_file(folder / "text.txt", text);
  const std::map<std::string, std::set<std::string>> runs = {
      {R"({"model": {"weights": ")" + folder / "base" + R"("}, "adapter": {"type": "lora"}, )" +
           talks + "}",
       {"base.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}},
      {R"({"model": {"name": "mlp", "hidden": [4]}, "data": {"name": "csv", "target": "kind",
          "dir": ")" +
           folder / "table.csv" + R"(", "batch_size": 8}, "train": {"steps": 2}})",
       {"classes.json", "columns.json"}},
      {R"({"model": {"name": "decoder", "layers": 1, "width": 8, "heads": 2, "max_positions": 16},
          "data": {"name": "text", "dir": ")" +
           folder / "text.txt" + R"(", "max_length": 8,
          "batch_size": 8}, "train": {"steps": 2}})",
       {"characters.txt"}}};
  for (const auto& [config, own] : runs) {
    CAPTURE(config);
    write_file(folder / "c.json", config);
    const std::string train = "train " + folder / "c.json" + " --out " + run;
    const Ran begun = frugal(train + " --overwrite");
    REQUIRE_MESSAGE(begun.status == 0, begun.err);
    std::map<std::string, std::string> files;
    for (const std::set<std::string>& names :
         {std::set<std::string>{"config.json", "input.json", "data.json"}, own})
      for (const std::string& name : names) {
        REQUIRE_MESSAGE(fs::exists(run + "/" + name), name);
        files[name] = read_file(run + "/" + name);
      }
    const auto goes_on = [&](const std::string& lost) {
      const Ran again = frugal(train + " --resume");
      CHECK_MESSAGE(again.status == 0, again.err);
      CHECK((again.err.find("written as the configuration") != std::string::npos) == !lost.empty());
      if (!lost.empty()) CHECK(has(again.err, "has no " + lost));
      for (const auto& [name, before] : files)
        CHECK_MESSAGE(read_file(run + "/" + name) == before, name);
    };
    goes_on("");
    for (const auto& [name, before] : files) {
      CAPTURE(name);
      fs::remove(run + "/" + name);
      goes_on(name);
    }
    for (const auto& [name, before] : files) fs::remove(run + "/" + name);
    goes_on("config.json");
  }
}

TEST_CASE("a folder whose configuration is of a large network takes no memory for it") {
  const TempFolder folder;
  const std::string run = folder / "run";
  write_file(folder / "c.json", R"({"model": {"name": "mlp", "hidden": [4]}, "data": {"name":
      "random", "shape": [4, 4, 1], "classes": 2, "train_samples": 8, "test_samples": 4,
      "batch_size": 4}, "train": {"epochs": 1}})");
  REQUIRE(frugal("train " + folder / "c.json" + " --out " + run).status == 0);
  Json config = Json::parse(read_file(run + "/config.json"));
  config["model"]["hidden"] = {4096, 4096};  // 64 MiB
  write_file(run + "/config.json", config.dump());
  for (const char* command : {"eval", "predict", "export --format safetensors --output none.st"}) {
    CAPTURE(command);
    const Ran ran = frugal(std::string(command) + " " + run + " --set memory_limit='\"8 MiB\"'" +
                           (std::string(command) == "predict" ? " " + folder / "c.json" : ""));
    CHECK(ran.status != 0);
    CHECK_MESSAGE(has(ran.err, "fc2.weight: expected [4096, 4096], got [2, 4]"), ran.err);
  }
}

TEST_CASE("what a killed process left of a file is removed, what others put there is not") {
  const TempFolder folder;
  const Config config = resolved(tiny());
  TrainOptions options;
  options.out = folder / "run";
  options.quiet = options.resume = true;
  TrainingRun(config, options).run();
  const std::string random = ".0123456789abcdef.tmp";
  for (const char* name : {"/checkpoint/state.safetensors", "/checkpoint/best.safetensors",
                           "/summary.json", "/config.json", "/input.json", "/metrics.csv"})
    write_file(options.out + name + random, "half of a file");
  write_file(folder / "secret", "mine");
  fs::create_symlink(folder / "secret", options.out + "/checkpoint/state.safetensors.tmp");
  write_file(options.out + "/checkpoint/notes.tmp", "mine");
  TrainingRun(config, options).run();
  CHECK(names_in(options.out) ==
        std::set<std::string>{"checkpoint", "config.json", "input.json", "metrics.csv",
                              "metrics.jsonl", "report.html", "summary.json", "tensor_times.json"});
  CHECK(names_in(options.out + "/checkpoint") ==
        std::set<std::string>{"best.safetensors", "last.safetensors", "notes.tmp", "seconds",
                              "state.safetensors"});
  CHECK(read_file(folder / "secret") == "mine");
}

TEST_CASE("a link in the place of a temporary file lets a run write nowhere else") {
  const TempFolder folder;
  write_file(folder / "secret", "mine");
  fs::create_directories(folder / "run/checkpoint");
  fs::create_symlink(folder / "secret", folder / "run/checkpoint/state.safetensors.tmp");
  fs::create_symlink(folder / "secret", folder / "run/config.json.tmp");
  TrainOptions options;
  options.out = folder / "run";
  options.quiet = options.resume = true;
  TrainingRun(resolved(tiny()), options).run();
  CHECK(read_file(folder / "secret") == "mine");
}

TEST_CASE("a run that goes on writes nothing through links that somebody put into its folder") {
  const TempFolder folder;
  write_file(folder / "c.json", tiny().dump());
  const std::string train = "train " + folder / "c.json" + " --resume --set train.tensorboard=true";
  const std::string run = folder / "run", secret = folder / "secret";
  const auto begin = [&] {
    fs::remove_all(run);
    fs::remove_all(secret);
    REQUIRE(frugal(train + " --set train.steps=4 --out " + run).status == 0);
  };
  const auto go_on = [&] { return frugal(train + " --extend 6 --out " + run); };
  for (const char* name : {"metrics.jsonl", "metrics.csv", "config.json", "report.html"}) {
    CAPTURE(std::string(name));
    begin();
    // What the run knows of its data is read before anything is written.
    const bool is_config = std::string(name) == "config.json";
    const std::string mine = is_config ? read_file(run + "/" + name) : "mine";
    write_file(secret, mine);
    fs::remove(run + "/" + name);
    fs::create_symlink(secret, run + "/" + name);
    check_fails(go_on(), 2, {name, "which is a link", "nothing was changed"});
    CHECK(read_file(secret) == mine);
  }
  for (const char* name : {"tensorboard", "checkpoint"}) {
    CAPTURE(std::string(name));
    begin();
    fs::rename(run + "/" + name, secret);
    fs::create_directory_symlink(secret, run + "/" + name);
    const auto before = names_in(secret);
    check_fails(go_on(), 2, {name, "which is a link"});
    CHECK(names_in(secret) == before);
  }
  // Commands that write files where they are told to.
  begin();
  fs::create_directory(secret);
  fs::create_directory_symlink(secret, run + "/more");
  check_fails(frugal("report " + run + " --out " + run + "/more/page.html"), 1,
              {"more", "is a link", "inside the folder of a run"});
  CHECK(fs::is_empty(secret));
  fs::remove(run + "/more");
  // Another name of the same file keeps what it has, as in a copy made of links.
  fs::create_hard_link(run + "/metrics.jsonl", folder / "copy");
  const std::string lines = read_file(folder / "copy");
  REQUIRE(go_on().status == 0);
  CHECK(read_file(folder / "copy") == lines);
  CHECK(read_file(run + "/metrics.jsonl").size() > lines.size());
  // The folder of the run may be a link.
  fs::rename(run, folder / "elsewhere");
  fs::create_directory_symlink(folder / "elsewhere", run);
  CHECK(frugal(train + " --extend 8 --out " + run).status == 0);
}

TEST_CASE("commands write nothing over what a run needs") {
  const TempFolder folder;
  const std::string run = folder / "run", config = folder / "c.json";
  write_file(config, R"({"model": {"name": "mlp", "hidden": [4]},
    "data": {"name": "random", "shape": [4, 4, 1], "classes": 3, "train_samples": 8,
             "test_samples": 4, "batch_size": 4},
    "train": {"steps": 2, "tensorboard": true}})");
  REQUIRE(frugal("train " + config + " --quiet --out " + run).status == 0);
  for (const char* name : {"config.json", "metrics.jsonl", "summary.json", "input.json",
                           "checkpoint/state.safetensors", "checkpoint/last.safetensors"})
    for (const std::string& command :
         {"report " + run + " --out ", "curve " + run + " --svg ",
          "profile " + config + " --steps 1 --trace ", "bench step " + config + " --trace ",
          "export " + run + " --format safetensors --overwrite --output "}) {
      CAPTURE(name);
      const std::string place = run + "/" + name, before = read_file(place);
      check_fails(frugal(command + place), 2, {name, "which a run needs"});
      CHECK(read_file(place) == before);
    }
  CHECK(frugal("report " + run + " --out " + run + "/report.html").status == 0);
  CHECK(frugal("export " + run + " --format safetensors --output " + folder / "w").status == 0);
  CHECK(frugal("train " + config + " --quiet --resume --out " + run).status == 0);
}

TEST_CASE("short epochs share a checkpoint, and a kill loses none of what it says") {
  const TempFolder folder;
  // Epochs of one step, with evaluations that often find a better one.
  write_file(folder / "c.json", R"({
    "model": {"name": "gcn", "width": 8, "dropout": 0.5},
    "data": {"name": "random_graph", "nodes": 120, "edges": 400, "features": 8, "classes": 3},
    "optim": {"name": "adam", "lr": 0.01},
    "train": {"epochs": 60, "log_interval": 1, "checkpoint_seconds": 1e6, "keep_best": 3,
              "tensorboard": true},
    "threads": 1})");
  const std::string run = "train " + folder / "c.json" + " --quiet --resume", out = folder / "cut";
  std::vector<std::string> seen;
  {
    TrainOptions options;
    options.out = folder / "whole";
    options.quiet = true;
    int64_t written = 0;
    options.saved = [&](int64_t) { ++written; };
    Config config = resolved(Json::parse(read_file(folder / "c.json")));
    synced = &seen;
    TrainingRun(config, options).run();
    synced = nullptr;
    CHECK(written == 0);      // the last one ends the run
    CHECK(seen.size() < 25);  // what waits for a checkpoint is synced once
    config.train.checkpoint_seconds = 0;
    options.out = folder / "each";
    TrainingRun(config, options).run();
    CHECK(written == 59);
  }
  // Cut before the first checkpoint, and between two.
  const std::string often = " --set train.checkpoint_interval=17";
  REQUIRE(cut_run(run, out, "metrics.jsonl", 500, SIGKILL) == 128 + SIGKILL);
  REQUIRE(cut_run(run + often, out, "checkpoint/state.safetensors", 0, SIGKILL) == 128 + SIGKILL);
  CHECK(fs::exists(out + "/checkpoint/state.safetensors"));
  REQUIRE(frugal(run + " --out " + out).status == 0);
  REQUIRE(frugal(run + " --out " + folder / "uncut").status == 0);
  // This program and the one that it starts may run other kernels (FRUGAL_HWY_TARGETS).
  for (const auto& [other, whole] :
       {std::pair{folder / "each", folder / "whole"}, std::pair{out, folder / "uncut"}}) {
    CHECK(names_in(other) == names_in(whole));
    CHECK(names_in(other + "/checkpoint") == names_in(whole + "/checkpoint"));
    for (const auto& entry : fs::directory_iterator(whole + "/checkpoint")) {
      const std::string name = entry.path().filename();
      CAPTURE(name);
      if (name != "state.safetensors" && name != "seconds")  // they hold a key and times
        CHECK(read_file(other + "/checkpoint/" + name) == read_file(entry.path()));
    }
    CHECK(read_file(other + "/metrics.jsonl") == read_file(whole + "/metrics.jsonl"));
  }
}

TEST_CASE("names last before a state relies on them") {
  const TempFolder folder;
  TrainOptions options;
  options.out = folder / "new/run";
  options.quiet = true;
  std::vector<std::string> seen;
  bool checked = false;
  options.saved = [&](int64_t) {
    if (std::exchange(checked, true)) return;
    const auto at = [&](const std::string& path) {
      return std::find(seen.begin(), seen.end(), path) - seen.begin();
    };
    const auto state = at(folder / "new/run/checkpoint");  // after the state was renamed, too
    const auto folder_of_metrics = at(folder / "new/run");
    const auto metrics = at(folder / "new/run/metrics.jsonl");
    CHECK(at(std::string(folder / "").substr(0, std::string(folder / "").size() - 1)) <
          folder_of_metrics);
    CHECK(at(folder / "new") < folder_of_metrics);
    CHECK(folder_of_metrics < metrics);
    CHECK(metrics < state);
    CHECK(state < static_cast<std::ptrdiff_t>(seen.size()));
  };
  synced = &seen;
  TrainingRun(resolved(tiny()), options).run();
  synced = nullptr;
  CHECK(checked);
}

TEST_CASE("the summary of a run that went on counts what all its parts moved") {
  const TempFolder folder;
  const Config config =
      resolved(tiny({{"level", "L1"},
                     {"offload", fs::temp_directory_path().string()},
                     {"advanced", {{"min_elements", 96}, {"offload_window", 0}}}}));
  TrainOptions options;
  options.quiet = options.resume = true;
  options.out = folder / "whole";
  options.saved = [&](int64_t step) {
    if (step == 4) fs::copy(options.out, folder / "cut", fs::copy_options::recursive);
  };
  const int64_t whole = TrainingRun(config, options).run()["offload"]["written_bytes"];
  options.saved = {};
  options.out = folder / "cut";
  const auto state = data::SafetensorsFile::open(options.out + "/checkpoint/state.safetensors");
  const int64_t before = Json::parse(state.metadata().at("run"))["offload"]["written"];
  const int64_t cut = TrainingRun(config, options).run()["offload"]["written_bytes"];
  REQUIRE(whole > 0);
  // Two of six steps are left. Which payloads go before they are written, the disk decides: a step
  // may write less than another one, but four write more than two.
  CHECK(before > 0);
  CHECK(cut > before);
  CHECK(cut - before < before);
}

}  // namespace frugal::apps

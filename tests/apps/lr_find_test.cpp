// frugal lr-find and frugal curve.
#include <doctest/doctest.h>

#include <cmath>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLittleBert = R"({
  "model": {"name": "bert_tiny", "layers": 1, "width": 16, "heads": 2, "vocab_size": 60},
  "data": {"name": "random_tokens", "batch_size": 8, "max_length": 12, "classes": 3},
  "optim": {"name": "adamw", "ema": 0.9, "in_backward": true}, "threads": 1})";
constexpr const char* kLittleGraph = R"({
  "model": {"name": "gcn", "width": 16}, "optim": {"name": "adam"},
  "data": {"name": "random_graph", "nodes": 300, "edges": 900, "features": 24, "classes": 3},
  "train": {"patience": 2}, "threads": 1})";

void check_narrow(const std::string& text) {
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(line.size() <= 80, line);
}

// How many files and folders lie below a folder.
int64_t entries(const std::string& folder) {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::recursive_directory_iterator(folder)) ++count;
  return count;
}

}  // namespace

TEST_CASE(
    "lr-find suggests a rate with every kind of data and of compression, and leaves nothing") {
  const TempFolder folder;
  write_file(folder / "images.json", kTinyConfig);
  write_file(folder / "bert.json", kLittleBert);
  write_file(folder / "graph.json", kLittleGraph);
  const int64_t before = entries(folder / "");
  for (const std::string& config :
       {std::string("images.json"), std::string("bert.json"), std::string("graph.json"),
        std::string("images.json --set compression.level=L0"),
        std::string("images.json --set compression.level=L2"),
        std::string("images.json --set 'compression.memory_budget=1/4 activations'"),
        std::string(
            "images.json --set train.early_stop.patience=1 --set train.gradient_accumulation=2")}) {
    CAPTURE(config);
    const Ran ran = shell("cd " + folder / "" + " && FRUGAL lr-find --json " + config);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const Json found = Json::parse(ran.out);
    REQUIRE(found["points"].size() > 20);
    const double first = found["points"][0]["lr"].get<double>();
    CHECK(first == doctest::Approx(1e-6).scale(0));
    // Rates rise by one factor.
    CHECK(found["points"][1]["lr"].get<double>() / first ==
          doctest::Approx(std::pow(10.0, 7.0 / 99)));
    REQUIRE(found["suggested"].is_number());
    const double suggested = found["suggested"].get<double>();
    CHECK(suggested > 1e-5);
    CHECK(suggested < 1);
    double lowest = 1e9, at = 0;
    for (const Json& point : found["points"])
      if (point["smoothed"].get<double>() < lowest)
        lowest = point["smoothed"].get<double>(), at = point["lr"].get<double>();
    CHECK(suggested == doctest::Approx(at / 3));
    CHECK(entries(folder / "") == before);
  }
  const Ran drawn = frugal("lr-find " + folder / "images.json" + " --steps 40 --to 100");
  REQUIRE_MESSAGE(drawn.status == 0, drawn.err);
  CHECK(drawn.out.find("optim.lr ") != std::string::npos);
  CHECK(drawn.out.find("learning rate") != std::string::npos);
  CHECK(std::count(drawn.out.begin(), drawn.out.end(), '*') > 20);
  check_narrow(drawn.out);
  // The loss grows, as it shall.
  const Ran wide =
      frugal("lr-find " + folder / "images.json" + " --to 1000 --set optim.clip_norm=0 --json");
  REQUIRE_MESSAGE(wide.status == 0, wide.err);
  CHECK_MESSAGE(wide.err.find("about to diverge") == std::string::npos, wide.err);
  // A rate at which nothing trains, and rates at which nothing is finite.
  const Ran flat = frugal("lr-find " + folder / "images.json" +
                          " --from 1e5 --to 1e6 --set optim.clip_norm=0 --json");
  REQUIRE_MESSAGE(flat.status == 0, flat.err);
  CHECK(Json::parse(flat.out)["diverged"] == true);
}

TEST_CASE("lr-find used wrongly") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const auto refused = [&](const std::string& arguments, const char* word) {
    const Ran ran = frugal("lr-find " + arguments);
    CHECK(ran.status == 2);
    CHECK_MESSAGE(ran.err.find(word) != std::string::npos, ran.err);
  };
  refused("", "CONFIG");
  refused(folder / "none.json", "none.json");
  refused(folder / "c.json --from 0", "--from");
  refused(folder / "c.json --from 1 --to 0.1", "--to");
  refused(folder / "c.json --steps 5", "--steps");
  refused(folder / "c.json --set device=meta", "on meta");
  refused(folder / "c.json --set optim.lrr=1", "optim.lr");
}

TEST_CASE("Ctrl-C ends lr-find and predictions cleanly") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  std::string words, train = "sentence\tlabel\n", texts;
  for (const char* word : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"})
    words += std::string(word) + "\n";
  for (int i = 0; i < 8; ++i) train += fmt::format("good\t{}\n", i % 2);
  for (int i = 0; i < 400000; ++i) texts += "good bad good bad good\n";
  write_file(folder / "vocab.txt", words);
  write_file(folder / "train.tsv", train);
  write_file(folder / "dev.tsv", train);
  write_file(folder / "texts.txt", texts);
  write_file(folder / "bert.json", fmt::format(R"({{
    "model": {{"name": "bert_tiny", "layers": 1, "width": 16, "heads": 2, "max_positions": 16}},
    "data": {{"name": "sst2", "dir": "{0}", "vocabulary": "{0}/vocab.txt", "max_length": 14}},
    "train": {{"steps": 1}}}})",
                                               folder / ""));
  const std::string run = folder / "run";
  REQUIRE(frugal("train " + folder / "bert.json" + " --out " + run).status == 0);
  // The command is in the foreground, as the shell lets its background processes ignore SIGINT. The
  // signal comes when the command has a handler for it. At such low rates nothing diverges.
  for (const std::string& command :
       {"lr-find " + folder / "c.json" + " --from 1e-9 --to 1e-8 --steps 100000",
        "predict " + run + " " + folder / "texts.txt"}) {
    CAPTURE(command);
    fs::remove(folder / "pid");
    const Ran ran = shell(fmt::format(
        "( until [ -s {0} ]; do sleep 0.02; done; pid=$(cat {0}); until [ $(( 0x$(sed -n "
        "'s/^SigCgt:.//p' /proc/$pid/status) & 2 )) -ne 0 ]; do sleep 0.02; done; sleep 0.1; kill "
        "-INT $pid ) & sh -c 'echo $$ >{0}; exec \"$@\"' sh FRUGAL {1}",
        folder / "pid", command));
    CHECK(ran.status == 130);
    CHECK_MESSAGE(ran.err.find("error: interrupted ") != std::string::npos, ran.err);
  }
}

TEST_CASE("a rate at which measured sensitivities are not finite ends the range, and no command") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({
    "model": {"name": "mlp", "hidden": [64, 64]},
    "data": {"name": "random", "shape": [6, 6, 1], "classes": 3, "batch_size": 32,
             "train_samples": 1280, "test_samples": 64},
    "compression": {"bits": 2.5, "policy": "gact", "gact": {"interval": 1},
                    "advanced": {"min_elements": 96}},
    "train": {"epochs": 1}, "threads": 1})");
  const Ran found =
      frugal("lr-find " + (folder / "c.json") + " --json --from 1e-2 --to 1e6 --steps 10");
  REQUIRE_MESSAGE(found.status == 0, found.err);
  CHECK(Json::parse(found.out)["diverged"] == true);
  const Ran trained =
      frugal("train " + (folder / "c.json") + " --set optim.lr=1e4 --out " + (folder / "run"));
  CHECK(trained.status == 1);
  CHECK_MESSAGE(has(trained.err, "error: [train] step "), trained.err);
  CHECK(has(trained.err, "Try a lower optim.lr"));
  // The run is shorter than its first checkpoint.
  CHECK_FALSE(has(trained.err, "checkpoint is kept"));
}

TEST_CASE("curve draws runs, alone and together") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  for (const char* name : {"a", "b"})
    REQUIRE(frugal("train " + folder / "c.json" + " --out " + folder / name +
                   " --set seed=" + std::to_string(name[0]))
                .status == 0);
  const Ran one = frugal("curve " + folder / "a");
  REQUIRE_MESSAGE(one.status == 0, one.err);
  CHECK(one.out.find("* test\n") != std::string::npos);
  CHECK(one.out.find("o train\n") != std::string::npos);
  check_narrow(one.out);
  const Ran two = frugal("curve " + folder / "a" + " " + folder / "b" + " --of accuracy --svg " +
                         folder / "c.svg");
  REQUIRE_MESSAGE(two.status == 0, two.err);
  check_narrow(two.out);
  const std::string svg = read_file(folder / "c.svg");
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.find("<path class=\"line", svg.find("<path class=\"line") + 1) != std::string::npos);
  CHECK(svg.ends_with("</svg>\n"));
  // A name of a folder is no command of the terminal.
  const std::string red = folder / "rot\x1b[31m";
  std::filesystem::copy(folder / "b", red, std::filesystem::copy_options::recursive);
  for (const char* command : {"compare ", "curve "}) {
    const Ran shown = frugal(command + ("'" + red + "' ") + folder / "a");
    CHECK_MESSAGE(shown.status == 0, shown.err);
    CHECK(shown.out.find("rot\\x1b[31m") != std::string::npos);
    CHECK(shown.out.find('\x1b') == std::string::npos);
  }
  const Json json = Json::parse(frugal("curve --json " + folder / "a").out);
  CHECK(json[folder / "a"]["test"].size() == 2);
  CHECK(json[folder / "a"]["train"].size() == 26);
  // The last line of a run at work may be half a line.
  std::ofstream(folder / "a/metrics.jsonl", std::ios::app) << R"({"type": "st)";
  CHECK(frugal("curve " + folder / "a --of lr").status == 0);
  std::ofstream(folder / "a/metrics.jsonl", std::ios::app) << "\n";
  const auto refused = [&](const std::string& arguments, int status, const char* word) {
    const Ran ran = frugal("curve " + arguments);
    CHECK(ran.status == status);
    CHECK_MESSAGE(ran.err.find(word) != std::string::npos, ran.err);
  };
  refused(folder / "a", 1, "line 33");
  refused(folder / "", 2, "metrics.jsonl");
  refused("", 2, "RUN");
  refused(folder / "b --of speed", 2, "--of");
  refused(folder / "b --svg " + folder / "none/c.svg", 2, "c.svg");
  write_file(folder / "b/metrics.jsonl", "");
  refused(folder / "b", 1, "measure no loss");
  std::filesystem::remove(folder / "b/summary.json");
  refused(folder / "b", 1, "no loss yet");
  refused(folder / "b --of lr", 1, "noted no lr yet: it is noted each train.log_interval steps");
  REQUIRE(
      frugal("train " + folder / "c.json" + " --set train.log_interval=1000 --out " + folder / "c")
          .status == 0);
  for (const char* of : {"lr", "grad_norm"})
    refused(folder / "c --of " + of, 1,
            "each train.log_interval steps, and the runs have fewer steps than that");
}

TEST_CASE("lr-find takes losses below 0, and no limit of time") {
  const TempFolder folder;
  write_file(folder / "simsiam.json", R"({
    "model": {"name": "simsiam", "trunk": "resnet20", "layers": 8, "width": 4,
              "projector": [16, 8], "predictor": 6},
    "data": {"name": "random", "shape": [12, 12, 3], "classes": 3, "batch_size": 8,
             "train_samples": 20, "test_samples": 10},
    "threads": 1})");
  write_file(folder / "images.json", kTinyConfig);
  for (const std::string& config : {folder / "simsiam.json --steps 30 --to 0.1",
                                    folder / "images.json --steps 30 --to 0.1 --set "
                                             "train.max_seconds=0.001"}) {
    CAPTURE(config);
    const Ran ran = frugal("lr-find --json " + config);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const Json found = Json::parse(ran.out);
    CHECK(found["points"].size() == 30);
    CHECK(found["diverged"] == false);
    CHECK(found["suggested"].is_number());
  }
  const Ran drawn = frugal("lr-find " + (folder / "simsiam.json --steps 30 --to 0.1"));
  REQUIRE_MESSAGE(drawn.status == 0, drawn.err);
  check_narrow(drawn.out);
  // A falling loss is drawn as a curve, and not as a line at the upper edge.
  int64_t rows = 0;
  std::stringstream lines(drawn.out);
  for (std::string line; std::getline(lines, line);)
    rows += line.find('*') != std::string::npos ? 1 : 0;
  CHECK(rows > 3);
}

}  // namespace frugal::apps

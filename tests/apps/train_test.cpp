// The real binary: runs that are interrupted, and what a run leaves behind.
#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "apps/cli/signals.h"
#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

void check_same_run(const std::string& a, const std::string& b) {
  for (const char* name : {"metrics.jsonl", "config.json", "checkpoint/last.safetensors",
                           "checkpoint/best.safetensors", "checkpoint/state.safetensors"}) {
    CAPTURE(name);
    const bool same = read_file(a + "/" + name) == read_file(b + "/" + name);
    CHECK(same);
    CHECK(!read_file(a + "/" + name).empty());
  }
  Json x = Json::parse(read_file(a + "/summary.json"));
  Json y = Json::parse(read_file(b + "/summary.json"));
  for (Json* summary : {&x, &y}) {
    summary->erase("speed");
    (*summary)["memory"].erase("host_peak_rss");
  }
  CHECK(x == y);
}

}  // namespace

TEST_CASE("a run leaves its configuration, metrics, summary and checkpoints") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const Ran ran = frugal("train " + folder / "c.json" + " --json --out " + folder / "run");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json summary = Json::parse(ran.out);
  CHECK(summary == Json::parse(read_file(folder / "run/summary.json")));
  CHECK(summary["steps"] == 80);
  CHECK(summary["epochs"] == 2);
  CHECK(summary["final"]["test_accuracy"].get<double>() > 0.5);
  CHECK(summary["best"]["test_accuracy"] >= summary["final"]["test_accuracy"]);
  for (const char* key : {"activation_bytes", "packed_bytes", "peak_bytes", "host_peak_rss"})
    CHECK(summary["memory"][key].get<int64_t>() > 0);
  CHECK(summary["memory"]["packed_bytes"] <= summary["memory"]["activation_bytes"]);
  int64_t total = 0;
  for (const auto& bytes : summary["memory"]["at_peak"]) total += bytes.get<int64_t>();
  CHECK(total == summary["memory"]["peak_bytes"]);
  CHECK(summary["config_sha256"].get<std::string>().size() == 64);
  CHECK(summary["speed"]["step_ms_median"].get<double>() > 0);
  std::stringstream lines(read_file(folder / "run/metrics.jsonl"));
  int steps = 0, epochs = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json entry = Json::parse(line);
    steps += entry["type"] == "step";
    epochs += entry["type"] == "epoch";
  }
  CHECK(steps == 26);
  CHECK(epochs == 2);

  const Ran eval = frugal("eval " + folder / "c.json" + " --json --checkpoint " +
                          folder / "run/checkpoint/last.safetensors");
  REQUIRE_MESSAGE(eval.status == 0, eval.err);
  const Json result = Json::parse(eval.out);
  CHECK(result["samples"] == 64);
  CHECK(result["accuracy"] == summary["final"]["test_accuracy"]);
  CHECK(result["loss"] == summary["final"]["test_loss"]);

  CHECK(frugal("train " + folder / "c.json" + " --out " + folder / "run").status == 2);
  const Ran again =
      frugal("train " + folder / "c.json" + " --resume --json --out " + folder / "run");
  CHECK(again.status == 0);  // nothing left to do
  const Ran other =
      frugal("train " + folder / "c.json" + " --set seed=1 --resume --out " + folder / "run");
  CHECK(other.status == 2);
  CHECK(other.err.find("seed") != std::string::npos);
  const Ran table = frugal("compare " + folder / "run" + " " + folder / "run");
  CHECK(table.status == 0);
  CHECK(table.out.find("activation memory") != std::string::npos);
}

TEST_CASE("a run killed at any moment ends with the same bytes as one that was not") {
  const char* level = "L1";
  SUBCASE("of a fixed width") {}
  SUBCASE("of widths that adapt") { level = "L2"; }
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  std::string arguments =
      "train " + folder / "c.json" + " --set train.epochs=6 --set compression.level=" + level;
  if (level == std::string("L2")) arguments += " --set compression.gact.interval=7";
  const auto with = [&](const std::string& out) {
    return arguments + " --resume --out " + folder / out;
  };
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(wait_for(start(with("whole"))) == 0);
  const std::chrono::duration<double, std::micro> whole = std::chrono::steady_clock::now() - begin;
  std::mt19937 random(7);
  int kills = 0;
  // A whole run that a busy machine slowed down tells too long a time: then again, sooner.
  for (double share = 1; kills < 2 && share > 1e-3; share /= 2) {
    std::filesystem::remove_all(folder / "cut");
    kills = 0;
    int status = 0;
    do {
      const pid_t child = start(with("cut"));
      if (kills < 10) {  // moments spread over the time that a whole run takes
        const double part = 0.05 + 0.4 * static_cast<double>(random() % 1000) / 1000;
        std::this_thread::sleep_for(share * part * whole);
        kill(child, SIGKILL);
      }
      status = wait_for(child);
      REQUIRE((status == 0 || status == 128 + SIGKILL));
      if (status != 0) ++kills;
    } while (status != 0);
  }
  CHECK(kills >= 2);
  check_same_run(folder / "whole", folder / "cut");
}

TEST_CASE(
    "SIGTERM, SIGINT and SIGUSR1: the step is finished, a checkpoint written, the status tells") {
  const TempFolder folder;
  Json longer = Json::parse(kTinyConfig);
  longer["data"]["train_samples"] = 6400;
  longer["train"]["checkpoint_interval"] = 0;
  write_file(folder / "c.json", longer.dump());
  REQUIRE(frugal("train " + folder / "c.json" + " --out " + folder / "whole").status == 0);
  const std::string train = "train " + folder / "c.json" + " --resume";
  for (const auto& [number, status] :
       {std::pair{SIGTERM, 143}, std::pair{SIGINT, 130}, std::pair{SIGUSR1, 138}}) {
    std::error_code none;
    const uintmax_t before = std::filesystem::file_size(folder / "cut/metrics.jsonl", none);
    CHECK(cut_run(train, folder / "cut", "metrics.jsonl", none ? 0 : before, number) == status);
    CHECK(std::filesystem::exists(folder / "cut/checkpoint/state.safetensors"));
    CHECK(!std::filesystem::exists(folder / "cut/summary.json"));
  }
  CHECK(wait_for(start(train + " --out " + folder / "cut")) == 0);
  check_same_run(folder / "whole", folder / "cut");
}

// A kernel of oneDNN may keep the address of a small buffer in the stack pointer.
TEST_CASE("signals are handled on a stack of their own") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    catch_signals();
    int missing = 0;
    for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
      struct sigaction action = {};
      sigaction(number, nullptr, &action);
      missing += (action.sa_flags & SA_ONSTACK) == 0;
    }
    stack_t stack = {};
    sigaltstack(nullptr, &stack);
    missing += (stack.ss_flags & SS_DISABLE) != 0 || stack.ss_size < (16U << 10);
    _exit(missing);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("results do not depend on workers or how often checkpoints are written") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string train = "train " + folder / "c.json";
  REQUIRE(frugal(train + " --out " + folder / "a").status == 0);
  REQUIRE(frugal(train + " --out " + folder / "b" +
                 " --set data.workers=3 --set train.checkpoint_interval=0")
              .status == 0);
  CHECK(results_in(folder / "a/metrics.jsonl") == results_in(folder / "b/metrics.jsonl"));
  CHECK(read_file(folder / "a/checkpoint/last.safetensors") ==
        read_file(folder / "b/checkpoint/last.safetensors"));
}

TEST_CASE("results do not depend on threads, but for rounding without AVX-512") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const auto loss = [&](const char* threads) {
    const Ran ran = frugal("train " + folder / "c.json" + " --json --set threads=" + threads +
                           " --out " + folder / threads);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(ran.out)["final"]["test_loss"].get<double>();
  };
  const double one = loss("1");
  // 80 steps; a sum of 32 terms of f32 is right to about 1e-6.
  CHECK(loss("2") == doctest::Approx(one).epsilon(1e-3));
  CHECK(loss("3") == doctest::Approx(one).epsilon(1e-3));
  if (!products_ignore_threads()) return;
  CHECK(results_in(folder / "1/metrics.jsonl") == results_in(folder / "3/metrics.jsonl"));
  CHECK(read_file(folder / "1/checkpoint/last.safetensors") ==
        read_file(folder / "3/checkpoint/last.safetensors"));
}

TEST_CASE("gradient accumulation gives the gradient of the whole batch") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string train = "train " + folder / "c.json" +
                            " --set compression.level=L0 --set model.dropout=0 --set train.steps=5 "
                            "--json --set train.log_interval=1 --out ";
  REQUIRE(frugal(train + folder / "a").status == 0);
  REQUIRE(
      frugal(train + folder / "b" + " --set data.batch_size=8 --set train.gradient_accumulation=4")
          .status == 0);
  std::stringstream a(read_file(folder / "a/metrics.jsonl")),
      b(read_file(folder / "b/metrics.jsonl"));
  int steps = 0;
  for (std::string x, y; std::getline(a, x) && std::getline(b, y);) {
    const Json first = Json::parse(x), second = Json::parse(y);
    if (first["type"] != "step") continue;
    ++steps;
    CHECK(first["loss"].get<double>() ==
          doctest::Approx(second["loss"].get<double>()).epsilon(1e-4));
    CHECK(first["grad_norm"].get<double>() ==
          doctest::Approx(second["grad_norm"].get<double>()).epsilon(1e-3));
  }
  CHECK(steps == 5);
}

TEST_CASE("parameters updated in backward end as they would after it, in less memory") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string train = "train " + folder / "c.json" + " --json --set optim.clip_norm=0 --out ";
  const Ran after = frugal(train + folder / "a" + " --set optim.in_backward=false");
  const Ran in = frugal(train + folder / "b" + " --set optim.in_backward=true");
  REQUIRE_MESSAGE(after.status == 0, after.err);
  REQUIRE_MESSAGE(in.status == 0, in.err);
  const Json a = Json::parse(after.out), b = Json::parse(in.out);
  CHECK(a["final"] == b["final"]);
  CHECK(a["best"] == b["best"]);
  CHECK(b["memory"]["peak_bytes"] < a["memory"]["peak_bytes"]);
  const Ran lost =
      frugal(train + folder / "c" + " --set optim.in_backward=true --set optim.lr=9999");
  CHECK(lost.status == 1);
  CHECK(lost.err.find("finite") != std::string::npos);
}

TEST_CASE("lamb without weight decay is LAMB, and adam only where nothing has two axes") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({
    "model": {"name": "mlp", "hidden": [16]},
    "data": {"name": "random", "shape": [4, 4, 1], "classes": 3, "batch_size": 16,
             "train_samples": 64, "test_samples": 16},
    "optim": {"lr": 0.01, "weight_decay": 0}, "train": {"epochs": 1}, "threads": 1})");
  const auto trained = [&](const std::string& more) {
    const Ran ran = frugal("train " + (folder / "c.json") + " --json " + more);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(ran.out)["final"]["train_loss"].get<double>();
  };
  const auto apart = [&](const std::string& more) {
    return std::abs(trained("--set optim.name=lamb" + more) -
                    trained("--set optim.name=adam" + more));
  };
  CHECK(apart("") > 1e-4);
  CHECK(apart(" --set 'train.freeze=[\"*weight\"]'") < 1e-6);
}

}  // namespace frugal::apps

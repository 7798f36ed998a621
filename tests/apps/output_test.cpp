// What commands print arrives, or they say that it did not; commands in one process.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "apps/cli/cli.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

// Devices may be missing where tests run.
bool has_full_device() { return fs::is_character_file("/dev/full"); }

struct Commands {
  TempFolder folder;
  std::string run = folder / "run";
  std::vector<std::string> all;
  Commands() {
    write_file(folder / "c.json", kTinyConfig);
    REQUIRE(frugal("train " + folder / "c.json --quiet --out " + run).status == 0);
    const std::string weights = run + "/checkpoint/last.safetensors";
    all = {"schema",
           "train " + folder / "c.json --print-config",
           "train --help-config",
           "curve " + run,
           "inspect " + weights,
           "inspect --json " + weights,
           "data list",
           "data list --json",
           "compare " + run,
           "eval " + run,
           "--help",
           "train --help",
           "--version",
           "plan " + folder / "c.json",
           "export --overwrite --output " + folder / "w.safetensors " + run};
  }
};

TEST_CASE_FIXTURE(Commands, "a command whose output is lost on a full disk fails") {
  if (!has_full_device()) return;
  for (const std::string& command : all) {
    CAPTURE(command);
    const Ran ran = shell("FRUGAL " + command + " >/dev/full");
    CHECK(ran.status == 1);
    CHECK(has(ran.err, "cannot write to stdout"));
    CHECK(frugal(command).status == 0);
  }
}

TEST_CASE_FIXTURE(Commands, "what commands print for people fits into 80 columns") {
  const std::string config = folder / "c.json";
  write_file(folder / "deep.json", R"({
    "model": {"name": "resnet56"},
    "data": {"name": "random", "shape": [8, 8, 3], "train_samples": 64, "batch_size": 32},
    "compression": {"advanced": {"min_elements": 96}}})");
  const std::string deep = folder / "deep.json";
  std::vector<std::string> printed = {"train --help-config",
                                      "curve " + run,
                                      "inspect " + run,
                                      "data list",
                                      "compare " + run,
                                      "eval " + run,
                                      "reproduce",
                                      "profile --steps 1 " + config,
                                      "profile --steps 1 --by layer " + deep,
                                      "profile --steps 1 --set device=meta " + deep,
                                      "plan " + config,
                                      "plan --explain " + deep,
                                      "plan --memory '64 MiB' " + deep,
                                      "lr-find --steps 20 " + config,
                                      "--help"};
  for (const char* command :
       {"train",      "eval",       "predict",         "generate",       "grad",
        "profile",    "plan",       "lr-find",         "curve",          "report",
        "inspect",    "export",     "compare",         "schema",         "data",
        "data list",  "data fetch", "data check",      "reproduce",      "bench",
        "bench step", "bench ops",  "bench quantizer", "bench variance", "bench distributed"})
    printed.push_back(std::string(command) + " --help");
  for (const std::string& command : printed) {
    CAPTURE(command);
    const Ran ran = frugal(command);
    CHECK_MESSAGE(ran.status == 0, ran.err);
    CHECK_MESSAGE(longest_line(ran.out) <= 80, ran.out);
  }
}

TEST_CASE_FIXTURE(Commands, "a command whose reader is gone ends without a word") {
  for (const std::string& command : all) {
    CAPTURE(command);
    // `true` has ended before the command prints.
    const Ran ran = run_shell("bash -c '{ sleep 0.3; exec " FRUGAL_BINARY " " + command +
                              "; } | true; exit ${PIPESTATUS[0]}'");
    CHECK(ran.status == 141);
    CHECK(ran.err.find("error") == std::string::npos);
  }
}

// Several commands in one process, as a program that embeds them runs them.
int call(std::vector<std::string> words) {
  words.insert(words.begin(), "frugal");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return run_cli(static_cast<int>(words.size()), arguments.data());
}

// Runs `f` in a process of its own, which prints to the file, and gives what `f` gives.
template <class F>
int in_child(const std::string& file, const F& f) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const int out = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    const int status = f();
    std::fflush(stdout);
    _exit(status);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST_CASE("calls of one process do not know each other's options") {
  const TempFolder folder;
  const std::string config = folder / "c.json", printed = folder / "printed";
  write_file(config, kTinyConfig);
  CHECK(in_child(printed, [&] {
          if (call({"plan", config, "--explain", "--json"}) != 0) return 1;
          return call({"plan"});
        }) == 2);
  CHECK(has(read_file(printed), "plan: expected a CONFIG file"));
  CHECK(in_child(printed, [&] {
          if (call({"train", config, "--print-config", "--set", "train.steps=77"}) != 0) return 1;
          std::puts("-- the second call");
          return call({"train", config, "--json", "--set", "threads=1"});
        }) == 0);
  const std::string second = read_file(printed).substr(read_file(printed).rfind("-- the second"));
  CHECK(has(second, "\"peak_bytes\""));  // a summary, and no configuration
  CHECK(in_child(printed, [&] {
          return call({"data", "list", "--json"}) + call({"data", "list"});
        }) == 0);
  CHECK(has(read_file(printed), "\nfashion_mnist "));  // a table
}

TEST_CASE("a call leaves the settings of its process as they were") {
  const TempFolder folder;
  const std::string config = folder / "c.json";
  write_file(config, kTinyConfig);
  CHECK(in_child(folder / "printed", [&] {
          set_num_threads(3);
          log().set_level(spdlog::level::warn);
          const int status = call(
              {"train", config, "--quiet", "--set", "threads=1", "--set", "memory_limit=1 GiB"});
          if (status != 0) return status;
          if (num_threads() != 3) return 10;
          if (log().level() != spdlog::level::warn) return 11;
          return allocator(kCpu).report().limit == 0 ? 0 : 12;
        }) == 0);
}

}  // namespace
}  // namespace frugal::apps

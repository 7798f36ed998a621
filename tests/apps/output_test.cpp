// What commands print arrives, or they say that it did not.
#include <doctest/doctest.h>

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

}  // namespace
}  // namespace frugal::apps

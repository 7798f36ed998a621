// Folders in which no run can be written say so, and stay as they are.
#include "train/run/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/train/temp_folder.h"

namespace frugal::train {
namespace {

namespace fs = std::filesystem;

doctest::Contains says(const std::string& message) { return doctest::Contains(message.c_str()); }

TEST_CASE("two runs do not write into one folder") {
  const TempFolder folder;
  const std::string path = folder.path + "/run";
  {
    RunFolder first(path, false);
    CHECK_THROWS_WITH_AS(RunFolder(path, true),
                         says("[output] another process is training in " + path), Error);
    CHECK(fs::exists(path + "/checkpoint"));  // the second one took nothing away
    first.keep();
  }
  CHECK_NOTHROW(RunFolder(path, true));
}

TEST_CASE("a path that can be no folder is named") {
  const TempFolder folder;
  std::ofstream(folder.path + "/file") << "text";
  const std::string path = folder.path + "/file/run";
  CHECK_THROWS_WITH_AS(RunFolder(path, false),
                       says("[output] cannot use the folder " + path + ": Not a directory"), Error);
  CHECK(fs::file_size(folder.path + "/file") == 4);
}

TEST_CASE("what stands in the place of a file that a run appends to is named") {
  const TempFolder folder;
  const std::string path = folder.path + "/run", metrics = path + "/metrics.jsonl";
  RunFolder run(path, false);
  CHECK_THROWS_WITH_AS(run.start_appending("notes.txt", 0),
                       "[output] expected the name of a file of runs (train/run/run_folder.h), got "
                       "\"notes.txt\"",
                       Error);
  CHECK_FALSE(fs::exists(path + "/notes.txt"));
  fs::create_directory(metrics);
  CHECK_THROWS_WITH_AS(run.start_metrics(0),
                       says("[output] cannot open " + metrics + ": Is a directory"), Error);
  fs::remove(metrics);
  REQUIRE(mkfifo(metrics.c_str(), 0600) == 0);
  const int reader = open(metrics.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(reader >= 0);
  CHECK_THROWS_WITH_AS(run.start_metrics(0), says("[output] expected a regular file at " + metrics),
                       Error);
  close(reader);
  fs::remove(metrics);
  std::ofstream(metrics) << "{}\n";
  CHECK_THROWS_WITH_AS(run.start_metrics(100),
                       says("[checkpoint] expected at least 100 bytes in " + metrics + ", got 3"),
                       Error);
  CHECK(fs::file_size(metrics) == 3);
  run.start_metrics(3);
  run.append_metrics("{}");
  CHECK(fs::file_size(metrics) == 6);
}

TEST_CASE("a run that cannot be removed is not replaced") {
  const TempFolder folder;
  const std::string path = folder.path + "/run", state = path + "/checkpoint/state.safetensors";
  fs::create_directories(path + "/checkpoint");
  std::ofstream(state) << "a state";
  RunFolder run(path, false, true);
  fs::remove(state);  // somebody puts a folder there before the run begins
  fs::create_directory(state);
  std::ofstream(state + "/own.txt") << "text";
  CHECK_THROWS_WITH_AS(run.replace(),
                       says("[output] cannot replace the run in " + path + ": Directory not empty"),
                       Error);
  CHECK(fs::exists(state + "/own.txt"));
}

}  // namespace
}  // namespace frugal::train

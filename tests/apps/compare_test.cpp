#include "apps/compare.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"

using frugal::Error;
using frugal::apps::compare_runs;
namespace fs = std::filesystem;

namespace {

// A directory that lives as long as the test, with a run in each of its folders.
struct Runs {
  fs::path root;
  Runs() {
    static int count = 0;
    root = fs::temp_directory_path() /
           ("frugal_compare_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    fs::remove_all(root);
  }
  ~Runs() { fs::remove_all(root); }
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;

  std::string write(const std::string& name, const std::string& summary) const {
    fs::create_directories(root / name);
    std::ofstream(root / name / "summary.json") << summary;
    return (root / name).string();
  }
};

std::string summary(int mebibytes, double step_ms) {
  const std::string bytes = std::to_string(mebibytes * (1 << 20));
  std::string at_peak;
  for (const char* category :
       {"parameter", "gradient", "optimizer", "activation", "packed", "workspace", "input"}) {
    at_peak += (at_peak.empty() ? "\"" : ", \"") + std::string(category) + "\": " + bytes;
  }
  return R"({"final": {"test_accuracy": 0.9125}, "best": {"test_accuracy": 0.92}, "memory": {)"
         R"("activation_bytes": )" +
         bytes + R"(, "packed_bytes": )" + bytes + R"(, "peak_bytes": )" + bytes +
         R"(, "at_peak": {)" + at_peak + R"(}}, "speed": {"samples_per_second": 1000, )" +
         R"("step_ms_median": )" + std::to_string(step_ms) + "}}";
}

}  // namespace

TEST_CASE("compare: runs side by side, with the ratio to the first") {
  const Runs runs;
  const std::string table =
      compare_runs({runs.write("L0", summary(64, 20)), runs.write("L1", summary(16, 25)) + "/"});
  CHECK(table.find("L0 / L1") != std::string::npos);
  CHECK(table.find("91.25 %") != std::string::npos);
  CHECK(table.find("64.00 MiB     16.00 MiB         4.00x") != std::string::npos);
  CHECK(table.find("20.0 ms       25.0 ms         0.80x") != std::string::npos);
}

TEST_CASE("compare: one run has no ratio") {
  const Runs runs;
  const std::string table = compare_runs({runs.write("only", summary(1, 1))});
  CHECK(table.find(" / ") == std::string::npos);
}

TEST_CASE("compare: errors name the file and the field") {
  const Runs runs;
  CHECK_THROWS_WITH_AS(compare_runs({}),
                       "[compare] expected at least one run's directory, got none", Error);
  CHECK_THROWS_AS(compare_runs({(runs.root / "none").string()}), Error);
  CHECK_THROWS_AS(compare_runs({runs.write("bad", "{")}), Error);
  try {
    compare_runs({runs.write("partial", R"({"final": {"test_accuracy": 0.5}})")});
    FAIL("a missing field was accepted");
  } catch (const Error& error) {
    const std::string what = error.what();
    CHECK(what.find("/best/test_accuracy") != std::string::npos);
    CHECK(what.find("partial") != std::string::npos);
  }
}

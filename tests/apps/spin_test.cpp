// How long OpenMP's threads spin, as the runtime itself reports it.
#include "core/spin.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

// What GNU OpenMP read from the environment of the process that did the work: the last report,
// since a restarted program reports twice.
std::string spin_count(const std::string& environment) {
  const Ran ran = shell("env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose " +
                        environment + " FRUGAL --help");
  REQUIRE(ran.status == 0);
  const size_t at = ran.err.rfind("GOMP_SPINCOUNT = '");
  if (at == std::string::npos) return "no GNU OpenMP";
  const size_t begin = at + 18;
  return ran.err.substr(begin, ran.err.find('\'', begin) - begin);
}

TEST_CASE("the binary's threads spin briefly, unless the environment says otherwise") {
  const std::string usual = spin_count("");
  if (usual == "no GNU OpenMP") {
    MESSAGE("skipped: the OpenMP runtime is not GNU's, so it has no spin count");
    return;
  }
  // 0 where other tests use the cores at the same time.
  CHECK((usual == std::to_string(kSpinCount) || usual == "0"));
  CHECK(spin_count("GOMP_SPINCOUNT=77") == "77");
  CHECK(spin_count("OMP_WAIT_POLICY=passive") == "0");
}

TEST_CASE("beside other busy processes, threads that wait sleep") {
  if (spin_count("") == "no GNU OpenMP") {
    MESSAGE("skipped: the OpenMP runtime is not GNU's, so it has no spin count");
    return;
  }
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 2 * std::max(1u, std::thread::hardware_concurrency()); ++i)
    others.emplace_back([&stop] {
      while (!stop) {
      }
    });
  const double share = share_of_cores();
  const std::string count = spin_count("");
  stop = true;
  for (std::thread& other : others) other.join();
  CHECK(share < 0.7);
  CHECK(count == "0");
}

// The threads with which the process that did the work begins; empty: not GNU OpenMP.
std::string threads(const std::string& environment) {
  const Ran ran =
      shell("env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT -u OMP_NUM_THREADS OMP_DISPLAY_ENV=verbose " +
            environment + " FRUGAL --help");
  REQUIRE(ran.status == 0);
  const std::string name = "OMP_NUM_THREADS = '";
  const size_t at = ran.err.rfind(name);
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size();
  return ran.err.substr(begin, ran.err.find('\'', begin) - begin);
}

TEST_CASE("a restarted program has all cores where OpenMP binds its threads") {
  CHECK(threads("OMP_PROC_BIND=true") == threads(""));
}

// oneDNN leaves out what the threads that are missing should have computed
// (findings/onednn_fewer_threads.sh).
TEST_CASE("a run is right where OpenMP gives fewer threads than it says") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({"model": {"name": "mlp", "hidden": [128]},
    "data": {"name": "random", "shape": [8, 8, 3], "train_samples": 256, "test_samples": 64,
             "batch_size": 64}, "train": {"steps": 3}})");
  const auto loss = [&](const std::string& environment) {
    const Ran ran = shell("cd " + folder / "" + " && rm -rf run && env OMP_NUM_THREADS=3 " +
                          environment + " FRUGAL train c.json --out run");
    CAPTURE(environment);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const Json summary = Json::parse(read_file(folder / "run/summary.json"));
    return summary.at("final").at("test_loss").get<double>();
  };
  const double right = loss("");
  for (const char* environment : {"OMP_THREAD_LIMIT=1", "OMP_THREAD_LIMIT=2", "OMP_DYNAMIC=true",
                                  "OMP_MAX_ACTIVE_LEVELS=0"}) {
    CAPTURE(environment);
    CHECK(loss(environment) == doctest::Approx(right));
  }
}

TEST_CASE("a restarted program keeps its arguments") {
  const Ran ran = shell("env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT FRUGAL inspect 'no such  file'");
  CHECK(ran.status == 2);
  CHECK(ran.err.find("no such  file") != std::string::npos);
}

}  // namespace
}  // namespace frugal::apps

// The file of results.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <sstream>
#include <thread>

#include "apps/reproduce/store.h"
#include "core/error.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

StoredResult result_of(double value) {
  StoredResult result;
  result.values = {{"accuracy", value}};
  result.version = "1.2.3";
  result.machine = {{"processor", "an abacus"}};
  result.date = "2026-11-23 10:00:00";
  result.seconds = 2.5;
  result.command = "frugal train 'a b'";
  return result;
}

}  // namespace

TEST_CASE("results last, by hash, kind, seed and scale" *
          doctest::skip(!ResultStore::available())) {
  const TempFolder folder;
  const std::string path = folder / "new/results.sqlite";
  {
    ResultStore store(path);
    store.put({"aa", "accuracy", 1, "full"}, result_of(80));
    store.put({"aa", "accuracy", 2, "full"}, result_of(81));
    store.put({"aa", "accuracy", 2, "full"}, result_of(82));  // replaces
    store.put({"aa", "accuracy", 1, "smoke"}, result_of(10));
    store.put({"aa", "loss", 1, "full"}, result_of(std::nan("")));
  }
  const ResultStore store(path);
  const auto all = store.find({"aa", "accuracy", 0, "full"});
  REQUIRE(all.size() == 2);
  CHECK(all.at(1).values == Json{{"accuracy", 80}});
  CHECK(all.at(2).values == Json{{"accuracy", 82}});
  CHECK(all.at(1).version == "1.2.3");
  CHECK(all.at(1).machine == Json{{"processor", "an abacus"}});
  CHECK(all.at(1).date == "2026-11-23 10:00:00");
  CHECK(all.at(1).seconds == 2.5);
  CHECK(all.at(1).command == "frugal train 'a b'");
  // A column of numbers would give 0 for NaN, the best of all losses.
  CHECK(store.find({"aa", "loss", 0, "full"}).at(1).values.at("accuracy").is_null());
  CHECK(store.has({"aa", "accuracy", 1, "smoke"}));
  CHECK_FALSE(store.has({"aa", "accuracy", 2, "smoke"}));
  CHECK_FALSE(store.has({"ab", "accuracy", 1, "full"}));
  CHECK_FALSE(store.has({"aa", "variance", 1, "full"}));
}

TEST_CASE("programs that make a store at the same moment wait for each other" *
          doctest::skip(!ResultStore::available())) {
  const TempFolder folder;
  std::atomic<int> failed = 0;
  for (int file = 0; file < 100; ++file) {
    const std::string path = folder / ("results" + std::to_string(file) + ".sqlite");
    const auto open = [&] {
      try {
        const ResultStore store(path);
      } catch (const Error&) {
        ++failed;
      }
    };
    std::thread first(open), second(open), third(open);
    first.join();
    second.join();
    third.join();
  }
  CHECK(failed == 0);
}

TEST_CASE("a file that is no store of this version is an error" *
          doctest::skip(!ResultStore::available())) {
  const TempFolder folder;
  write_file(folder / "text", "these are certainly no results of anything, but a text\n");
  CHECK_THROWS_AS(ResultStore(folder / "text"), Error);
  { const ResultStore store(folder / "newer"); }
  std::fstream file(folder / "newer", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(63);  // the last byte of user_version in SQLite's header
  file.put(9);
  file.close();
  CHECK_THROWS_WITH_AS(ResultStore(folder / "newer"), doctest::Contains("another version"), Error);
}

TEST_CASE("a machine's facts name it") {
  const Json facts = machine_facts();
  CHECK(facts.at("system").get<std::string>() + "\n" == run_shell("uname -sr").out);
  // What the kernel says of each processor, and of the memory.
  std::istringstream processors(read_file("/proc/cpuinfo")), memory(read_file("/proc/meminfo"));
  std::string model = run_shell("uname -m").out;
  int64_t cores = 0, kibibytes = 0;
  for (std::string line; std::getline(processors, line);) {
    cores += line.starts_with("processor");
    if (line.starts_with("model name")) model = line;
  }
  while (model.ends_with('\n')) model.pop_back();
  for (std::string name; memory >> name;)
    if (name == "MemTotal:") memory >> kibibytes;
  CHECK(facts.at("cores").get<int64_t>() > 0);
  CHECK(facts.at("cores").get<int64_t>() <= cores);  // this process may have fewer
  CHECK(facts.at("memory_bytes").get<double>() ==
        doctest::Approx(1024.0 * static_cast<double>(kibibytes)).epsilon(0.01));
  const auto processor = facts.at("processor").get<std::string>();
  CHECK_FALSE(processor.empty());
  CHECK(model.ends_with(processor));
}

}  // namespace frugal::apps

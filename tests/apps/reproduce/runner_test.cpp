// `frugal reproduce` as users call it: what is done is not done again, and what was cut goes on.
#include <doctest/doctest.h>

#include "apps/reproduce/runner.h"
#include "tests/apps/reproduce/tables.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

}  // namespace

TEST_CASE("a finished cell is not run again, and a changed one is" * skip) {
  const TempFolder folder;
  Json json = small_table();
  written(folder, json);
  const Ran first = frugal(command(folder));
  CHECK_MESSAGE(first.status == 0, first.err);
  CHECK(count_of(first.err, " s)") == 3);
  CHECK(longest_line(first.out) <= 80);
  CHECK(count_of(first.out, "[smoke]") == 6);  // three cells, two metrics
  for (const char* name : {"small.md", "small.csv", "small.html", "index.html"})
    CHECK_MESSAGE(fs::exists(folder / ("out/" + std::string(name))), name);
  const Ran again = frugal(command(folder));
  CHECK(again.status == 0);
  CHECK(count_of(again.err, " s)") == 0);
  CHECK(again.out == first.out);
  json["columns"][0]["sets"]["compression.bits"] = 3;
  written(folder, json);
  const Ran changed = frugal(command(folder));
  CHECK(count_of(changed.err, " s)") == 2);  // the two cells of the column that has changed
  CHECK(changed.out != first.out);
}

TEST_CASE("the base of a table lies beside it, above it, or in configs" * skip) {
  const TempFolder folder;
  Json json = small_table();
  const std::string base = json.at("base").dump();
  json["base"] = "bases/own.json";
  fs::create_directories(folder / "tables");
  write_file(folder / "tables/small.json", json.dump());
  const std::string list =
      fmt::format("reproduce --tables {} --out {} --json", folder / "tables", folder / "out");
  check_fails(frugal(list), 2, {"bases/own.json", "beside the table, above it or in the folder"});
  for (const char* place : {"bases", "tables/bases"}) {
    fs::create_directories(folder / place);
    write_file(folder / place + "/own.json", base);
    const Ran found = frugal(list);
    CHECK_MESSAGE(found.status == 0, found.err);
    fs::remove_all(folder / place);
  }
  json["base"] = "cifar10_resnet20_short.json";
  write_file(folder / "tables/small.json", json.dump());
  const Ran usual = frugal(list);
  CHECK_MESSAGE(usual.status == 0, usual.err);
}

TEST_CASE("the list says what is done, and JSON has the values" * skip) {
  const TempFolder folder;
  written(folder, small_table());
  const std::string all =
      fmt::format("reproduce --tables {} --out {}", folder / "", folder / "out");
  const Ran listed = frugal(all);
  CHECK(listed.out.find("smoke      0 of 3") != std::string::npos);
  CHECK(longest_line(listed.out) <= 80);
  CHECK_FALSE(fs::exists(folder / "out"));  // a list writes nothing
  const Json ran = Json::parse(frugal(command(folder, "--json")).out);
  const Json& values = ran.at(0).at("lines").at(0).at("values").at("activation");
  CHECK(values.at("published") == 1.5);
  CHECK(values.at("ours").at("mean") > 0);
  CHECK(values.at("ours").at("scale") == "smoke");
  const Json list = Json::parse(frugal(all + " --json").out);
  CHECK(list.at(0).at("scales").at("smoke").at("results") == 3);
  CHECK(list.at(0).at("scales").at("full").at("results") == 0);
  CHECK(list.at(0).at("scales").at("full").at("of") == 6);
}

TEST_CASE("each cell's command runs alone and gives the same" * skip) {
  const TempFolder folder;
  written(folder, small_table());
  const Json ran = Json::parse(frugal(command(folder, "--json")).out);
  const Ran commands = frugal(command(folder, "--commands"));
  CHECK(count_of(commands.out, "\nfrugal bench step ") == 3);
  const Json& ours = ran.at(0).at("lines").at(0).at("values").at("activation").at("ours");
  const std::string line = ours.at("command").get<std::string>();
  CHECK(commands.out.find(line) != std::string::npos);
  const Json alone = Json::parse(shell("FRUGAL" + line.substr(6)).out);
  CHECK(alone.at("variants").at(1).at("memory").at("activation_bytes") ==
        ours.at("mean").get<int64_t>());
}

TEST_CASE("a killed runner goes on, and its trainings end with the same bits" * skip) {
  const TempFolder folder, whole;
  Json json = training_table();
  json["columns"] = Json::parse(R"([{"name": "4 bits", "sets": {"compression.bits": 4}}])");
  json["base"]["train"]["epochs"] = 6;
  written(folder, json);
  written(whole, json);
  const pid_t runner = start(command(folder, "--jobs 2 --json"));
  const auto has_begun = [&] {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder / "out/runs", none))
      if (fs::exists(entry.path() / "checkpoint/state.safetensors", none) ||
          fs::exists(entry.path() / "metrics.jsonl", none))
        return true;
    return false;
  };
  for (int i = 0; i < 20000 && !has_begun(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kill(runner, SIGKILL);
  wait_for(runner);
  const Ran resumed = frugal(command(folder, "--jobs 2 --json"));
  CHECK_MESSAGE(resumed.status == 0, resumed.err);
  const Ran plain = frugal(command(whole, "--jobs 1 --json"));
  CHECK_MESSAGE(plain.status == 0, plain.err);
  const auto values = [](const Ran& ran) {
    Json all = Json::parse(ran.out).at(0).at("lines").at(0).at("values");
    for (Json& metric : all)
      for (const char* way : {"ours", "as_published"}) metric[way].erase("command");
    return all;
  };
  CHECK(values(resumed) == values(plain));
  CHECK(values(plain).at("accuracy").at("ours").at("seeds") == 2);
}

TEST_CASE("Ctrl-C ends a runner, which says how to go on" * skip) {
  const TempFolder folder;
  Json json = training_table();
  json["base"]["train"]["epochs"] = 100000;
  written(folder, json);
  const pid_t runner = start(command(folder));
  for (int i = 0; i < 20000 && !fs::exists(folder / "out/logs"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kill(runner, SIGINT);
  CHECK(wait_for(runner) == 130);
}

TEST_CASE("a cell that fails stops no other one, and is tried again" * skip) {
  const TempFolder folder;
  Json json = training_table();
  json["columns"] = Json::parse(R"([{"name": "4 bits"}])");
  json["ours"] = {{"model.weights", folder / "none"}};
  json["scales"]["smoke"]["seeds"] = 1;
  written(folder, json);
  const Ran ran = frugal(command(folder));
  CHECK(ran.status == 1);
  CHECK(ran.err.find("1 of the cells failed") != std::string::npos);
  CHECK(ran.err.find("first, 4 bits, ours") != std::string::npos);
  CHECK(count_of(ran.err, " s)") == 1);
  CHECK(ran.out.find("not run") != std::string::npos);
  const Ran again = frugal(command(folder));
  CHECK(again.status == 1);
  CHECK(again.err.find("first, 4 bits, ours") != std::string::npos);
  CHECK(count_of(again.err, " s)") == 0);
}

TEST_CASE("cells whose data are not here are left out" * skip) {
  const TempFolder folder;
  Json json = training_table();
  json["columns"] = Json::parse(R"([{"name": "here"}, {"name": "there", "sets": {
      "data.name": "cifar100", "data.shape": null, "data.classes": null}}])");
  json["base"]["data"] = {
      {"name", "random"}, {"batch_size", 32}, {"train_samples", 64}, {"test_samples", 64}};
  json["scales"]["smoke"]["seeds"] = 1;
  written(folder, json);
  const Ran ran = frugal(command(folder));
  CHECK_MESSAGE(ran.status == 0, ran.err);
  CHECK(ran.err.find("left out, for want of the data cifar100: 2 results") != std::string::npos);
  CHECK(ran.out.find("not run") != std::string::npos);
}

TEST_CASE("mistakes on the command line of reproduce") {
  const TempFolder folder;
  written(folder, small_table());
  const std::string tables = fmt::format(" --tables {} --out {} ", folder / "", folder / "out");
  for (const auto& [arguments, said] :
       {std::pair<std::string, std::string>{"smal" + tables, "expected one of small, or a file"},
        {"--scale huge" + tables, "--scale"},
        {"--seeds 0" + tables, "--seeds"},
        {"--jobs 0" + tables, "--jobs"},
        {fmt::format("--tables {} --out {}", folder / "none", folder / "out"),
         "--tables: cannot read the folder"},
        {"none.json" + tables, "none.json"}}) {
    const Ran ran = frugal("reproduce " + arguments);
    CHECK_MESSAGE(ran.status == (ResultStore::available() ? 2 : ran.status), arguments);
    if (ResultStore::available()) CHECK_MESSAGE(ran.err.find(said) != std::string::npos, ran.err);
  }
  CHECK_FALSE(fs::exists(folder / "out"));
  Json json = small_table();
  json["scales"].erase("full");
  written(folder, json);
  const Ran ran = frugal("reproduce small --scale full" + tables);
  if (ResultStore::available())
    CHECK_MESSAGE(ran.err.find("--scale: small has no scale full") != std::string::npos, ran.err);
}

}  // namespace frugal::apps

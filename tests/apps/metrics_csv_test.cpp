#include "apps/cli/metrics_csv.h"

#include <doctest/doctest.h>

#include <map>

#include "apps/config/config.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

using Row = std::map<std::string, std::string>;

std::vector<Row> rows_of(const std::string& run) {
  std::istringstream lines(read_file(run + "/metrics.csv"));
  const auto cells = [](const std::string& line) {
    std::vector<std::string> all(1);
    for (const char c : line)
      if (c == ',')
        all.emplace_back();
      else
        all.back() += c;
    return all;
  };
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> names = cells(line);
  std::vector<Row> rows;
  while (std::getline(lines, line)) {
    const std::vector<std::string> values = cells(line);
    REQUIRE(values.size() == names.size());
    Row& row = rows.emplace_back();
    for (size_t i = 0; i < names.size(); ++i) row[names[i]] = values[i];
  }
  return rows;
}

// The rows, without times, equal the lines of metrics.jsonl.
void check_rows(const std::string& run, size_t epochs) {
  const std::vector<Row> rows = rows_of(run);
  std::istringstream lines(read_file(run + "/metrics.jsonl"));
  size_t at = 0;
  double lr = 0, seconds = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    if (json["type"] == "step") lr = json["lr"].get<double>();
    if (json["type"] != "epoch") continue;
    REQUIRE(at < rows.size());
    const Row& row = rows[at++];
    for (const char* key :
         {"epoch", "step", "train_loss", "train_accuracy", "test_loss", "test_accuracy"}) {
      CAPTURE(key);
      if (json.contains(key))
        CHECK(std::stod(row.at(key)) == json[key].get<double>());
      else
        CHECK(row.at(key).empty());
    }
    CHECK(std::stod(row.at("lr")) == doctest::Approx(lr).epsilon(0.5));
    CHECK(std::stod(row.at("mean_bits")) > 4);  // the default, and what groups keep beside codes
    CHECK(std::stod(row.at("mean_bits")) < 16);
    CHECK(std::stoll(row.at("saved_bytes")) > 0);
    CHECK(std::stoll(row.at("saved_bytes")) <= std::stoll(row.at("activation_bytes")));
    CHECK(std::stoll(row.at("peak_bytes")) > std::stoll(row.at("activation_bytes")));
    CHECK(std::stod(row.at("seconds")) >= seconds);
    seconds = std::stod(row.at("seconds"));
  }
  CHECK(at == epochs);
  CHECK(rows.size() == epochs);
}

std::vector<Row> untimed(std::vector<Row> rows) {
  for (Row& row : rows) row.erase("seconds");
  return rows;
}

}  // namespace

TEST_CASE("metrics.csv has a row for each epoch, also after SIGKILL and more epochs") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string run = "train " + folder / "c.json" +
                          " --set train.epochs=6 --set train.eval_interval=2 --set "
                          "train.checkpoint_interval=7";
  REQUIRE(frugal(run + " --out " + folder / "whole").status == 0);
  check_rows(folder / "whole", 6);
  CHECK(rows_of(folder / "whole")[0]["test_loss"].empty());
  const std::string out = folder / "cut";
  REQUIRE(cut_run(run, out, "metrics.csv", 500, SIGKILL) == 128 + SIGKILL);
  // Rows that the checkpoint does not know, as of a run that was killed before its next one.
  write_file(out + "/metrics.csv",
             read_file(out + "/metrics.csv") + "99,3960,1,1,1,1,,0.1,4,1,1,5.0\n");
  REQUIRE(frugal(run + " --resume --out " + out).status == 0);
  check_rows(out, 6);
  CHECK(untimed(rows_of(out)) == untimed(rows_of(folder / "whole")));
  const std::string before = read_file(out + "/metrics.csv");
  REQUIRE(frugal(run + " --resume --out " + out).status == 0);  // nothing is left to do
  CHECK(read_file(out + "/metrics.csv") == before);
  REQUIRE(frugal(run + " --resume --extend 8 --out " + out).status == 0);
  check_rows(out, 8);
  write_file(out + "/metrics.csv", "a file of somebody else\n");
  REQUIRE(frugal(run + " --resume --extend 9 --out " + out).status == 0);
  CHECK(rows_of(out).size() == 1);
}

TEST_CASE("a table of an earlier version keeps its rows when the run goes on") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string train = "train " + folder / "c.json" + " --out " + folder / "run";
  REQUIRE(frugal(train).status == 0);
  const std::vector<Row> before = rows_of(folder / "run");
  std::string earlier =
      "epoch,step,train_loss,train_accuracy,test_loss,test_accuracy,test_metric,lr,mean_bits,"
      "peak_bytes,activation_bytes,seconds\n";
  for (const Row& row : before) {
    std::string line;
    for (const char* name :
         {"epoch", "step", "train_loss", "train_accuracy", "test_loss", "test_accuracy",
          "test_metric", "lr", "mean_bits", "peak_bytes", "activation_bytes", "seconds"})
      line += "," + row.at(name);
    earlier += line.substr(1) + "\n";
  }
  write_file(folder / "run/metrics.csv", earlier);
  const Ran more = frugal(train + " --resume --extend 3");
  REQUIRE_MESSAGE(more.status == 0, more.err);
  const std::vector<Row> after = rows_of(folder / "run");
  REQUIRE(after.size() == before.size() + 1);
  for (size_t i = 0; i < before.size(); ++i)
    for (const auto& [name, value] : before[i])
      CHECK_MESSAGE(after[i].at(name) == (name == "saved_bytes" ? "" : value), name);
  CHECK_FALSE(after.back().at("saved_bytes").empty());
}

}  // namespace frugal::apps

// report.html of runs: what it says, what it survives, and how large it is.
#include <doctest/doctest.h>

#include "tests/apps/report/long_run.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

std::vector<Json> lines_of(const std::string& folder) {
  std::vector<Json> lines;
  std::stringstream text(read_file(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

}  // namespace

TEST_CASE("a finished run has a page with its numbers, which frugal report makes again") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string run = folder / "first";
  REQUIRE(frugal("train " + folder / "c.json" + " --out " + run).status == 0);
  const std::string page = read_file(run + "/report.html");
  const Json summary = Json::parse(read_file(run + "/summary.json"));
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(has(page, fmt::format("{:.2f} %", 100 * summary["final"]["test_accuracy"].get<double>())));
  CHECK(has(page, fmt::format("{:.4f}", summary["final"]["test_loss"].get<double>())));
  for (const char* part : {"<h1>first", "finished", "Memory over step", "Saved tensors", "fc1",
                           "optim.nesterov", "frugal train", "prefers-color-scheme", "viewport"}) {
    CAPTURE(part);
    CHECK(has(page, part));
  }
  CHECK(count_of(page, "<svg") >= 5);
  CHECK(lacks(page, "src=\"http"));
  CHECK(lacks(page, "href=\"http"));
  fs::remove(run + "/report.html");
  const Ran again = frugal("report " + run);
  CHECK(again.status == 0);
  CHECK(again.out == run + "/report.html\n");
  CHECK(read_file(run + "/report.html") == page);
  CHECK(frugal("report " + run + "/ --out " + folder / "page.html").status == 0);
  CHECK(has(read_file(folder / "page.html"), "Saved tensors"));
  // The folder is still one that can go on.
  CHECK(frugal("train " + folder / "c.json" + " --resume --extend 3 --out " + run).status == 0);
}

TEST_CASE("recorded lines hold no times, and say where the peak is") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  for (const char* name : {"a", "b"})
    REQUIRE(frugal("train " + folder / "c.json" + " --out " + folder / name).status == 0);
  CHECK(read_file(folder / "a/metrics.jsonl") == read_file(folder / "b/metrics.jsonl"));
  int memory = 0, tensors = 0;
  for (const Json& line : lines_of(folder / "a")) {
    if (line["type"] == "memory") {
      ++memory;
      const Json& curve = line["curve"];
      int64_t peak = 0;
      for (const auto& [category, bytes] : line["at_peak"].items())
        peak += (curve[category].is_array() ? curve[category][curve["peak"].get<size_t>()]
                                            : curve[category])
                    .get<int64_t>();
      CHECK(peak == line["peak_bytes"].get<int64_t>());
      CHECK(!line["largest"].empty());
    }
    if (line["type"] == "tensors") {
      ++tensors;
      CHECK(line["rows"].size() > 2);
      CHECK(line["columns"].size() == line["rows"][0].size());
    }
  }
  CHECK(memory == 2);  // step 2, and the first step of epoch 2
  CHECK(tensors == 2);
  const Json times = Json::parse(read_file(folder / "a/tensor_times.json"));
  CHECK(times.contains("2"));
}

TEST_CASE("texts of files are shown and never run") {
  const TempFolder folder;
  const std::string hostile = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>";
  const std::string run = folder / "a<script>alert(2)<b>";
  fs::create_directory(run);
  write_long_run(run, hostile, 400);
  Json config = Json::parse(read_file(run + "/config.json"));
  config["data"]["dir"] = hostile;
  config["data"].erase("shape");
  config["data"]["name"] = "cifar10";
  config["data"].erase("classes");
  config["data"].erase("train_samples");
  config["data"].erase("test_samples");
  write_file(run + "/config.json", config.dump());
  const Ran ran = frugal("report '" + run + "'");
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  const std::string page = read_file(run + "/report.html");
  CHECK(lacks(page, "<script>alert"));
  CHECK(lacks(page, "<img"));
  CHECK(lacks(page, "alert(2)<b>"));
  CHECK(has(page, "&lt;script&gt;alert(&#39;x&#39;)"));
  CHECK(count_of(page, "</script>") == count_of(page, "<script"));
  // Numbers of a plan stand within a sentence.
  const std::string lines = read_file(run + "/metrics.jsonl");
  for (const char* key : {"tensors", "raw_tensors"}) {
    write_file(run + "/metrics.jsonl",
               lines + Json({{"type", "plan"}, {"step", 1}, {key, hostile}}).dump() + "\n");
    const Ran refused = frugal("report '" + run + "'");
    CHECK(refused.status == 1);
    CHECK(has(refused.err, "expected a whole number"));
    CHECK(read_file(run + "/report.html") == page);
  }
}

TEST_CASE("the page of 100 epochs is smaller than 1 MB") {
  const TempFolder folder;
  write_long_run(folder / "", "");
  REQUIRE(frugal("report " + folder / "").status == 0);
  CHECK(fs::file_size(folder / "report.html") < 1000 * 1000);
}

TEST_CASE("runs lie over each other in one page") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  REQUIRE(frugal("train " + folder / "c.json" + " --out " + folder / "four").status == 0);
  REQUIRE(
      frugal("train " + folder / "c.json" + " --set compression.level=L0 --out " + folder / "whole")
          .status == 0);
  const Ran ran = shell("cd " + folder / "" + " && FRUGAL report whole four");
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  CHECK(ran.out == "report.html\n");
  const std::string page = read_file(folder / "report.html");
  for (const char* part : {"2 runs", "Side by side", ">whole<", ">four<", "Test loss",
                           "Memory over one step", "compression.bits"}) {
    CAPTURE(part);
    CHECK(has(page, part));
  }
  CHECK(count_of(page, "<svg") >= 4);
  CHECK(lacks(page, "ranks"));
  // A run of several ranks says how they got on.
  Json summary = Json::parse(read_file(folder / "four/summary.json"));
  summary["ranks"] = {
      {"ranks", 3},           {"communication_share", 0.251}, {"waiting_share", 0.017},
      {"hidden_share", 0.93}, {"imbalance", 0.042},           {"gradient_bytes_per_step", 1000}};
  write_file(folder / "four/summary.json", summary.dump());
  REQUIRE(frugal("report " + folder / "four").status == 0);
  const std::string of_ranks = read_file(folder / "four/report.html");
  for (const char* part : {"Ranks", "25.1 % of a step adds up gradients", "1.7 % waits", "4.2 %"}) {
    CAPTURE(part);
    CHECK(has(of_ranks, part));
  }
  REQUIRE(shell("cd " + folder / "" + " && FRUGAL report whole four").status == 0);
  CHECK(has(read_file(folder / "report.html"), "slowest over mean rank"));
  // A run that is cut has a page, too.
  fs::remove(folder / "four/summary.json");
  REQUIRE(frugal("report " + folder / "four").status == 0);
  CHECK(has(read_file(folder / "four/report.html"), "interrupted"));
}

TEST_CASE("report refuses what is no run") {
  const TempFolder folder;
  const auto fails = [](const Ran& ran, int status, const std::string& part) {
    CAPTURE(ran.err);
    CHECK(ran.status == status);
    CHECK(has(ran.err, part));
  };
  fails(frugal("report"), 2, "RUN");
  fails(frugal("report " + folder / "none"), 2, "which is not there");
  fails(frugal("report " + folder / ""), 2, "metrics.jsonl");
  write_file(folder / "metrics.jsonl", "");
  fails(frugal("report " + folder / ""), 1, "config.json");
  write_file(folder / "config.json", kTinyConfig);
  CHECK(frugal("report " + folder / "").status == 0);  // a run that has just begun
  write_file(folder / "metrics.jsonl", "{\"type\": \"step\"\n");
  fails(frugal("report " + folder / ""), 1, "line 1");
  write_file(folder / "metrics.jsonl", "{\"type\": \"memory\", \"step\": 2, \"curve\": 3}\n");
  fails(frugal("report " + folder / ""), 1, "not those of a run");
  write_file(
      folder / "metrics.jsonl",
      "{\"type\": \"memory\", \"step\": 2}\n{\"type\": \"tensors\", \"step\": 2, \"columns\": "
      "[], \"rows\": []}\n");
  fails(frugal("report " + folder / ""), 1, "column");
  write_file(folder / "metrics.jsonl", "");
}

TEST_CASE("numbers that a run cannot have are an error, or a page without them") {
  const TempFolder folder;
  const std::string metrics = folder / "run/metrics.jsonl";
  write_file(folder / "c.json", kTinyConfig);
  REQUIRE(frugal("train " + folder / "c.json" + " --out " + folder / "run").status == 0);
  const std::vector<Json> lines = lines_of(folder / "run");
  const auto write = [&](const auto& change) {
    std::string text;
    for (Json line : lines) {
      change(line);
      text += line.dump() + "\n";
    }
    write_file(metrics, text);
  };
  const auto refused = [&](const auto& change, const std::string& what) {
    write([&](Json& line) {
      if (line["type"] == "memory" || line["type"] == "tensors") change(line);
    });
    const Ran ran = frugal("report " + folder / "run");
    CAPTURE(ran.err);
    CHECK(ran.status == 1);
    CHECK(has(ran.err, "are not those of a run"));
    CHECK(has(ran.err, what));
  };
  const auto peak = [](const Json& at) {
    return [=](Json& line) {
      if (line.contains("curve")) line["curve"]["peak"] = at;
    };
  };
  refused(peak(1'000'000), "expected the peak at one of");
  refused(peak(-1), "expected the peak at one of");
  refused(peak(1e300), "a whole number of at most 2^53, got \"1e+300\"");
  refused([](Json& line) { line["step"] = 1e300; }, "1e+300");
  refused(
      [](Json& line) {
        if (line.contains("rows")) line["rows"][0][4][0] = 9e18;
      },
      "9e+18");
  // Doubles so far apart that a step of an axis does not reach the next one, and the largest.
  const std::vector<std::pair<double, double>> ends = {
      {1e20, 1e20 + 16384}, {-1.7e308, 1.7e308}, {1.7976931348623157e308, 5e-324}};
  for (const auto& pair : ends) {
    CAPTURE(pair.first);
    int at = 0;
    write([&](Json& line) {
      if (line["type"] == "step")
        line["grad_norm"] = line["loss"] = at++ % 2 == 0 ? pair.first : pair.second;
    });
    CHECK(frugal("report " + folder / "run").status == 0);
  }
  write([](Json&) {});
  const std::string text = read_file(metrics);
  write_file(
      metrics,
      text + R"({"type": "widths", "step": 1, "bits": [2], "sensitivities": [1.7e308]})" + "\n");
  CHECK(frugal("report " + folder / "run").status == 0);
  // When each tensor copied the lists, the time grew with the square of their number.
  Json many = {{"type", "widths"}, {"step", 1}};
  for (int i = 0; i < 100'000; ++i) {
    many["bits"].push_back(2);
    many["seqs"].push_back(i);
    many["sensitivities"].push_back(0.5);
  }
  write_file(metrics, text + many.dump() + "\n");
  CHECK(frugal("report " + folder / "run").status == 0);
  refused(
      [](Json& line) {
        if (line.contains("curve")) line["curve"]["phases"] = std::string(1 << 20, 'f');
      },
      "expected at most 10240 moments");
  write_file(metrics, text + R"({"type": "widths", "bits": [2, 3]})" + "\n");
  const Ran ran = frugal("report " + folder / "run");
  CHECK(ran.status == 1);
  CHECK(has(ran.err, "step"));
}

TEST_CASE("a file of times that a power cut left empty is left out of a report, with a warning") {
  const TempFolder folder;
  write_file(folder / "metrics.jsonl", "");
  write_file(folder / "config.json", kTinyConfig);
  for (const char* damaged : {"", "[]", "{"}) {
    CAPTURE(damaged);
    write_file(folder / "tensor_times.json", damaged);
    const Ran ran = frugal("report " + folder / "");
    CHECK(ran.status == 0);
    CHECK(has(ran.err, "tensor_times.json"));
  }
}

}  // namespace frugal::apps

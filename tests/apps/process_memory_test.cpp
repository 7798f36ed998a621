// What the process takes beside what tensors take.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

#ifndef FRUGAL_SANITIZED  // its own memory is several times the tensors'

Json bench_row(const std::string& arguments) {
  const Ran ran = binary("bench step --json --only --repeats 1 " + arguments);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return Json::parse(ran.out)["variants"][0]["memory"];
}

TEST_CASE("beyond a smallest training, the process takes little more than the tensors' peak") {
  const auto bytes = [](const Json& row, const char* key) { return row.at(key).get<int64_t>(); };
  for (const char* variant : {" --variant 'L0: compression.level=L0 compression.recipes=true'",
                              " --variant 'L1: compression.level=L1'"}) {
    CAPTURE(variant);
    const std::string r20 = "--workload r20 --set data.shape=[16,16,3] --set data.batch_size=";
    const Json smallest = bench_row(r20 + "2" + variant), row = bench_row(r20 + "512" + variant);
    const int64_t peak = bytes(row, "peak_bytes");
    CHECK(peak > 30 << 20);
    const int64_t grown = bytes(row, "host_peak_rss") - bytes(smallest, "host_peak_rss");
    // Free pages: a 32nd and 8 MiB (core/memory/page_pool.cpp). The bench holds a copy of the
    // batch, which a run does not have, and which does not count in the peak.
    constexpr int64_t kCopy = int64_t{512} * 16 * 16 * 3 * 4;
    CHECK(static_cast<double>(grown) < 1.06 * static_cast<double>(peak + kCopy) + (8 << 20));
    CHECK(static_cast<double>(grown) > 0.7 * static_cast<double>(peak));
    if (row.at("process_peak").is_null()) continue;  // a system that does not count anew
    // In one step, which the first ones of the process do not raise.
    CHECK(bytes(row, "process_peak") > peak);
    CHECK(bytes(row, "process_peak") <= bytes(row, "host_peak_rss"));
  }
}

// Each length of a text has products of its own, and a thread keeps 256 of their plans
// (ops/onednn.h). 40 lengths fill these. What a plan takes is oneDNN's affair, so further lengths
// are compared with those. Without a limit, 160 more lengths take 36 MB (oneDNN 2.6) or 120 MB
// (3.7); the bound leaves room for pages that the allocators hold.
TEST_CASE("memory stops to grow with the number of lengths of texts") {
  const TempFolder folder;
  write_file(folder / "c.json", fmt::format(R"({{"model": {{"name": "decoder", "layers": 1, "width":
      32, "heads": 2, "max_positions": 256}}, "data": {{"name": "conversations", "max_length": 255,
      "vocabulary": "{}/lora_sft", "batch_size": 1}}, "optim": {{"name": "adamw"}},
      "train": {{"steps": 170}}, "threads": 1}})",
                                            FRUGAL_CONFIGS));
  const auto peak_of = [&](size_t lengths) {
    std::string lines;
    for (size_t i = 0; i < 200; ++i)
      lines += R"({"text": ")" + std::string(200 - i % lengths, 'a') + "\"}\n";
    write_file(folder / "texts.jsonl", lines);
    const std::string out = folder / "run";
    const Ran ran = binary(fmt::format("train {} --set data.dir={} --out {} --quiet --overwrite",
                                       folder / "c.json", folder / "texts.jsonl", out));
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(read_file(out + "/summary.json"))["memory"]["host_peak_rss"].get<int64_t>();
  };
  CHECK(peak_of(200) - peak_of(40) < 8 << 20);
}

TEST_CASE("bench step and a run say what the process takes, and what that counts") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const Ran bench = frugal("bench step --repeats 1 " + folder / "c.json");
  REQUIRE_MESSAGE(bench.status == 0, bench.err);
  CHECK(bench.out.find("process") != std::string::npos);
  CHECK(bench.out.find("data set") != std::string::npos);
  const Ran run = frugal("train " + folder / "c.json");
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(run.out.find("process, highest") != std::string::npos);
  CHECK(run.out.find("data set") != std::string::npos);
}

#endif

TEST_CASE("bench step --trace writes the memory over one step, whose highest total is the peak") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string csv = folder / "trace.csv";
  const Ran bench = frugal(
      "bench step --json --only --repeats 1 --variant 'four bits: compression.level=L1' --trace " +
      csv + " " + folder / "c.json");
  REQUIRE_MESSAGE(bench.status == 0, bench.err);
  std::ifstream file(csv);
  std::string line;
  REQUIRE(std::getline(file, line));
  CHECK(line.rfind("variant,event,milliseconds,phase,parameter,", 0) == 0);
  int64_t highest = 0;
  std::vector<std::string> phases;
  while (std::getline(file, line)) {
    CHECK(line.rfind("four bits,", 0) == 0);
    std::istringstream fields(line);
    std::string field;
    for (int i = 0; i < 4; ++i) std::getline(fields, field, ',');
    if (phases.empty() || phases.back() != field) phases.push_back(field);
    highest = std::max<int64_t>(highest, std::stoll(line.substr(line.rfind(',') + 1)));
  }
  // In the update, the norm of the gradient takes a scalar. SGD writes in place.
  CHECK(phases == std::vector<std::string>{"forward", "backward", "update"});
  const Json memory = Json::parse(bench.out)["variants"][0]["memory"];
  CHECK(highest == memory["peak_bytes"].get<int64_t>());
  // A step on meta has a trace, too.
  const Ran planned =
      frugal("bench step --only --set device=meta --trace " + csv + " " + folder / "c.json");
  REQUIRE_MESSAGE(planned.status == 0, planned.err);
  CHECK(has(read_file(csv), ",backward,"));
  CHECK(frugal("bench step --repeats 1 --trace " + folder / "none/t.csv " + folder / "c.json")
            .status == 2);
  // Nothing is written through a link.
  write_file(folder / "other", "kept");
  const std::string link = folder / "link.csv";
  std::filesystem::create_symlink(folder / "other", link);
  CHECK(frugal("bench step --only --repeats 1 --trace " + link + " " + folder / "c.json").status ==
        0);
  CHECK(read_file(folder / "other") == "kept");
  CHECK(has(read_file(link), "variant,event,"));
}

}  // namespace
}  // namespace frugal::apps

#include "apps/cli/profile.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

Json profile(const std::string& config, const std::string& options) {
  const Ran ran = frugal("profile " + config + " --json " + options);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return Json::parse(ran.out);
}

const Json& row(const Json& report, const std::string& name) {
  for (const Json& each : report["rows"])
    if (each["name"] == name) return each;
  FAIL("no row ", name);
  return report;
}

int64_t sum_of(const Json& report, const char* key) {
  int64_t sum = 0;
  for (const Json& each : report["rows"]) sum += each[key].get<int64_t>();
  return sum;
}

// All that is kept when backward begins is in some row, and nearly all is kept by an op.
void check_bytes(const Json& report) {
  const auto kept = report["memory"]["activation_bytes"].get<int64_t>();
  CHECK(kept > 0);
  CHECK(sum_of(report, "stored_bytes") == kept);
  const auto other = row(report, "other")["stored_bytes"].get<int64_t>();
  CHECK(other >= 0);
  CHECK(other < kept / 20);
}

void check_times(const Json& report) {
  double sum = 0, share = 0;
  for (const Json& each : report["rows"]) {
    double parts = 0;
    for (const char* key : {"forward_ms", "backward_ms", "pack_ms", "unpack_ms", "rebuild_ms"}) {
      CHECK(each[key].get<double>() >= 0);
      parts += each[key].get<double>();
    }
    CHECK(each["total_ms"].get<double>() >= parts * (1 - 1e-9));
    sum += each["total_ms"].get<double>();
    share += each["share"].get<double>();
  }
  CHECK(sum == doctest::Approx(report["step_ms"].get<double>()));
  CHECK(share == doctest::Approx(1));
}

const char* const kConvolutions = R"({
  "model": {"name": "resnet20"},
  "data": {"name": "random", "shape": [16, 16, 3], "classes": 10, "batch_size": 8,
           "train_samples": 32, "test_samples": 8},
  "compression": {"advanced": {"min_elements": 96}},
  "threads": 1
})";

}  // namespace

TEST_CASE("profile: rows sum up to the step and to what it keeps") {
  const TempFolder folder;
  const std::string tiny = folder / "tiny.json", images = folder / "images.json";
  write_file(tiny, kTinyConfig);
  write_file(images, kConvolutions);
  for (const std::string& config : {tiny, images})
    for (const char* sets :
         {"", "--by layer", "--set compression.level=L0",
          "--set compression.level=L0 --set compression.recipes=false",
          "--set compression.entropy=true", "--set train.gradient_accumulation=2"}) {
      CAPTURE(config);
      CAPTURE(sets);
      const Json report = profile(config, std::string("--steps 2 ") + sets);
      check_bytes(report);
      check_times(report);
      CHECK(row(report, "optimizer")["total_ms"].get<double>() > 0);
      CHECK(row(report, "loader")["total_ms"].get<double>() > 0);
    }
}

TEST_CASE("profile: ops, what packs and what is rebuilt, and layers") {
  const TempFolder folder;
  const std::string config = folder / "c.json";
  write_file(config, kConvolutions);
  const Json ops = profile(config, "");
  CHECK(row(ops, "conv2d")["calls"] == 19);
  CHECK(row(ops, "conv2d")["forward_ms"].get<double>() > 0);
  CHECK(row(ops, "conv2d")["backward_ms"].get<double>() > 0);
  double pack = 0, unpack = 0, rebuild = 0;
  for (const Json& each : ops["rows"]) {
    pack += each["pack_ms"].get<double>();
    unpack += each["unpack_ms"].get<double>();
    rebuild += each["rebuild_ms"].get<double>();
  }
  CHECK(pack > 0);
  CHECK(unpack > 0);
  CHECK(rebuild > 0);
  CHECK(sum_of(ops, "raw_bytes") > 4 * sum_of(ops, "stored_bytes"));
  const Json raw = profile(config, "--set compression.level=L0 --set compression.recipes=false");
  for (const Json& each : raw["rows"]) {
    CHECK(each["pack_ms"] == 0);
    CHECK(each["rebuild_ms"] == 0);
  }
  const Json layers = profile(config, "--by layer");
  for (const char* name : {"conv1", "bn1", "layer1.0.conv1", "layer3.2.bn2", "linear"})
    row(layers, name);
  CHECK(sum_of(layers, "stored_bytes") == sum_of(ops, "stored_bytes"));
  CHECK(sum_of(layers, "raw_bytes") == sum_of(ops, "raw_bytes"));
  // Recomputed blocks: their ops are recomputed, and called as often.
  const Json blocks = profile(config, "--set train.checkpointing=true --set compression.level=L0");
  check_bytes(blocks);
  check_times(blocks);
  CHECK(row(blocks, "conv2d")["calls"] == 19);
  CHECK(row(blocks, "conv2d")["rebuild_ms"].get<double>() > 0);
  const Ran table = frugal("profile " + config + " --steps 1");
  REQUIRE(table.status == 0);
  for (const char* part : {"conv2d", "loader", "optimizer", "other", "step", "peak"})
    CHECK(table.out.find(part) != std::string::npos);
}

TEST_CASE("profile: steps are of whole batches, however many are measured") {
  const TempFolder folder;
  const std::string config = folder / "c.json";
  write_file(config, R"({
    "model": {"name": "mlp", "hidden": [16]},
    "data": {"name": "random", "shape": [4, 4, 1], "classes": 3, "batch_size": 8,
             "train_samples": 42, "test_samples": 8},
    "threads": 1
  })");
  const Json whole = profile(config, "--steps 1 --by layer");
  for (const char* sets : {"--steps 2", "--steps 3", "--steps 4", "--steps 7"}) {
    CAPTURE(sets);
    const Json report = profile(config, std::string("--by layer ") + sets);
    CHECK(sum_of(report, "stored_bytes") == sum_of(whole, "stored_bytes"));
    CHECK(report["memory"]["activation_bytes"] == whole["memory"]["activation_bytes"]);
    // Each layer has its own ops in each step.
    REQUIRE(report["rows"].size() == whole["rows"].size());
    for (const Json& each : whole["rows"]) {
      CAPTURE(each["name"].get<std::string>());
      CHECK(row(report, each["name"])["calls"].get<double>() ==
            doctest::Approx(each["calls"].get<double>()));
    }
  }
  CHECK(row(whole, "(before the first layer)")["calls"].get<double>() > 0);
}

TEST_CASE("profile on meta: the bytes, and no times") {
  const TempFolder folder;
  const std::string config = folder / "c.json";
  write_file(config, kConvolutions);
  const Json here = profile(config, ""), meta = profile(config, "--set device=meta");
  check_bytes(meta);
  CHECK(meta["step_ms"].is_null());
  CHECK(row(meta, "conv2d")["forward_ms"].is_null());
  for (const Json& each : meta["rows"]) {
    if (each["name"] == "other") continue;  // the loss is computed on the host alone
    CAPTURE(each["name"].get<std::string>());
    CHECK(each["stored_bytes"] == row(here, each["name"])["stored_bytes"]);
    CHECK(each["raw_bytes"] == row(here, each["name"])["raw_bytes"]);
  }
}

TEST_CASE("profile --trace: spans that nest, and the memory") {
  const TempFolder folder;
  const std::string config = folder / "c.json";
  write_file(config, kConvolutions);
  const Json report = profile(config, "--steps 2 --trace " + folder / "trace.json");
  const Json trace = Json::parse(read_file(folder / "trace.json"));
  std::map<std::string, int> found;
  std::vector<double> ends;  // ends of the spans that are open
  int64_t highest = 0;
  double last = 0;
  for (const Json& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "C") {
      int64_t total = 0;
      for (const auto& [name, bytes] : event["args"].items()) total += bytes.get<int64_t>();
      highest = std::max(highest, total);
      ++found["memory"];
    }
    if (phase != "X") continue;
    ++found[event["cat"].get<std::string>()];
    const auto begin = event["ts"].get<double>(), end = begin + event["dur"].get<double>();
    CHECK(begin >= last);
    last = begin;
    while (!ends.empty() && ends.back() <= begin + 1e-6) ends.pop_back();
    if (!ends.empty()) CHECK(end <= ends.back() + 1e-6);
    ends.push_back(end);
  }
  for (const char* category : {"phase", "forward", "backward", "pack", "unpack", "rebuild",
                               "optimizer", "loader", "memory"}) {
    CAPTURE(category);
    CHECK(found[category] > 0);
  }
  CHECK(found["loader"] == 2);
  CHECK(found["phase"] == 2 * 3);  // a step, its forward and its backward pass
  double calls = 0;
  for (const Json& each : report["rows"]) calls += each["calls"].get<double>();
  CHECK(found["forward"] == doctest::Approx(2 * calls));
  CHECK(highest >= report["memory"]["peak_bytes"].get<int64_t>());
}

TEST_CASE("profile: wrong use") {
  const TempFolder folder;
  const std::string config = folder / "c.json";
  write_file(config, kTinyConfig);
  const auto refused = [&](const std::string& arguments, int status, const std::string& what) {
    const Ran ran = frugal("profile " + arguments);
    CAPTURE(arguments);
    CHECK(ran.status == status);
    CHECK_MESSAGE(ran.err.find(what) != std::string::npos, ran.err);
    CHECK(ran.out.empty());
  };
  refused("", 2, "CONFIG");
  refused(folder / "none.json", 2, "none.json");
  refused(config + " --steps 0", 2, "--steps");
  refused(config + " --by tensor", 2, "--by");
  refused(config + " --trace ''", 2, "--trace");
  refused(config + " --set device=meta --trace " + folder / "t", 2, "--trace");
  refused(config + " --set optim.lrr=1", 2, "optim.lrr");
  refused(config + " --trace " + folder / "no/t.json", 2, "no/t.json");
  CHECK_FALSE(std::filesystem::exists(folder / "t"));
}

}  // namespace frugal::apps

// Runs whose activations lie in a file.
#include <doctest/doctest.h>

#include "apps/config/config.h"
#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {

TEST_CASE("a run with its activations in a file ends with the same weights") {
  for (const char* level : {"L0", "L1"}) {
    CAPTURE(level);
    const TempFolder folder;
    write_file(folder / "config.json", kTinyConfig);
    const std::string train =
        fmt::format("train {} --set compression.level={} --set compression.advanced.slice_bytes=0",
                    folder / "config.json", level);
    const std::string away = fmt::format(
        "{} --set compression.offload={} --set compression.advanced.offload_window=\"1 KiB\"",
        train, std::filesystem::path(folder / "").parent_path().string());
    REQUIRE(frugal(train + " --out " + (folder / "a")).status == 0);
    const Ran ran = frugal(away + " --out " + (folder / "b"));
    REQUIRE(ran.status == 0);
    CHECK(ran.out.find("written to the file") != std::string::npos);
    CHECK(read_file(folder / "a/checkpoint/last.safetensors") ==
          read_file(folder / "b/checkpoint/last.safetensors"));
    const Json summary = Json::parse(read_file(folder / "b/summary.json"));
    CHECK(summary.at("offload").at("written_bytes").get<int64_t>() > 0);
    CHECK(summary.at("offload").at("read_bytes").get<int64_t>() > 0);
    CHECK(!Json::parse(read_file(folder / "a/summary.json")).contains("offload"));
    const Ran compared = frugal("compare " + (folder / "a") + " " + (folder / "b"));
    CHECK(compared.status == 0);
    CHECK(compared.out.find("waited for it") != std::string::npos);
    // Nothing else lies in the folder: the file had no name.
    for (const auto& entry : std::filesystem::directory_iterator(folder / ""))
      CHECK(std::string("a b config.json").find(entry.path().filename().string()) !=
            std::string::npos);
  }
}

// The query of the last layer is of the first tokens alone, so that it stays whole, beside keys and
// values in codes. The report of a run has a step whose tensors are looked at: the second one here.
TEST_CASE(
    "a step that is recorded has the bits of its attention, also where tensors lie in a file") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({
    "model": {"name": "bert_tiny", "layers": 2, "width": 16, "heads": 2, "vocab_size": 30},
    "data": {"name": "random_tokens", "max_length": 12, "batch_size": 4, "train_samples": 20,
             "test_samples": 4, "classes": 2},
    "optim": {"name": "sgd", "lr": 1}, "schedule": {"name": "constant"}, "threads": 1,
    "train": {"steps": 3},
    "compression": {"bits": 4, "advanced": {"min_elements": 16, "group_size": 32}}})");
  const std::string train = "train " + folder / "c.json" + " --quiet --out ";
  const Ran here = frugal(train + folder / "here"),
            away = frugal(train + folder / "away --set compression.offload=" +
                          std::filesystem::path(folder / "").parent_path().string());
  REQUIRE_MESSAGE(here.status == 0, here.err);
  REQUIRE_MESSAGE(away.status == 0, away.err);
  CHECK(read_file(folder / "here/metrics.jsonl").find("\"type\":\"tensors\"") != std::string::npos);
  CHECK((read_file(folder / "here/checkpoint/last.safetensors") ==
         read_file(folder / "away/checkpoint/last.safetensors")));
}

TEST_CASE("the window is a number of bytes, or a text that says one") {
  const auto window = [](const Json& value) {
    return parse_config({{"compression", {{"advanced", {{"offload_window", value}}}}}})
        .compression.file.window;
  };
  CHECK(window(12345) == 12345);
  CHECK(window("3 MiB") == int64_t{3} << 20);
  CHECK_THROWS_WITH_AS(
      window("9999999999 TiB"),
      doctest::Contains("compression.advanced.offload_window: expected less than 8 EiB"),
      ConfigError);
  CHECK_THROWS_AS(window(-1), ConfigError);
}

TEST_CASE("a folder that takes no file is an error before anything is trained") {
  const TempFolder folder;
  write_file(folder / "config.json", kTinyConfig);
  const Ran ran =
      frugal("train " + (folder / "config.json") + " --set compression.offload=/nowhere/at/all");
  CHECK(ran.status == 2);
  CHECK(ran.err.find("compression.offload: expected a directory to write a file in, got "
                     "/nowhere/at/all") != std::string::npos);
}

}  // namespace frugal::apps

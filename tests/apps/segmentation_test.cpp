// Networks that give a class to each pixel.
#include <doctest/doctest.h>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

constexpr const char* kConfig = R"({
  "model": {"name": "hrnet_w18"},
  "data": {"name": "random_masks", "shape": [32, 40, 3], "classes": 3, "batch_size": 6,
           "train_samples": 39, "test_samples": 10, "test_batch_size": 4},
  "optim": {"name": "adamw", "lr": 0.003}, "schedule": {"name": "constant"},
  "train": {"epochs": 3}, "threads": 1})";

TEST_CASE("segmentation learns, with a short last batch, whatever the number of workers") {
  const TempFolder folder;
  write_file(folder / "c.json", kConfig);
  const auto train = [&](const std::string& name, const std::string& sets) {
    return frugal("train " + (folder / "c.json") + " --out " + (folder / name) + sets);
  };
  const Ran ran = train("a", " --set data.workers=0");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json final = Json::parse(read_file(folder / "a/summary.json"))["final"];
  CHECK(final["test_accuracy"].get<double>() > 0.5);
  CHECK(final["test_miou"].get<double>() > 0.3);
  REQUIRE(train("b", " --set data.workers=2").status == 0);
  CHECK(read_file(folder / "a/checkpoint/last.safetensors") ==
        read_file(folder / "b/checkpoint/last.safetensors"));
  const Ran flipped = train("c", " --set data.flip=true");
  CHECK(flipped.status == 2);
  CHECK(flipped.err.find("data.flip") != std::string::npos);
  const Ran whole = train("d", " --set model.name=resnet20");
  CHECK(whole.status == 2);
  CHECK(whole.err.find("hrnet_w18") != std::string::npos);
  write_file(folder / "x.jpg", "");
  const Ran predicted = frugal("predict " + (folder / "a") + " " + (folder / "x.jpg"));
  CHECK(predicted.status == 1);
  CHECK(predicted.err.find("each pixel") != std::string::npos);
}

}  // namespace
}  // namespace frugal::apps

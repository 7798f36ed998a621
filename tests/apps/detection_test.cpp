// Networks that find boxes.
#include <doctest/doctest.h>

#include "apps/json.h"
#include "core/named_tensors.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"
#include "tests/data/image/picture_files.h"

namespace frugal::apps {
namespace {

constexpr const char* kConfig = R"({
  "model": {"name": "retinanet_resnet50_fpn", "trunk": "resnet18", "width": 8, "anchor_side": 8},
  "data": {"name": "random_boxes", "shape": [32, 32, 3], "classes": 3, "batch_size": 4, "flip": true,
           "train_samples": 7, "test_samples": 3, "test_batch_size": 2},
  "optim": {"name": "sgd", "lr": 0.001}, "schedule": {"name": "constant"},
  "train": {"epochs": 2, "checkpoint_interval": 1}, "threads": 1})";

TEST_CASE("detection: trains, is evaluated, predicts, and resumes to its bits") {
  const TempFolder folder;
  write_file(folder / "c.json", kConfig);
  const std::string train = "train " + (folder / "c.json");
  const Ran ran = frugal(train + " --out " + (folder / "a"));
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json final = Json::parse(read_file(folder / "a/summary.json"))["final"];
  CHECK(final["test_map"].get<double>() >= 0);
  REQUIRE(cut_run(train, folder / "b", "checkpoint/state.safetensors", 0, SIGKILL) ==
          128 + SIGKILL);
  REQUIRE(frugal(train + " --resume --out " + (folder / "b")).status == 0);
  CHECK(read_file(folder / "a/checkpoint/last.safetensors") ==
        read_file(folder / "b/checkpoint/last.safetensors"));
  REQUIRE(frugal(train + " --set data.workers=0 --out " + (folder / "c")).status == 0);
  CHECK(read_file(folder / "a/checkpoint/last.safetensors") ==
        read_file(folder / "c/checkpoint/last.safetensors"));
  const Ran judged = frugal("eval " + (folder / "a") + " --json");
  REQUIRE_MESSAGE(judged.status == 0, judged.err);
  const Json details = Json::parse(judged.out);
  for (const char* name : {"ap50", "ar_large"})
    CHECK(details.dump().find(name) != std::string::npos);
#ifdef FRUGAL_TEST_PICTURES
  const data::FileBytes bytes = data::jpeg_file(data::sample_picture(40, 60));
  write_file(folder / "x.jpg", std::string(bytes.begin(), bytes.end()));
  const Ran found = frugal("predict " + (folder / "a") + " " + (folder / "x.jpg") + " --json");
  REQUIRE_MESSAGE(found.status == 0, found.err);
  const Json line = Json::parse(found.out);
  CHECK(line["input"] == folder / "x.jpg");
  for (const Json& each : line["boxes"]) {
    const auto box = each["box"].get<std::vector<double>>();
    CHECK((box.size() == 4 && box[0] >= 0 && box[2] <= 60.01 && box[3] <= 40.01));
  }
  const Ran damaged = frugal("predict " + (folder / "a") + " " + (folder / "c.json"));
  CHECK(damaged.status == 1);
  CHECK(damaged.err.find("c.json") != std::string::npos);
#endif
}

TEST_CASE("detection: what does not fit is said") {
  const TempFolder folder;
  write_file(folder / "c.json", kConfig);
  const auto refused = [&](const std::string& set, const std::string& message) {
    const Ran ran = frugal("train " + (folder / "c.json") + " --set " + set);
    CHECK(ran.status == 2);
    CHECK_MESSAGE(ran.err.find(message) != std::string::npos, ran.err);
  };
  refused("model.name=resnet18", "fasterrcnn_resnet50_fpn");
  refused("data.name=random", "model.name");
  refused("data.cutout=4", "data.cutout");
  refused("train.label_smoothing=0.1", "train.label_smoothing");
  refused("data.shape=[8,8,3]", "data.shape");
  refused("data.classes=1", "data.classes");
  refused("model.deterministic_sampling=true", "model.deterministic_sampling");
}

TEST_CASE("grad: losses by name of pictures with and without objects") {
  const TempFolder folder;
  write_file(folder / "c.json", kConfig);
  REQUIRE(frugal("train " + (folder / "c.json") +
                 " --set train.epochs=1 --set data.train_samples=4 --out " + (folder / "a"))
              .status == 0);
  const Tensor boxes = Tensor::of({{1, 2, 20, 30}});
  NamedTensors batch = {{"input", Tensor::full({2, 3, 32, 32}, 0.5)},
                        {"boxes.0", boxes},
                        {"labels.0", Tensor::of({2}, DType::i64)},
                        {"boxes.1", Tensor::zeros({0, 4})},
                        {"labels.1", Tensor::zeros({0}, DType::i64)}};
  const auto grad = [&] {
    data::write_safetensors(folder / "b", batch);
    return frugal("grad " + (folder / "c.json") + " --weights " +
                  (folder / "a/checkpoint/last.safetensors") + " --batch " + (folder / "b") +
                  " --out " + (folder / "g"));
  };
  const Ran ran = grad();
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const auto out = data::SafetensorsFile::open(folder / "g");
  const double sum =
      out.read("loss/classification").item() + out.read("loss/bbox_regression").item();
  CHECK(out.read("loss").item() == doctest::Approx(sum));
  CHECK(out.contains("grad/head.regression_head.bbox_reg.weight"));
  batch[1].second = Tensor::of({{1, 2, 20, 33}});
  CHECK(grad().err.find("expected boxes within 32 x 32 pixels in 'boxes.0'") != std::string::npos);
  batch.pop_back();
  CHECK(grad().err.find("expected a tensor 'labels.1'") != std::string::npos);
}

}  // namespace
}  // namespace frugal::apps

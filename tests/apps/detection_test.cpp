// Networks that find boxes.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "apps/json.h"
#include "core/named_tensors.h"
#include "data/formats/safetensors.h"
#include "data/image/orientation.h"
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
  // A checkpoint of these networks has 90 MB: only the run that is cut writes one at each step.
  const std::string at_end = train + " --set train.checkpoint_interval=0";
  const Ran ran = frugal(at_end + " --out " + (folder / "a"));
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json final = Json::parse(read_file(folder / "a/summary.json"))["final"];
  CHECK(final["test_map"].get<double>() >= 0);
  REQUIRE(cut_run(train, folder / "b", "checkpoint/state.safetensors", 0, SIGKILL) ==
          128 + SIGKILL);
  REQUIRE(frugal(train + " --resume --out " + (folder / "b")).status == 0);
  CHECK(read_file(folder / "a/checkpoint/last.safetensors") ==
        read_file(folder / "b/checkpoint/last.safetensors"));
  check_fails(frugal("eval " + (folder / "a") + " --tta flip"), 2,
              {"--tta: expected none with the data random_boxes"});
  REQUIRE(frugal(at_end + " --set data.workers=0 --out " + (folder / "c")).status == 0);
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

#ifdef FRUGAL_TEST_PICTURES
// A folder of COCO with four pictures to train on and as many to test on. Each shows a red or a
// blue square, and the two have these ids in the lists of the two parts.
struct Ids {
  int64_t red, blue;
};
void write_coco(const std::string& folder, const Ids& train, const Ids& val,
                bool reversed = false) {
  std::filesystem::create_directories(folder + "/annotations");
  for (const auto& [part, ids] : {std::pair{"train", train}, {"val", val}}) {
    std::filesystem::create_directories(folder + "/" + part);
    Json images = Json::array(), annotations = Json::array();
    for (int i = 0; i < 4; ++i) {
      // Different sizes, so that pictures of a batch are padded.
      data::Picture picture{32 + 8 * i, 60 - 8 * i, 3, {}};
      picture.pixels.resize(static_cast<size_t>(3 * picture.height * picture.width), 40);
      const int left = 3 + 5 * i, top = 4 + 2 * i, side = 14;
      for (int y = top; y < top + side; ++y)
        for (int x = left; x < left + side; ++x)
          picture.pixels[static_cast<size_t>(3 * (y * picture.width + x) + (i % 2 == 0 ? 0 : 2))] =
              250;
      const std::string name = std::to_string(i) + ".png";
      const data::FileBytes bytes = data::png_file(picture);
      write_file(folder + "/" + part + "/" + name, std::string(bytes.begin(), bytes.end()));
      images.push_back({{"id", 10 - i},
                        {"file_name", name},
                        {"height", picture.height},
                        {"width", picture.width}});
      annotations.push_back({{"image_id", 10 - i},
                             {"category_id", i % 2 == 0 ? ids.red : ids.blue},
                             {"bbox", {left, top, side, side}},
                             {"iscrowd", false}});
    }
    if (reversed) std::reverse(images.begin(), images.end());
    const Json categories = {{{"id", ids.red}, {"name", "red"}},
                             {{"id", ids.blue}, {"name", "blue"}}};
    write_file(folder + "/annotations/instances_" + part + ".json",
               Json({{"images", images}, {"annotations", annotations}, {"categories", categories}})
                   .dump());
  }
}

std::string coco_config(const std::string& folder, const std::string& network) {
  return Json({{"model",
                {{"name", network}, {"trunk", "resnet18"}, {"width", 8}, {"anchor_side", 8}}},
               {"data",
                {{"name", "image_boxes"},
                 {"dir", folder},
                 {"sides", {40}},
                 {"longest_side", 64},
                 {"batch_size", 2}}},
               {"optim", {{"name", "sgd"}, {"lr", 0.005}, {"momentum", 0}}},
               {"schedule", {{"name", "constant"}}},
               {"compression", {{"bits", 0}}},
               {"train", {{"epochs", 1}}},
               {"threads", 1}})
      .dump();
}

constexpr Ids kIds{50007, 0};

// The folder of a run on kIds, which several tests look at: it is trained once. The data are in
// data(), and the configuration is that of coco_config().
const std::string& data() {
  static const TempFolder folder;
  static const std::string path = folder / "data";
  if (!std::filesystem::exists(path)) write_coco(path, kIds, kIds);
  return path;
}
std::string trained(const std::string& network) {
  static const TempFolder folder;
  const std::string run = folder / network;
  if (std::filesystem::exists(run)) return run;
  write_file(folder / "c.json", coco_config(data(), network));
  const Ran ran = frugal("train " + (folder / "c.json") + " --out " + run);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return run;
}
constexpr const char *kOneStage = "retinanet_resnet50_fpn", *kTwoStages = "fasterrcnn_resnet50_fpn";

TEST_CASE("detection: ids of categories are any, parts are matched by name, predict answers ids") {
  const TempFolder folder;
  write_coco(folder / "exchanged", kIds, {kIds.blue, kIds.red});
  write_coco(folder / "renumbered", {3, 8}, {8, 3});
  write_file(folder / "d.json", coco_config(folder / "exchanged", kTwoStages));
  const std::string run = trained(kTwoStages);
  CHECK(Json::parse(read_file(run + "/classes.json")) == Json({"background", "blue", "red"}));
  CHECK(Json::parse(read_file(run + "/input.json"))["category_ids"] == Json({nullptr, 0, 50007}));
  const Json summary = Json::parse(read_file(run + "/summary.json"))["final"];
  REQUIRE(frugal("train " + (folder / "d.json") + " --out " + (folder / "b")).status == 0);
  CHECK(Json::parse(read_file(folder / "b/summary.json"))["final"] == summary);
  CHECK(!summary.contains("test_accuracy"));
  // The classes are those of the run, whatever the list to train on says by now.
  const Ran here = frugal("eval " + run + " --json"),
            there = frugal("eval " + run + " --json --set data.dir=" + (folder / "renumbered"));
  REQUIRE_MESSAGE(there.status == 0, there.err);
  CHECK(here.out == there.out);
  const Json judged = Json::parse(here.out);
  CHECK(judged["samples"] == 4);
  CHECK(judged["map"] == summary["test_map"]);
  CHECK(!judged.contains("accuracy"));
  const Ran found =
      frugal("predict " + run + " " + data() + "/val/0.png --json --set compression.bits=0");
  REQUIRE_MESSAGE(found.status == 0, found.err);
  const Json boxes = Json::parse(found.out)["boxes"];
  REQUIRE(!boxes.empty());
  for (const Json& box : boxes) CHECK(box["class"] == (box["name"] == "red" ? 50007 : 0));
}

TEST_CASE("detection: an evaluation depends on neither batches nor the order of the list") {
  const TempFolder folder;
  write_coco(folder / "reversed", kIds, kIds, true);
  for (const char* network : {kOneStage, kTwoStages}) {
    CAPTURE(network);
    const std::string run = trained(network);
    const auto judged = [&](const std::string& sets) {
      const Ran found = frugal("eval " + run + " --json" + sets);
      REQUIRE_MESSAGE(found.status == 0, found.err);
      return Json::parse(found.out);
    };
    const Json one = judged(" --set data.test_batch_size=1");
    for (const std::string& sets :
         {std::string(" --set data.test_batch_size=3"),
          " --set data.test_batch_size=4 --set data.dir=" + (folder / "reversed")}) {
      const Json other = judged(sets);
      CHECK(other["details"] == one["details"]);
      // The mean is taken in f32 over the pictures of a batch.
      CHECK(other["loss"].get<double>() ==
            doctest::Approx(one["loss"].get<double>()).epsilon(1e-6));
    }
    const Json halves = judged(" --set data.test_batch_size=1 --set train.metric=map_50");
    CHECK(halves["map_50"] == one["details"]["ap50"]);
    CHECK(!halves.contains("map"));
  }
}

TEST_CASE("detection: boxes that predict finds lie on the stored picture, unless data.exif turns") {
  const TempFolder folder;
  const std::string run = trained(kTwoStages);
  const data::Picture stored = data::sample_picture(40, 60);
  const auto write = [&](const std::string& name, const data::FileBytes& bytes) {
    write_file(folder / name, std::string(bytes.begin(), bytes.end()));
  };
  write("plain.png", data::png_file(stored));
  write("marked.png", data::png_file_turned(stored, 6));
  write("turned.png", data::png_file(data::turned_picture(stored, 6)));
  const auto boxes = [&](const std::string& name, const std::string& sets = "") {
    const Ran found = frugal("predict " + run + " " + (folder / name) + " --json" + sets);
    REQUIRE_MESSAGE(found.status == 0, found.err);
    const Json all = Json::parse(found.out)["boxes"];
    CHECK(!all.empty());
    return all;
  };
  CHECK(boxes("marked.png") == boxes("plain.png"));
  CHECK(boxes("marked.png", " --set data.exif=turn") == boxes("turned.png"));
}
#endif

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
                 " --set train.epochs=1 --set data.train_samples=4 --set "
                 "train.checkpoint_interval=0 --out " +
                 (folder / "a"))
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

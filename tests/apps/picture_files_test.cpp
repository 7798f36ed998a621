// Runs on picture files, as their owner has them.
#include <doctest/doctest.h>

#include "apps/json.h"
#include "data/image/picture.h"
#include "tests/apps/run.h"
#include "tests/data/image/picture_files.h"

#ifdef FRUGAL_TEST_PICTURES
namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

// Plain pictures, dark in class "a" and bright in class "b", of changing shapes.
void make_pictures(const std::string& folder, int64_t of_each) {
  for (int64_t i = 0; i < 2 * of_each; ++i) {
    const bool bright = i % 2 == 1;
    const int64_t height = 20 + i % 7, width = 18 + i % 5;
    const data::Picture picture{
        height, width, 3,
        std::vector<uint8_t>(size_t(3 * height * width), uint8_t((bright ? 170 : 60) + i % 20))};
    const std::string path = fmt::format("{}/{}/{}.jpg", folder, bright ? "b" : "a", i);
    fs::create_directories(fs::path(path).parent_path());
    const data::FileBytes bytes = data::jpeg_file(picture);
    write_file(path, std::string(bytes.begin(), bytes.end()));
  }
}

struct Pictures {
  TempFolder folder;
  std::string config;
  Pictures() {
    make_pictures(folder / "data/train", 24);
    make_pictures(folder / "data/val", 6);
    config = folder / "c.json";
    write_file(config, fmt::format(R"({{"model": {{"name": "mlp", "hidden": [16]}},
        "data": {{"name": "image_folder", "dir": "{}", "image_size": 8, "batch_size": 10,
                  "test_batch_size": 8, "flip": true, "color_jitter": [0.1, 0.1, 0.1, 0.1]}},
        "compression": {{"advanced": {{"min_elements": 64}}}},
        "optim": {{"lr": 0.1}}, "train": {{"epochs": 3}}, "threads": 1}})",
                                   folder / "data"));
  }
  Ran train(const std::string& name, const std::string& sets = "") const {
    return frugal("train " + config + " --out " + (folder / name) + sets);
  }
  Json summary(const std::string& name) const {
    return Json::parse(read_file(folder / (name + "/summary.json")));
  }
};

TEST_CASE_FIXTURE(Pictures, "a folder of pictures is learned, whatever the number of workers") {
  const Ran one = train("one", " --set data.workers=0");
  REQUIRE_MESSAGE(one.status == 0, one.err);
  CHECK(summary("one")["final"]["test_accuracy"] == 1.0);
  REQUIRE(train("three", " --set data.workers=3").status == 0);
  CHECK(read_file(folder / "one/checkpoint/last.safetensors") ==
        read_file(folder / "three/checkpoint/last.safetensors"));
}

TEST_CASE_FIXTURE(Pictures, "pictures without parts are split with the seed") {
  const std::string flat = " --set data.dir=" + (folder / "data/train");
  REQUIRE(train("flat", flat + " --set 'data.split=[0.5, 0.25]'").status == 0);
  CHECK(summary("flat")["final"]["validation"]["samples"] == 12);
  const Ran ran = train("wrong", flat + " --set 'data.split=[0.9, 0.25]'");
  CHECK(ran.status == 2);
  CHECK(ran.err.find("data.split") != std::string::npos);
}

TEST_CASE_FIXTURE(Pictures, "a bad picture stops a run by name, or does not count") {
  write_file(folder / "data/train/a/0.jpg", "no picture");
  const Ran stopped = train("stopped");
  CHECK(stopped.status == 1);
  CHECK(stopped.err.find("train/a/0.jpg") != std::string::npos);
  const Ran skipped = train("skipped", " --set data.skip_bad=true");
  REQUIRE_MESSAGE(skipped.status == 0, skipped.err);
  CHECK(skipped.err.find("train/a/0.jpg") != std::string::npos);
  CHECK(skipped.err.find("bad files so far: 1") != std::string::npos);
  CHECK(summary("skipped")["final"]["test_accuracy"] == 1.0);
  fs::remove_all(folder / "data/val/b");
  fs::create_directories(folder / "data/val/c");
  const Ran unknown = train("unknown");
  CHECK(unknown.status == 1);
  CHECK(unknown.err.find("\"c\"") != std::string::npos);
}

TEST_CASE_FIXTURE(Pictures, "a file of names orders the classes, and a run tells them") {
  REQUIRE(train("sorted").status == 0);
  CHECK(Json::parse(read_file(folder / "sorted/classes.json")) == Json({"a", "b"}));
  write_file(folder / "names.json",
             R"({"0": ["b", "bright"], "1": ["c", "none"], "2": ["a", "dark"]})");
  const std::string names = " --set data.class_names=" + (folder / "names.json");
  const Ran ordered = train("ordered", names);
  REQUIRE_MESSAGE(ordered.status == 0, ordered.err);
  CHECK(Json::parse(read_file(folder / "ordered/classes.json")) ==
        Json({"bright", "none", "dark"}));
  CHECK(summary("ordered")["final"]["test_accuracy"] == 1.0);
  write_file(folder / "names.json", R"(["a", "c"])");
  const Ran unknown = train("unknown", names);
  CHECK(unknown.status == 1);
  CHECK(unknown.err.find("got \"b\" in the data") != std::string::npos);
  // ImageNet's own file beside the pictures gives names, and leaves the order.
  write_file(folder / "data/imagenet_class_index.json",
             R"({"0": ["b", "bright"], "1": ["a", "dark"]})");
  REQUIRE(train("index").status == 0);
  CHECK(Json::parse(read_file(folder / "index/classes.json")) == Json({"dark", "bright"}));
}

TEST_CASE_FIXTURE(Pictures, "pictures with several labels") {
  std::string lines = "path,labels\n";
  for (int i = 0; i < 48; ++i)
    lines += fmt::format("train/{}/{}.jpg,{}\n", i % 2 == 1 ? "b" : "a", i,
                         i % 2 == 1 ? "bright|picture" : "picture");
  write_file(folder / "data/train.csv", lines);
  const std::string list = " --set data.name=image_list --set data.several_labels=true";
  const Ran ran = train("labels", list);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(summary("labels")["final"]["test_micro_f1"] == 1.0);
  CHECK(Json::parse(read_file(folder / "labels/classes.json")) == Json({"bright", "picture"}));
  write_file(folder / "data/train/a/0.jpg", "no picture");
  const Ran skipped = train("skipped", list + " --set data.skip_bad=true");
  REQUIRE_MESSAGE(skipped.status == 0, skipped.err);
  CHECK(skipped.err.find("bad files so far: 1") != std::string::npos);
  CHECK(train("mixed", list + " --set data.mixup=1").status == 2);
  // "bright|picture" is then the name of one class.
  const Ran one = train("one",
                        " --set data.name=image_list --set data.skip_bad=true --set data.mixup=0.2 "
                        "--set data.cutmix=1");
  CHECK_MESSAGE(one.status == 0, one.err);
}

TEST_CASE_FIXTURE(Pictures, "a list of pictures with any header, and columns that keys name") {
  std::string rows, wide = "id,class,file\n";
  for (int i = 0; i < 48; ++i) {
    const std::string path = fmt::format("train/{}/{}.jpg", i % 2 == 1 ? "b" : "a", i);
    rows += fmt::format("{},{}\n", path, i % 2 + 9);
    wide += fmt::format("{},{},{}\n", i, i % 2 + 9, path);
  }
  const std::string list = " --set data.name=image_list";
  write_file(folder / "data/train.csv", rows);
  REQUIRE(train("plain", list).status == 0);
  const auto same = [&](const std::string& name, const std::string& sets) {
    const Ran ran = train(name, list + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    CHECK(read_file(folder / (name + "/classes.json")) == read_file(folder / "plain/classes.json"));
    CHECK(read_file(folder / (name + "/checkpoint/last.safetensors")) ==
          read_file(folder / "plain/checkpoint/last.safetensors"));
  };
  write_file(folder / "data/train.csv", "image,label\n" + rows);
  same("named", "");
  same("skipping", " --set data.skip_bad=true");
  write_file(folder / "data/train.csv", wide);
  same("columns", " --set data.path_column=file --set data.target=class");
  const Ran unknown = train("unknown", list + " --set data.path_column=picture");
  CHECK(unknown.status == 2);
  CHECK(has(unknown.err, "data.path_column: expected a column of "));
  CHECK(has(unknown.err, "which has id, class, file, got \"picture\""));
  const Ran twice = train("twice", list + " --set data.path_column=file --set data.target=file");
  CHECK(twice.status == 2);
  CHECK(has(twice.err, "data.target: expected another column of "));
}

TEST_CASE_FIXTURE(Pictures, "a list of pictures, and means by name or by number") {
  std::string lines = "path,label\n";
  for (int i = 0; i < 48; ++i)
    lines += fmt::format("train/{}/{}.jpg,{}\n", i % 2 == 1 ? "b" : "a", i, i % 2);
  write_file(folder / "data/train.csv", lines);
  const std::string list = " --set data.name=image_list";
  REQUIRE(train("list", list).status == 0);
  CHECK(summary("list")["final"]["test_accuracy"] == 1.0);
  REQUIRE(train("named", list + " --set data.normalize=imagenet").status == 0);
  CHECK(read_file(folder / "list/checkpoint/last.safetensors") ==
        read_file(folder / "named/checkpoint/last.safetensors"));
  const std::string numbers =
      " --set 'data.mean=[0.485, 0.456, 0.406]' --set 'data.std=[0.229, 0.224, 0.225]'";
  REQUIRE(train("numbers", list + numbers).status == 0);
  CHECK(read_file(folder / "list/checkpoint/last.safetensors") ==
        read_file(folder / "numbers/checkpoint/last.safetensors"));
  REQUIRE(train("none", list + " --set data.normalize=none").status == 0);
  CHECK(read_file(folder / "list/checkpoint/last.safetensors") !=
        read_file(folder / "none/checkpoint/last.safetensors"));
  CHECK(train("two", list + " --set 'data.mean=[0, 0]' --set 'data.std=[1, 1]'").status == 2);
  CHECK(train("half", list + numbers + " --set data.normalize=half").status == 2);
}

}  // namespace
}  // namespace frugal::apps
#endif

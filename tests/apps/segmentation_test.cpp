// Networks that give a class to each pixel.
#include <doctest/doctest.h>

#include "apps/json.h"
#include "data/formats/safetensors.h"
#include "data/image/mask_files.h"
#include "data/image/picture.h"
#include "tests/apps/run.h"
#include "tests/data/image/picture_files.h"

namespace frugal::apps {
namespace {

constexpr const char* kConfig = R"({
  "model": {"name": "unet", "width": 8},
  "data": {"name": "random_masks", "shape": [32, 40, 3], "classes": 3, "batch_size": 6,
           "train_samples": 39, "test_samples": 10, "test_batch_size": 4},
  "optim": {"name": "adamw", "lr": 0.01}, "schedule": {"name": "constant"},
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
  const Ran predicted = frugal("predict " + (folder / "a") + " " + (folder / "x.jpg"));
  CHECK(predicted.status == 2);
  CHECK(predicted.err.find("--out") != std::string::npos);
}

TEST_CASE("aux_loss trains a second head, is saved, resumed and evaluated without it") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({
    "model": {"name": "fcn_resnet50", "width": 2, "aux_loss": true},
    "data": {"name": "random_masks", "shape": [16, 16, 3], "classes": 3, "batch_size": 4,
             "train_samples": 10, "test_samples": 4},
    "optim": {"name": "sgd", "lr": 0.01, "weight_decay": 0}, "schedule": {"name": "constant"},
    "train": {"epochs": 2, "checkpoint_interval": 1}, "threads": 1})");
  const std::string train = "train " + (folder / "c.json");
  const Ran ran = frugal(train + " --out " + (folder / "a"));
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  REQUIRE(cut_run(train, folder / "b", "checkpoint/state.safetensors", 0, SIGKILL) ==
          128 + SIGKILL);
  REQUIRE(frugal(train + " --resume --out " + (folder / "b")).status == 0);
  const std::string last = "checkpoint/last.safetensors";
  CHECK(read_file(folder / "a/" + last) == read_file(folder / "b/" + last));
  const auto file = data::SafetensorsFile::open(folder / "a/" + last);
  CHECK(file.info("aux_classifier.4.weight").shape == Shape{3, 8, 1, 1});
  // Without weight decay only a gradient can change the second head.
  REQUIRE(frugal(train + " --set optim.lr=1e-9 --out " + (folder / "d")).status == 0);
  const auto start = data::SafetensorsFile::open(folder / "d/" + last);
  CHECK(start.read("aux_classifier.4.weight").to_vector() !=
        file.read("aux_classifier.4.weight").to_vector());
  // Without the key the same file is read, and gives the same evaluation.
  const std::string eval =
      "eval " + (folder / "c.json") + " --checkpoint " + (folder / "a/" + last) + " --json";
  const Ran with = frugal(eval), without = frugal(eval + " --set model.aux_loss=false");
  REQUIRE_MESSAGE(without.status == 0, without.err);
  CHECK(Json::parse(with.out)["loss"] == Json::parse(without.out)["loss"]);
}

#ifdef FRUGAL_TEST_PICTURES
// Grey pictures of 40 x 50 with a bright square, and masks in which it is 255.
void write_pictures(const TempFolder& folder, int count) {
  std::filesystem::create_directories(folder / "data/image");
  std::filesystem::create_directories(folder / "data/label");
  for (int i = 0; i < count; ++i) {
    const int top = 3 * i % 20, left = 7 * i % 30;
    std::vector<uint8_t> picture(40 * 50, 60), mask(40 * 50, 0);
    for (int y = top; y < top + 16; ++y)
      for (int x = left; x < left + 16; ++x) {
        picture[static_cast<size_t>(y * 50 + x)] = 200;
        mask[static_cast<size_t>(y * 50 + x)] = 255;
      }
    const std::string name = std::to_string(i) + ".png";
    const auto write = [&](const char* where, std::vector<uint8_t> values) {
      const data::FileBytes bytes = data::png_file({40, 50, 1, std::move(values)});
      write_file(folder / (where + name), std::string(bytes.begin(), bytes.end()));
    };
    write("data/image/", std::move(picture));
    write("data/label/", std::move(mask));
  }
}

TEST_CASE(
    "a folder of pictures and masks is learned and evaluated whole, and resumes to its bits") {
  const TempFolder folder;
  write_pictures(folder, 20);
  const Json config = {{"model", {{"name", "unet"}, {"width", 8}}},
                       {"data",
                        {{"name", "image_masks"},
                         {"dir", folder / "data"},
                         {"image_size", 32},
                         {"channels", 1},
                         {"batch_size", 4},
                         {"flip", true},
                         {"scale", {0.8, 1.4}},
                         {"normalize", "half"}}},
                       {"optim", {{"name", "adamw"}, {"lr", 0.01}}},
                       {"schedule", {{"name", "constant"}}},
                       {"train", {{"epochs", 6}, {"checkpoint_interval", 3}}},
                       {"threads", 1}};
  write_file(folder / "c.json", config.dump());
  const std::string train = "train " + (folder / "c.json");
  const Ran ran = frugal(train + " --out " + (folder / "a"));
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json final = Json::parse(read_file(folder / "a/summary.json"))["final"];
  CHECK(final["test_miou"].get<double>() > 0.8);
  REQUIRE(cut_run(train, folder / "b", "checkpoint/state.safetensors", 0, SIGKILL) ==
          128 + SIGKILL);
  REQUIRE(frugal(train + " --resume --out " + (folder / "b")).status == 0);
  CHECK(read_file(folder / "a/checkpoint/last.safetensors") ==
        read_file(folder / "b/checkpoint/last.safetensors"));
  // Masks of pictures have the values of the training masks.
  const std::string predict = "predict " + (folder / "a") + " ";
  const Ran masks = frugal(predict + (folder / "data/image/3.png") + " " +
                           (folder / "data/image/8.png") + " --json --out " + (folder / "masks"));
  REQUIRE_MESSAGE(masks.status == 0, masks.err);
  const auto mask_of = [](const std::string& path) {
    const std::string file = read_file(path);
    return data::decode_mask({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, path);
  };
  const data::Picture found = mask_of(folder / "masks/3.png"),
                      wanted = mask_of(folder / "data/label/3.png");
  REQUIRE(found.height == 40);
  REQUIRE(found.width == 50);
  int64_t right = 0, ones = 0;
  for (size_t i = 0; i < found.pixels.size(); ++i) {
    right += found.pixels[i] == wanted.pixels[i] ? 1 : 0;
    ones += found.pixels[i] == 255 ? 1 : 0;
  }
  CHECK(right > 0.9 * 40 * 50);
  const Json line = Json::parse(masks.out.substr(0, masks.out.find('\n')));
  for (const Json& guess : line["top"])
    if (guess["class"] == 1)
      CHECK(guess["probability"].get<double>() ==
            doctest::Approx(static_cast<double>(ones) / (40 * 50)));
  const Ran twice = frugal(predict + (folder / "data/image/3.png") + " " +
                           (folder / "data/label/3.png") + " --out " + (folder / "masks"));
  CHECK(twice.status == 2);
  CHECK(twice.err.find("different names") != std::string::npos);
  // Masks that are there stay, and pictures always do. Sub-folders are kept.
  const Ran again =
      frugal(predict + (folder / "data/image/3.png") + " --out " + (folder / "masks"));
  CHECK(again.status == 2);
  CHECK(has(again.err, "3.png\" exists; --overwrite writes over it"));
  REQUIRE(
      frugal(predict + (folder / "data/image/3.png") + " --overwrite --out " + (folder / "masks"))
          .status == 0);
  const std::string before = read_file(folder / "data/image/3.png");
  std::filesystem::create_directory_symlink(folder / "data/image", folder / "linked");
  for (const char* where : {"data/image", "linked"}) {
    const Ran over =
        frugal(predict + (folder / "data/image/3.png") + " --overwrite --out " + (folder / where));
    CHECK(over.status == 2);
    CHECK(has(over.err, "written over a picture that is read"));
  }
  CHECK(read_file(folder / "data/image/3.png") == before);
  for (const char* name : {"p/a", "p/b"}) {
    std::filesystem::create_directories(folder / name);
    std::filesystem::copy(folder / "data/image/3.png", folder / (std::string(name) + "/x.png"));
  }
  for (const char* more : {"", " --overwrite"}) {  // the masks are no pictures for the second call
    REQUIRE(frugal(predict + (folder / "p") + more + " --out " + (folder / "p/masks")).status == 0);
    CHECK(mask_of(folder / "p/masks/a/x.png").pixels == found.pixels);
    CHECK(mask_of(folder / "p/masks/b/x.png").pixels == found.pixels);
    CHECK(!std::filesystem::exists(folder / "p/masks/masks"));
  }
  // Masks have values for the classes of the data, of which a network may have more.
  REQUIRE(frugal(train +
                 " --set model.num_classes=200 --set train.metric=accuracy --set "
                 "train.steps=1 --set optim.lr=1e-9 --out " +
                 (folder / "more"))
              .status == 0);
  const Ran wide = frugal("predict " + (folder / "more") + " " + (folder / "data/image/3.png") +
                          " --json --out " + (folder / "wide"));
  REQUIRE_MESSAGE(wide.status == 0, wide.err);
  for (const uint8_t value : mask_of(folder / "wide/3.png").pixels)
    CHECK((value == 0 || value == 255));
  const Ran judged = frugal("eval " + (folder / "a") + " --json");
  REQUIRE_MESSAGE(judged.status == 0, judged.err);
  CHECK(Json::parse(judged.out)["miou"] == final["test_miou"]);
  CHECK(Json::parse(judged.out)["samples"] == 8);  // windows: 4 of each of 2 pictures
  const Ran none = frugal(train + " --set data.mask_values=[7,8] --out " + (folder / "e"));
  CHECK(none.status == 1);
  CHECK(has(none.err, "expected a value of data.mask_values, 7, 8"));
  // Masks of 0 and 255 have two classes, also where the configuration says so.
  REQUIRE(frugal(train + " --set data.classes=2 --out " + (folder / "two")).status == 0);
  CHECK(read_file(folder / "a/checkpoint/last.safetensors") ==
        read_file(folder / "two/checkpoint/last.safetensors"));
  check_fails(frugal(train + " --set data.classes=3"), 2,
              {"data.classes: expected 2 or null", "0 and 255", "data.mask_values"});
  check_fails(frugal(train + " --set data.mask_values=[0,0]"), 2,
              {"data.mask_values: expected each value once, got 0 twice"});
  check_fails(frugal("eval " + (folder / "a") + " --tta flip"), 2,
              {"--tta: expected none with the data image_masks"});
  std::filesystem::remove(folder / "data/label/3.png");
  const Ran lacking = frugal(train + " --out " + (folder / "d"));
  CHECK(lacking.status == 1);
  CHECK(lacking.err.find("3.png") != std::string::npos);
}
#endif

}  // namespace
}  // namespace frugal::apps

#include "data/image/mask_files.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>

#include "data/image/orientation.h"
#include "data/image/transforms.h"
#include "data/loader.h"
#include "tests/data/files.h"
#include "tests/data/image/picture_files.h"
#include "tests/data/warnings.h"

#ifdef FRUGAL_TEST_PICTURES
namespace frugal::data {
namespace {

namespace fs = std::filesystem;
using frugal_test::fails;
using frugal_test::TemporaryFolder;

// Files in a folder: a mask has the value of(y, x), its picture ten times that.
struct Masks {
  TemporaryFolder folder;
  void add(const std::string& picture, const std::string& mask, int64_t height, int64_t width,
           const std::function<int(int64_t, int64_t)>& of) const {
    Picture a{height, width, 1, {}}, b{height, width, 1, {}};
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        b.pixels.push_back(static_cast<uint8_t>(of(y, x)));
        a.pixels.push_back(static_cast<uint8_t>(std::min(255, 10 * of(y, x))));
      }
    write(picture, png_file(a));
    write(mask, png_file(b));
  }
  void write(const std::string& name, const FileBytes& bytes) const {
    fs::create_directories(fs::path(folder.path() + "/" + name).parent_path());
    folder.write(name, std::string(bytes.begin(), bytes.end()));
  }
};

int stripes(int64_t, int64_t x) { return static_cast<int>(x % 3); }

TEST_CASE("masks: the layouts of folders that people have") {
  const auto count = [](const Masks& m, MaskPart part) {
    return list_masks(m.folder.path(), part).size();
  };
  Masks together, apart, within, voc, cityscapes;
  together.add("image/1.png", "label/1.png", 4, 4, stripes);
  CHECK(list_masks(together.folder.path()).size() == 1);
  CHECK(count(together, MaskPart::train) == 0);
  apart.add("train/images/a.png", "train/masks/a.png", 4, 4, stripes);
  apart.add("val/images/b.png", "val/masks/b.png", 4, 4, stripes);
  CHECK(count(apart, MaskPart::train) == 1);
  CHECK(count(apart, MaskPart::validation) == 1);
  CHECK(count(apart, MaskPart::test) == 0);
  within.add("images/training/a.png", "annotations/training/a.png", 4, 4, stripes);
  within.add("images/validation/b.png", "annotations/validation/b.png", 4, 4, stripes);
  CHECK(count(within, MaskPart::validation) == 1);
  for (const char* name : {"x", "y", "z"})
    voc.add(fmt::format("JPEGImages/{}.png", name), fmt::format("SegmentationClass/{}.png", name),
            4, 4, stripes);
  voc.write("ImageSets/Segmentation/train.txt", {'z', '\r', '\n', 'x', '\n'});
  const std::vector<MaskFile> listed = list_masks(voc.folder.path(), MaskPart::train);
  REQUIRE(listed.size() == 2);
  CHECK(fs::path(listed[0].mask).filename() == "z.png");
  voc.write("ImageSets/Segmentation/val.txt", {'w'});
  fails("line 1", [&] { list_masks(voc.folder.path(), MaskPart::validation); });
  cityscapes.add("leftImg8bit/train/ulm/u_leftImg8bit.png",
                 "gtFine/train/ulm/u_gtFine_labelTrainIds.png", 4, 4, stripes);
  cityscapes.add("leftImg8bit/train/ulm/v_leftImg8bit.png",
                 "gtFine/train/ulm/v_gtFine_labelTrainIds.png", 4, 4, stripes);
  CHECK(count(cityscapes, MaskPart::train) == 2);
  fs::remove(cityscapes.folder.path() + "/gtFine/train/ulm/v_gtFine_labelTrainIds.png");
  fails("v_leftImg8bit.png", [&] { list_masks(cityscapes.folder.path(), MaskPart::train); });
  fails("folders of pictures and masks", [&] { list_masks(together.folder.path() + "/image"); });
}

TEST_CASE("masks: values become classes") {
  Masks two, three;
  two.add("image/1.png", "label/1.png", 4, 4, [](int64_t y, int64_t) { return y == 0 ? 255 : 0; });
  const MaskValues binary = find_mask_values(list_masks(two.folder.path()));
  CHECK(binary.classes == 2);
  CHECK(binary.of_classes == std::vector<int64_t>{0, 255});
  three.add("image/1.png", "label/1.png", 4, 6,
            [](int64_t y, int64_t x) { return y == 0 ? 255 : static_cast<int>(x % 3); });
  const std::vector<MaskFile> files = list_masks(three.folder.path());
  const MaskValues found = find_mask_values(files);
  CHECK(found.classes == 3);
  CHECK(found.of_classes.empty());
  MaskFilesOptions options;
  options.height = 4;
  options.width = 6;
  options.channels = 1;
  std::vector<float> picture(24);
  std::vector<int64_t> target(24);
  const MaskFiles all(files, found, options);
  all.get_pixels_into(0, {}, picture.data(), target.data());
  CHECK(target[0] == kIgnored);
  CHECK(target[6] == 0);
  CHECK(target[8] == 2);
  CHECK(picture[8] == doctest::Approx(20.0 / 255));
  const MaskFiles some(files, {{2, 0}, 2}, options);  // class 0 is value 2, class 1 value 0
  some.get_pixels_into(0, {}, picture.data(), target.data());
  CHECK(target[8] == 0);
  CHECK(target[7] == kIgnored);
  CHECK(target[6] == 1);
  const MaskFiles few(files, {{}, 2}, options);
  fails("row 1, column 2", [&] { few.get_pixels_into(0, {}, picture.data(), target.data()); });
}

TEST_CASE("masks: values that leave classes without pixels are told of") {
  const auto found = [](const std::function<int(int64_t, int64_t)>& of, std::string& told) {
    Masks m;
    m.add("image/1.png", "label/1.png", 4, 6, stripes);
    m.add("image/2.png", "label/2.png", 4, 6, of);
    fs::remove(m.folder.path() + "/image/1.png");
    fs::remove(m.folder.path() + "/label/1.png");
    const frugal_test::Warnings warnings;
    const MaskValues values = find_mask_values(list_masks(m.folder.path()));
    told = warnings.text();
    return values.classes;
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  std::string told;
  CHECK(found(stripes, told) == 3);
  CHECK(told.empty());
  CHECK(found([](int64_t, int64_t x) { return x == 0 ? 128 : 0; }, told) == 129);
  CHECK(has(told, "masks hold the values 0, 128, such as 128 in "));
  CHECK(has(told,
            "2.png\"; values are classes, so the network gets 129, of which 127 have no pixel"));
  CHECK(has(told, "data.mask_values=[0, 128] makes a class of each value; data.classes=129 takes"));
  CHECK(found([](int64_t y, int64_t x) { return y == 0 ? 255 : 1 + static_cast<int>(x % 2); },
              told) == 3);
  CHECK(has(told, "data.mask_values=[1, 2] makes a class of each value but 255"));
  CHECK(found([](int64_t y, int64_t x) { return static_cast<int>(y < 2 ? x : 255 - x); }, told) ==
        255);
  CHECK(has(told, "0, 1, 2, 3, 4, 5, 250, 251, 252, 253 and others, such as 254 in"));
  CHECK(has(told, "soft edges"));
  CHECK(found([](int64_t y, int64_t x) { return y > 0 ? 0 : x > 0 ? 255 : 254; }, told) == 255);
  CHECK(has(told, "soft edges"));
}

TEST_CASE("masks: two pictures or two masks of one name are refused, and both are named") {
  Masks folders, voc;
  folders.add("images/a.png", "masks/a.png", 4, 6, stripes);
  folders.add("images/b.png", "masks/b.png", 4, 6, stripes);
  fs::copy(folders.folder.path() + "/masks/b.png", folders.folder.path() + "/masks/b.bmp");
  fails("masks/b.bmp\" and \"", [&] { list_masks(folders.folder.path()); });
  fails("masks/b.png\"; take one", [&] { list_masks(folders.folder.path()); });
  fs::remove(folders.folder.path() + "/masks/b.bmp");
  fs::copy(folders.folder.path() + "/images/a.png", folders.folder.path() + "/images/a.jpg");
  fails("images/a.jpg\" and \"", [&] { list_masks(folders.folder.path()); });
  voc.add("JPEGImages/x.png", "SegmentationClass/x.png", 4, 4, stripes);
  voc.write("ImageSets/Segmentation/train.txt", {'x', '\n'});
  CHECK(list_masks(voc.folder.path(), MaskPart::train).size() == 1);
  voc.write("ImageSets/Segmentation/train.txt", {'x', '\n', 'x'});
  fails("train.txt\", line 2: expected each picture once, got \"x\" again",
        [&] { list_masks(voc.folder.path(), MaskPart::train); });
  voc.write("ImageSets/Segmentation/train.txt", {'x', '\n'});
  fs::copy(voc.folder.path() + "/JPEGImages/x.png", voc.folder.path() + "/JPEGImages/x.jpeg");
  fails("x.jpeg\" and \"", [&] { list_masks(voc.folder.path(), MaskPart::train); });
}

TEST_CASE("masks: two folders of masks are refused, and masks without a picture told of") {
  Masks m;
  m.add("images/a.png", "masks/a.png", 4, 6, stripes);
  m.write("labels/a.txt", {'0', '\n'});
  const frugal_test::Warnings warnings;
  CHECK(list_masks(m.folder.path()).size() == 1);  // a folder of texts beside it is none of masks
  CHECK(warnings.text().empty());
  m.add("images/b.png", "masks/c.png", 4, 6, stripes);
  fails("the same name, up to the ending", [&] { list_masks(m.folder.path()); });
  fs::rename(m.folder.path() + "/masks/c.png", m.folder.path() + "/masks/b_mask.png");
  fails("b_mask.png\" has another one", [&] { list_masks(m.folder.path()); });
  fs::remove(m.folder.path() + "/images/b.png");
  CHECK(list_masks(m.folder.path()).size() == 1);
  CHECK(warnings.has("b_mask.png\": this mask has no picture in "));
  m.add("labels/a.png", "masks/d.png", 4, 6, stripes);
  for (const auto part : {MaskPart::train, MaskPart::test})
    fails("got \"images\" with \"masks\" and \"images\" with \"labels\"",
          [&] { list_masks(m.folder.path(), part); });
  fails("take one of them away", [&] { list_masks(m.folder.path()); });
}

TEST_CASE("masks: values that no mask has are refused") {
  Masks m;
  m.add("image/1.png", "label/1.png", 4, 6, stripes);
  const std::vector<MaskFile> files = list_masks(m.folder.path());
  check_mask_values(files, {{7, 2}, 2});
  fails("expected a value of data.mask_values, 7, 8, in one of 1 masks", [&] {
    check_mask_values(files, {{7, 8}, 2});
  });
  fails("got 0, 1, 2", [&] { check_mask_values(files, {{7, 8}, 2}); });
}

TEST_CASE("masks: a mask lies on a picture that an EXIF orientation turns") {
  const TemporaryFolder folder;
  fs::create_directories(folder / "image");
  fs::create_directories(folder / "label");
  const Picture stored = sample_picture(16, 24);  // red grows down, green to the right
  Picture mask{16, 24, 1, {}};                    // 1 in the lower right quarter
  for (int64_t y = 0; y < 16; ++y)
    for (int64_t x = 0; x < 24; ++x) mask.pixels.push_back(y >= 8 && x >= 12 ? 1 : 0);
  const auto write = [&](const std::string& name, const FileBytes& bytes) {
    folder.write(name, std::string(bytes.begin(), bytes.end()));
  };
  for (int orientation = 1; orientation <= 8; ++orientation) {
    CAPTURE(orientation);
    write("image/1.jpg", jpeg_file_turned(stored, static_cast<uint8_t>(orientation)));
    const bool swaps = orientation >= 5;
    for (const Exif exif : {Exif::ignore, Exif::turn})
      for (const bool about_turned : {false, true}) {
        if (!swaps && about_turned != (exif == Exif::turn)) continue;  // the sizes do not tell
        write("label/1.png", png_file(about_turned ? turned_picture(mask, orientation) : mask));
        MaskFilesOptions options;
        options.height = exif == Exif::turn && swaps ? 24 : 16;
        options.width = exif == Exif::turn && swaps ? 16 : 24;
        options.exif = exif;
        const MaskFiles dataset(list_masks(folder.path()), {{}, 2}, options);
        REQUIRE(dataset.size() == 1);
        std::vector<float> picture(3 * 16 * 24);
        std::vector<int64_t> target(16 * 24);
        dataset.get_pixels_into(0, {}, picture.data(), target.data());
        int wrong = 0;
        for (size_t i = 0; i < target.size(); ++i) {
          const bool one = picture[3 * i] >= 0.48F && picture[3 * i + 1] >= 0.48F;
          wrong += one == (target[i] == 1) ? 0 : 1;
        }
        CHECK(wrong <= 4);  // a JPEG's colours are not exact
      }
  }
  write("label/1.png", png_file({10, 24, 1, std::vector<uint8_t>(240)}));
  const MaskFiles dataset(list_masks(folder.path()), {{}, 2}, {});
  std::vector<float> picture(3 * 224 * 224);
  std::vector<int64_t> target(224 * 224);
  fails(
      "expected a mask of 24 x 16 (turned as its EXIF orientation says: 16 x 24), as its picture, "
      "got 24 x 10",
      [&] { dataset.get_pixels_into(0, {}, picture.data(), target.data()); });
}

TEST_CASE("masks: windows of an evaluation count each pixel once") {
  Masks m;
  m.add("image/1.png", "label/1.png", 13, 21, stripes);
  m.add("image/2.png", "label/2.png", 5, 9, stripes);
  MaskFilesOptions options;
  options.height = options.width = 8;
  options.channels = 1;
  const MaskFiles dataset(list_masks(m.folder.path()), {{}, 3}, options);
  CHECK(dataset.size() == 2 * 3 + 1 * 2);
  int64_t counted = 0;
  std::vector<float> picture(64);
  std::vector<int64_t> target(64);
  for (int64_t i = 0; i < dataset.size(); ++i) {
    dataset.get_pixels_into(i, {}, picture.data(), target.data());
    for (size_t k = 0; k < target.size(); ++k) {
      if (target[k] == kIgnored) continue;
      ++counted;
      CHECK(picture[k] == doctest::Approx(static_cast<double>(10 * target[k]) / 255));
    }
  }
  CHECK(counted == 13 * 21 + 5 * 9);
}

TEST_CASE("masks: a random part and its mirror image keep picture and mask together") {
  Masks m;
  for (const char* name : {"1", "2", "3", "4", "5"})
    m.add(fmt::format("image/{}.png", name), fmt::format("label/{}.png", name), 30, 40,
          [](int64_t, int64_t x) { return x < 17 ? 0 : 1; });
  MaskFilesOptions options;
  options.height = options.width = 16;
  options.channels = 1;
  options.random = true;
  options.least_scale = 0.6;
  options.most_scale = 2;
  const DatasetPtr flipped = std::make_shared<HorizontalFlip>(
      std::make_shared<MaskFiles>(list_masks(m.folder.path()), MaskValues{{}, 2}, options));
  const DatasetPtr dataset = std::make_shared<Normalize>(flipped, std::vector<double>{0.0},
                                                         std::vector<double>{10.0 / 255});
  LoaderOptions loading;
  loading.batch_size = 2;
  loading.shuffle = true;
  Loader loader(dataset, loading);
  int64_t edges = 0, of_both = 0;
  for (int epoch = 0; epoch < 6; ++epoch)
    while (const std::optional<Batch> batch = loader.next()) {
      REQUIRE(batch->target.shape() == Shape{batch->input.size(0), 16, 16});
      int64_t ones = 0;
      for (int64_t i = 0; i < batch->target.numel(); ++i) {
        const int64_t label = batch->target.data<int64_t>()[i];
        const float value = batch->input.data<float>()[i];
        if (label == kIgnored) continue;
        ones += label;
        // Between two columns a value is a mean; everywhere else it is its class.
        if (std::abs(value - static_cast<float>(label)) > 0.01f) ++edges;
        CHECK(std::abs(value - static_cast<float>(label)) < 0.75f);
      }
      of_both += ones > 0 && ones < batch->target.numel() ? 1 : 0;
    }
  CHECK(of_both > 3);
  CHECK(edges < 6 * 5 * 16 * 3);
}

TEST_CASE("masks: bad files are named") {
  Masks m;
  m.add("image/1.png", "label/1.png", 8, 8, stripes);
  const auto read = [&] {
    MaskFilesOptions options;
    options.height = options.width = 8;
    const MaskFiles dataset(list_masks(m.folder.path()), {{}, 3}, options);
    std::vector<float> picture(3 * 64);
    std::vector<int64_t> target(64);
    dataset.get_pixels_into(0, {}, picture.data(), target.data());
  };
  read();
  m.write("label/1.png", png_file(sample_picture(8, 8)));
  fails("expected a PNG with a palette", read);
  m.write("label/1.png", jpeg_file(sample_picture(8, 8)));
  fails("expected a PNG, got another format", read);
  m.add("image/2.png", "label/1.png", 8, 9, stripes);
  fs::remove(m.folder.path() + "/image/2.png");
  fails("expected a mask of 8 x 8", read);
  FileBytes cut = png_file({8, 8, 1, std::vector<uint8_t>(64, 1)});
  cut.resize(cut.size() / 2);
  m.write("label/1.png", cut);
  fails("1.png", read);
}

}  // namespace
}  // namespace frugal::data
#endif

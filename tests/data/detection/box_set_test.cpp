#include "data/detection/box_set.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <set>

#include "data/detection/box_batches.h"
#include "data/image/orientation.h"
#include "tests/data/files.h"
#include "tests/data/image/picture_files.h"
#include "tests/data/shares.h"

#if defined(FRUGAL_TEST_PICTURES) && __has_include(<pugixml.hpp>)
namespace frugal::data {
namespace {

namespace fs = std::filesystem;
using frugal_test::fails;
using frugal_test::TemporaryFolder;

std::string jpeg(int64_t height, int64_t width) {
  const FileBytes bytes = jpeg_file(sample_picture(height, width));
  return {bytes.begin(), bytes.end()};
}

void put(const TemporaryFolder& folder, const std::string& name, const std::string& content) {
  fs::create_directories(fs::path(folder / name).parent_path());
  folder.write(name, content);
}

std::string object(const std::string& name, const std::string& box,
                   const std::string& difficult = "<difficult>0</difficult>") {
  return fmt::format("<object><name>{}</name>{}<bndbox>{}</bndbox></object>", name, difficult, box);
}

std::string corners(const std::string& x1, const std::string& y1, const std::string& x2,
                    const std::string& y2) {
  return "<xmin>" + x1 + "</xmin><ymin>" + y1 + "</ymin><xmax>" + x2 + "</xmax><ymax>" + y2 +
         "</ymax>";
}

std::string annotation(const std::string& objects, int height = 20, int width = 30) {
  return fmt::format("<annotation><size><width>{}</width><height>{}</height></size>{}</annotation>",
                     width, height, objects);
}

// Two pictures to train on, one to test on.
struct Voc {
  TemporaryFolder folder;
  Voc() {
    put(folder, "ImageSets/Main/train.txt", "a\nb\r\n");
    put(folder, "ImageSets/Main/test.txt", "c\n");
    for (const char* name : {"a", "b", "c"})
      put(folder, std::string("JPEGImages/") + name + ".jpg", jpeg(20, 30));
    put(folder, "Annotations/a.xml",
        annotation(object("dog", corners("1", "1", "30", "20")) +
                   object("cat", corners("3", " 5 ", "3", "5.0"), "<difficult>1</difficult>")));
    put(folder, "Annotations/b.xml", annotation(""));
    put(folder, "Annotations/c.xml", annotation(object("cat", corners("11", "6", "20", "15"))));
  }
  BoxSet read(BoxPart part, const std::vector<std::string>& classes = {}, bool skip = false) const {
    BadEntries bad(skip);
    BoxListOptions options;
    options.known.names = classes;
    if (!classes.empty()) options.known.names.insert(options.known.names.begin(), "background");
    BoxSet set = read_boxes(folder.path(), part, options, bad);
    skipped = bad.count();
    clipped = bad.clipped();
    empty = bad.empty();
    return set;
  }
  mutable int64_t skipped = 0, clipped = 0, empty = 0;
};

using Box = std::array<float, 4>;

}  // namespace

TEST_CASE("VOC: pictures, boxes and classes of a part") {
  const Voc voc;
  const BoxSet train = voc.read(BoxPart::train);
  CHECK(train.names == std::vector<std::string>{"background", "cat", "dog"});
  REQUIRE(train.pictures.size() == 2);
  CHECK(train.pictures[0].path == voc.folder / "JPEGImages/a.jpg");
  CHECK(train.pictures[0].height == 20);
  REQUIRE(train.pictures[0].objects.size() == 2);
  const BoxObject &dog = train.pictures[0].objects[0], &cat = train.pictures[0].objects[1];
  CHECK(dog.box == Box{0, 0, 30, 20});
  CHECK(dog.label == 2);
  CHECK(dog.area == 600);
  CHECK(dog.counts());
  CHECK(cat.box == Box{2, 4, 3, 5});  // a pixel
  CHECK(cat.difficult);
  CHECK(!cat.crowd);
  CHECK(train.pictures[1].objects.empty());
  CHECK(voc.read(BoxPart::test).pictures.size() == 1);
  CHECK(voc.read(BoxPart::validation).pictures.empty());
  CHECK(voc.read(BoxPart::test, {"horse", "cat"}).pictures[0].objects[0].label == 2);
}

TEST_CASE("VOC: blanks around a name do not count, and a set without objects is an error") {
  const Voc voc;
  put(voc.folder, "Annotations/b.xml", annotation(object("\n  cat ", corners("1", "1", "2", "2"))));
  const BoxSet train = voc.read(BoxPart::train);
  CHECK(train.names == std::vector<std::string>{"background", "cat", "dog"});
  CHECK(train.pictures[1].objects.at(0).label == 1);
  for (const char* file : {"Annotations/a.xml", "Annotations/b.xml", "Annotations/c.xml"})
    put(voc.folder, file, annotation(""));
  fails("Annotations\": expected objects, got none", [&] { voc.read(BoxPart::train); });
  CHECK(voc.read(BoxPart::train, {"cat"}).pictures.size() == 2);
}

TEST_CASE("VOC: what is wrong is named with its file, or skipped") {
  const Voc voc;
  // The picture goes with its object, which would be background without its box.
  const auto wrong = [&](const std::string& xml, const std::string& message) {
    put(voc.folder, "Annotations/c.xml", xml);
    fails(message, [&] { voc.read(BoxPart::test); });
    CHECK(voc.read(BoxPart::test, {"cat"}, true).pictures.empty());
    CHECK(voc.skipped == 1);
  };
  wrong(annotation(object("cat", corners("11", "6", "32", "15"))),
        "c.xml\", object 1: expected a box within 30 x 20 pixels, got 10, 5, 32, 15");
  wrong(annotation(object("cat", corners("11", "6", "20", "25"))),
        "got 10, 5, 20, 25; it lies within 20 x 30");
  wrong(annotation(object("cat", corners("11", "6", "9", "15"))),
        "object 1: expected a box that ends behind its beginning, got 10, 5, 9, 15");
  wrong(annotation(object("cat", corners("11", "six", "20", "15"))),
        "expected a number in <ymin> of object 1, got \"six\"");
  wrong(annotation("<object><name>cat</name></object>"), "expected <bndbox> in object 1, got none");
  wrong(annotation("", -1), "expected a picture of at least one pixel");
  wrong("<annotation><size><width>30</width></size><size/></annotation>",
        "expected one <size> in <annotation>, got several");
  wrong("<annotation><size>", "test.txt\", line 1: [voc] ");
  wrong("<annotations/>", "expected <annotation> in the document, got none");
  put(voc.folder, "Annotations/c.xml", annotation(object("cow", corners("1", "1", "2", "2"))));
  fails("c.xml\": expected one of the 1 classes, got \"cow\"",
        [&] { voc.read(BoxPart::test, {"cat"}); });
  put(voc.folder, "Annotations/c.xml", annotation(object("cat", corners("11", "6", "20", "15"))));
  put(voc.folder, "ImageSets/Main/test.txt", "c\nc\n");
  fails("test.txt\", line 2: expected each picture once, got \"c\" again",
        [&] { voc.read(BoxPart::test); });
  CHECK(voc.read(BoxPart::test, {"cat"}, true).pictures.size() == 1);
  put(voc.folder, "ImageSets/Main/test.txt", "c\n");
  fs::remove(voc.folder / "JPEGImages/c.jpg");
  fails("expected the picture \"c\" (.jpg, .jpeg, .png, .webp or .bmp)",
        [&] { voc.read(BoxPart::test); });
  const TemporaryFolder empty;
  BadEntries bad;
  fails("expected a folder of VOC", [&] { read_boxes(empty.path(), BoxPart::train, {}, bad); });
}

TEST_CASE("VOC: boxes up to a pixel outside end at the edge, and those without area are left out") {
  const Voc voc;
  put(voc.folder, "Annotations/c.xml",
      annotation(object("cat", corners("0", "0", "14", "16")) +
                 object("cat", corners("17", "5", "31", "21")) +
                 object("cat", corners("2", "3", "1", "9")) +
                 object("cat", corners("2", "3", "4", "9"))));
  for (const bool skip : {false, true}) {
    const BoxSet set = voc.read(BoxPart::test, {}, skip);
    REQUIRE(set.pictures.size() == 1);
    const std::vector<BoxObject>& objects = set.pictures[0].objects;
    REQUIRE(objects.size() == 3);
    CHECK(objects[0].box == Box{0, 0, 14, 16});
    CHECK(objects[0].area == 14 * 16);
    CHECK(objects[1].box == Box{16, 4, 30, 20});
    CHECK(objects[2].box == Box{1, 2, 4, 9});
    CHECK(voc.clipped == 2);
    CHECK(voc.empty == 1);
    CHECK(voc.skipped == 0);
  }
}

TEST_CASE("VOC: pictures of any ending, and elements that tools leave empty") {
  const Voc voc;
  const auto with_picture = [&](const std::string& name, const std::string& bytes) {
    fs::remove_all(voc.folder / "JPEGImages");
    put(voc.folder, "JPEGImages/" + name, bytes);
    const BoxSet set = voc.read(BoxPart::test);
    REQUIRE(set.pictures.size() == 1);
    CHECK(set.pictures[0].path == voc.folder / ("JPEGImages/" + name));
    return set.pictures[0];
  };
  for (const char* name : {"c.JPG", "c.jpeg", "c.png", "c.WebP"}) with_picture(name, jpeg(20, 30));
  const std::string box = corners("1", "1", "30", "20");
  for (const char* difficult : {"", "<difficult/>", "<difficult> </difficult>"}) {
    put(voc.folder, "Annotations/c.xml", annotation(object("cat", box, difficult)));
    CHECK(!with_picture("c.jpg", jpeg(20, 30)).objects.at(0).difficult);
  }
  for (const char* size :
       {"", "<size><width>0</width><height>0</height></size>", "<size><width/><height/></size>"}) {
    put(voc.folder, "Annotations/c.xml",
        fmt::format("<annotation>{}{}</annotation>", size, object("cat", box)));
    const BoxPicture picture = with_picture("c.jpg", jpeg(20, 30));
    CHECK(picture.height == 20);
    CHECK(picture.width == 30);
  }
  fails("expected a box within 20 x 20 pixels", [&] { with_picture("c.jpg", jpeg(20, 20)); });
}

TEST_CASE("COCO: pictures, boxes and categories") {
  const TemporaryFolder folder;
  put(folder, "val2017/x.jpg", jpeg(20, 30));
  put(folder, "train2017/x.jpg", jpeg(20, 30));
  const auto document = [](const std::string& annotations) {
    return R"({"images": [{"id": 7, "file_name": "x.jpg", "height": 20, "width": 30}],
               "categories": [{"id": 3, "name": "cat"}, {"id": 1, "name": "dog"}],
               "annotations": [)" +
           annotations + "]}";
  };
  put(folder, "annotations/instances_train2017.json",
      document(R"({"image_id": 7, "category_id": 3, "bbox": [1.5, 2, 10, 4], "area": 33},
                  {"image_id": 7, "category_id": 1, "bbox": [0, 0, 30, 20], "iscrowd": 1})"));
  const auto read = [&](BoxPart part, bool skip = false) {
    BadEntries bad(skip);
    const BoxSet set = read_boxes(folder.path(), part, {}, bad);
    CHECK(bad.count() == (skip ? 1 : 0));
    return set;
  };
  const BoxSet train = read(BoxPart::train);
  CHECK(train.names == std::vector<std::string>{"background", "dog", "cat"});
  CHECK(train.ids == std::vector<int64_t>{0, 1, 3});
  REQUIRE(train.pictures.size() == 1);
  CHECK(train.pictures[0].id == 7);
  REQUIRE(train.pictures[0].objects.size() == 2);
  CHECK(train.pictures[0].objects[0].box == Box{1.5, 2, 11.5, 6});
  CHECK(train.pictures[0].objects[0].label == 2);
  CHECK(train.pictures[0].objects[0].area == 33);
  CHECK(train.pictures[0].objects[1].crowd);
  CHECK(train.pictures[0].objects[1].area == 600);
  CHECK(read(BoxPart::test).pictures.empty());
  size_t left = 1;  // pictures, whose annotations are right
  const auto wrong = [&](const std::string& annotations, const std::string& message) {
    put(folder, "annotations/instances_val2017.json", document(annotations));
    fails("val2017.json\", " + message, [&] { read(BoxPart::validation); });
    CHECK(read(BoxPart::validation, true).pictures.size() == left);
    left = 0;
  };
  wrong(R"({"image_id": 8, "category_id": 3, "bbox": [1, 2, 3, 4]})",
        "annotations[0]: expected the id of a picture, got 8");
  wrong(R"({"image_id": 7, "category_id": 2, "bbox": [1, 2, 3, 4]})",
        "annotations[0]: expected the id of a category, got 2");
  wrong(R"({"image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4], "area": -5})",
        "annotations[0]: expected an area of at least 0, got -5");
  wrong(R"({"image_id": 7, "category_id": 3, "bbox": [1, 2, 3]})",
        "annotations[0]: expected 4 numbers as bbox, got \"[1,2,3]\"");
  wrong(R"({"image_id": 7, "category_id": 3, "bbox": [25, 2, 10, 4]})",
        "annotations[0]: expected a box within 30 x 20 pixels, got 25, 2, 35, 6");
  wrong(R"({"image_id": 7, "category_id": 3, "bbox": [9, 2, -1, 4]})",
        "annotations[0]: expected a box that ends behind its beginning, got 9, 2, 8, 6");
  put(folder, "annotations/instances_val2017.json", "[]");
  fails("expected an object, got array", [&] { read(BoxPart::validation); });
}

TEST_CASE("COCO: what a list lacks or says twice is named, with its place") {
  const TemporaryFolder folder;
  put(folder, "x.jpg", jpeg(20, 30));
  const auto rejects = [&](const std::string& lists, const std::string& message) {
    put(folder, "list.json", lists);
    fails("list.json\"" + message, [&] {
      BadEntries bad;
      read_coco(folder / "list.json", folder.path(), {}, bad);
    });
  };
  const std::string one = R"("categories": [{"id": 1, "name": "a"}])";
  const auto images = [&](const std::string& image) {
    return "{" + one + R"(, "annotations": [], "images": [)" + image + "]}";
  };
  const auto annotations = [&](const std::string& annotation) {
    return "{" + one + R"(, "images": [{"id": 7, "file_name": "x.jpg"}], "annotations": [)" +
           annotation + "]}";
  };
  rejects("{", ": parse error at line 1, column 2");
  rejects("{}", ": expected a list categories, got none");
  rejects(R"({"categories": {}})", ": expected a list categories, got none");
  rejects(R"({"categories": []})", ": expected categories, got none");
  rejects(R"({"categories": [3]})", ", categories[0]: expected an object, got number");
  rejects(R"({"categories": [{"name": "a"}]})", ", categories[0]: expected the key id, got none");
  rejects(R"({"categories": [{"id": 1.5, "name": "a"}]})",
          ", categories[0]: expected a whole number as id, got \"1.5\"");
  rejects(R"({"categories": [{"id": 1, "name": 2}]})",
          ", categories[0]: expected a text as name, got number");
  rejects(R"({"categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]})",
          ", categories[1]: expected each id once, got 1 again");
  rejects("{" + one + "}", ": expected a list images, got none");
  rejects(images(R"({"id": 7, "file_name": "x.jpg"}, {"id": 7, "file_name": "x.jpg"})"),
          ", images[1]: expected each id once, got 7 again");
  rejects(images(R"({"id": 7, "file_name": "x.jpg", "height": -1, "width": 3})"),
          ", images[0]: expected a picture of at least one pixel, got 3 x -1");
  rejects(images(R"({"id": 7, "file_name": "y.jpg"})"), ", images[0]: expected the picture ");
  rejects(annotations(R"({"image_id": 7, "category_id": 1, "bbox": [1, 2, 3, 4], "area": "big"})"),
          ", annotations[0]: expected a number as area, got string");
}

TEST_CASE("COCO: any ids are mapped to classes in a row, and other parts are matched by name") {
  const TemporaryFolder folder;
  put(folder, "x.jpg", jpeg(20, 30));
  const auto read = [&](const std::string& categories, const std::string& annotation,
                        const BoxClasses& known = {}) {
    put(folder, "list.json",
        R"({"images": [{"id": 7, "file_name": "x.jpg"}], "categories": [)" + categories +
            R"(], "annotations": [{"image_id": 7, )" + annotation + "}]}");
    BadEntries bad;
    BoxListOptions options;
    options.known = known;
    return read_coco(folder / "list.json", folder.path(), options, bad);
  };
  const std::string box = R"("bbox": [1, 2, 3, 4])";
  const BoxSet train = read(R"({"id": 50007, "name": "blue"}, {"id": 0, "name": "red"},
                               {"id": -4, "name": "grey"})",
                            R"("category_id": 50007, "iscrowd": false, "area": null, )" + box);
  CHECK(train.names == std::vector<std::string>{"background", "grey", "red", "blue"});
  CHECK(train.ids == std::vector<int64_t>{0, -4, 0, 50007});
  CHECK(train.pictures[0].height == 20);  // as the list does not say
  CHECK(train.pictures[0].objects[0].label == 3);
  CHECK(train.pictures[0].objects[0].area == 12);
  CHECK(!train.pictures[0].objects[0].crowd);

  const BoxSet other =
      read(R"({"id": 0, "name": "blue"}, {"id": 1, "name": "pink"}, {"id": 2, "name": "red"})",
           R"("category_id": 0, "iscrowd": true, )" + box, train);
  CHECK(static_cast<const BoxClasses&>(other) == static_cast<const BoxClasses&>(train));
  CHECK(other.pictures[0].objects[0].label == 3);
  CHECK(other.pictures[0].objects[0].crowd);
  fails("expected one of the 3 classes of the training set, got \"pink\"",
        [&] { read(R"({"id": 1, "name": "pink"})", R"("category_id": 1, )" + box, train); });

  // The ids tell two classes of one name apart.
  const BoxSet twins =
      read(R"({"id": 4, "name": "a"}, {"id": 6, "name": "a"})", R"("category_id": 6, )" + box);
  CHECK(twins.pictures[0].objects[0].label == 2);
  CHECK(read(R"({"id": 6, "name": "a"})", R"("category_id": 6, )" + box, twins)
            .pictures[0]
            .objects[0]
            .label == 2);
  fails("expected categories of different names, or with the ids of the training set, got \"a\"",
        [&] { read(R"({"id": 5, "name": "a"})", R"("category_id": 5, )" + box, twins); });

  // COCO's own categories stay at the outputs that torchvision's networks have for them.
  std::string coco;
  for (int id = 1; id <= 90; ++id)
    if (id != 12 && id != 26 && id != 29 && id != 30 && id != 45 && id != 66 && id != 68 &&
        id != 69 && id != 71 && id != 83)
      coco += fmt::format(R"({}{{"id": {}, "name": "n{}"}})", coco.empty() ? "" : ", ", id, id);
  const BoxSet itself = read(coco, R"("category_id": 90, )" + box);
  CHECK(itself.classes() == 91);
  CHECK(itself.names[90] == "n90");
  CHECK(itself.names[12].empty());
  CHECK(itself.pictures[0].objects[0].label == 90);
}

TEST_CASE("boxes lie on pictures that an EXIF orientation turns, whatever they are about") {
  const TemporaryFolder folder;
  const BoxObject object{{3, 8, 17, 18}, 1, 140, false, false};
  const PictureInfo stored{40, 48};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    CAPTURE(orientation);
    // Dark, with a white rectangle in the box.
    Picture pixels{stored.height, stored.width, 3, {}};
    for (int64_t y = 0; y < stored.height; ++y)
      for (int64_t x = 0; x < stored.width; ++x)
        pixels.pixels.insert(pixels.pixels.end(), 3,
                             y >= 8 && y < 18 && x >= 3 && x < 17 ? 255 : 0);
    const FileBytes bytes = jpeg_file_turned(pixels, static_cast<uint8_t>(orientation));
    put(folder, "x.jpg", {bytes.begin(), bytes.end()});
    const PictureInfo turned = turned_size(stored, orientation);
    for (const Exif exif : {Exif::ignore, Exif::turn})
      for (const bool about_turned : {false, true}) {
        // Sizes that are equal do not tell: then boxes are about the picture that is used.
        if (turned == stored && about_turned != (exif == Exif::turn)) continue;
        BoxSet set;
        set.names = {"background", "a"};
        BoxPicture& picture = set.pictures.emplace_back();
        picture.path = folder / "x.jpg";
        const PictureInfo about = about_turned ? turned : stored;
        picture.height = about.height;
        picture.width = about.width;
        picture.objects = {object};
        if (about_turned) picture.objects[0].box = turned_box(object.box, stored, orientation);
        BoxBatchOptions options;
        options.exif = exif;
        options.height = options.width = 48;
        options.training = false;
        options.mean = {0, 0, 0};
        options.std = {1, 1, 1};
        const Batch batch = *BoxBatches(set, options).next();
        const auto box = find_tensor(batch.extras, "boxes").to_vector();
        double inside = 0, all = 0;
        for (int64_t y = 0; y < 48; ++y)
          for (int64_t x = 0; x < 48; ++x) {
            const double value = batch.input[0][y][x].item(0);
            all += value;
            const bool within = static_cast<double>(x) >= box[0] &&
                                static_cast<double>(y) >= box[1] &&
                                static_cast<double>(x) < box[2] && static_cast<double>(y) < box[3];
            if (within) inside += value;
          }
        CHECK((box[2] - box[0]) * (box[3] - box[1]) == doctest::Approx(140));
        CHECK(inside > 0.95 * all);
        CHECK(find_tensor(batch.extras, "originals").to_vector<int64_t>() ==
              (exif == Exif::turn ? std::vector<int64_t>{turned.height, turned.width}
                                  : std::vector<int64_t>{stored.height, stored.width}));
      }
  }
  BoxSet set;
  set.names = {"background", "a"};
  set.pictures.push_back({folder / "x.jpg", 0, 40, 30, {object}});
  fails(
      "expected a picture of 30 x 40 pixels, as its list says, got 48 x 40 (turned as its EXIF "
      "orientation says: 40 x 48)",
      [&] { BoxBatches(set, {}).next(); });
}

TEST_CASE("BoxBatches: a letterbox, mirrored or not, of the same bits in each epoch's run") {
  const Voc voc;
  BoxBatchOptions options;
  options.height = options.width = 60;
  options.shuffle = false;
  options.training = false;
  options.mean = {0, 0, 0};
  options.std = {1, 1, 1};
  BoxBatches batches(voc.read(BoxPart::train), options);
  const Batch batch = *batches.next();
  CHECK(batch.input.shape() == Shape{2, 60, 60, 3});
  CHECK(batch.target.to_vector<int64_t>() == std::vector<int64_t>{0, 1});
  CHECK(batch.samples.to_vector<int64_t>() == std::vector<int64_t>{0, 1});
  const auto extra = [&](const Batch& b, const char* name) { return find_tensor(b.extras, name); };
  // The object that is difficult is left out.
  CHECK(extra(batch, "boxes").to_vector() == std::vector<double>{0, 0, 60, 40});
  CHECK(extra(batch, "labels").to_vector<int64_t>() == std::vector<int64_t>{2});
  CHECK(extra(batch, "counts").to_vector<int64_t>() == std::vector<int64_t>{1, 0});
  CHECK(extra(batch, "sizes").to_vector<int64_t>() == std::vector<int64_t>{40, 60, 40, 60});
  CHECK(extra(batch, "originals").to_vector<int64_t>() == std::vector<int64_t>{20, 30, 20, 30});
  CHECK(batch.input[0][40][0].to_vector() == std::vector<double>{0, 0, 0});  // padding
  CHECK(batch.input[0][39][59].item(1) > 0.9);                               // green grows with x
  CHECK(!batches.next().has_value());
  CHECK(batches.state() == LoaderState{1, 0});

  options.training = options.shuffle = true;
  options.flip = 1;
  BoxBatches mirrored(voc.read(BoxPart::test), options);
  const Batch other = *mirrored.next();
  CHECK(extra(other, "boxes").to_vector() == std::vector<double>{20, 10, 40, 30});
  CHECK(other.input[0][39][0].item(1) > 0.9);
  CHECK(extra(*BoxBatches(voc.read(BoxPart::test), options).next(), "boxes").to_vector() ==
        extra(other, "boxes").to_vector());
}

TEST_CASE("BoxBatches: shorter sides, padded to a multiple; seek") {
  const Voc voc;
  put(voc.folder, "JPEGImages/b.jpg", jpeg(40, 20));
  put(voc.folder, "Annotations/b.xml", annotation("", 40, 20));
  BoxBatchOptions options;
  options.letterbox = false;
  options.shuffle = options.training = false;
  options.sides = {10, 30};
  options.longest = 50;
  BoxBatches batches(voc.read(BoxPart::train), options);
  const Batch batch = *batches.next();
  CHECK(find_tensor(batch.extras, "sizes").to_vector<int64_t>() ==
        std::vector<int64_t>{30, 45, 50, 25});
  CHECK(batch.input.shape() == Shape{2, 64, 64, 3});
  options.training = options.shuffle = true;
  options.batch_size = 1;
  BoxBatches random(voc.read(BoxPart::train), options), again(voc.read(BoxPart::train), options);
  std::vector<std::vector<double>> seen;
  for (int epoch = 0; epoch < 3; ++epoch)
    while (auto next = random.next()) seen.push_back(next->input.to_vector());
  CHECK(seen.size() == 6);
  again.seek({2, 1});
  CHECK(again.next()->input.to_vector() == seen[5]);
}

TEST_CASE("BoxBatches: the same with threads, and with sizes that the list lacks; seek") {
  const Voc voc;
  put(voc.folder, "JPEGImages/b.jpg", jpeg(40, 20));
  BoxSet right = voc.read(BoxPart::train);
  for (BoxPicture& picture : right.pictures) {
    picture.objects.clear();
    const bool tall = picture.path.find("b.jpg") != std::string::npos;
    picture.height = tall ? 40 : 20;
    picture.width = tall ? 20 : 30;
  }
  BoxSet unknown = right;
  for (BoxPicture& picture : unknown.pictures) picture.height = picture.width = 0;
  for (const bool letterbox : {false, true}) {
    BoxBatchOptions options;
    options.letterbox = letterbox;
    options.height = options.width = 64;
    options.sides = {10, 30};
    options.longest = 50;
    const auto seen = [&](const BoxSet& set, int threads, int64_t batch_size, LoaderState from) {
      options.threads = threads;
      options.batch_size = batch_size;
      BoxBatches batches(set, options);
      batches.next();  // what it made in advance is dropped
      batches.seek(from);
      std::vector<std::vector<double>> all;
      while (batches.state().epoch < 3)
        if (auto next = batches.next()) {
          all.push_back(next->input.to_vector());
          all.push_back(find_tensor(next->extras, "sizes").to_vector());
        }
      return all;
    };
    for (const int64_t batch_size : {1, 2}) {
      const auto expected = seen(right, 0, batch_size, {0, 0});
      CHECK(expected.size() == (batch_size == 1 ? 12U : 6U));
      for (const BoxSet* set : {&right, &unknown})
        for (const int threads : {0, 1, 3}) {
          CHECK(seen(*set, threads, batch_size, {0, 0}) == expected);
          const auto end = seen(*set, threads, batch_size, {1, 1});
          CHECK(std::equal(end.rbegin(), end.rend(), expected.rbegin()));
        }
    }
  }
}

TEST_CASE("BoxBatches: files that cannot be read") {
  const Voc voc;
  put(voc.folder, "JPEGImages/b.jpg", jpeg(20, 30).substr(0, 300));
  BoxBatchOptions options;
  options.shuffle = false;
  options.height = options.width = 32;
  for (const int threads : {0, 2}) {
    options.threads = threads;
    options.skip_bad = false;
    BoxBatches strict(voc.read(BoxPart::train), options);
    for (int again = 0; again < 2; ++again) fails("b.jpg", [&] { strict.next(); });
    options.skip_bad = true;
    BoxBatches skipping(voc.read(BoxPart::train), options);
    const Batch batch = *skipping.next();
    CHECK(batch.target.to_vector<int64_t>() == std::vector<int64_t>{0});
    CHECK(batch.input.shape() == Shape{1, 32, 32, 3});
    CHECK(batch.input.item(0) != 0);
  }
  options.skip_bad = false;
  put(voc.folder, "JPEGImages/b.jpg", jpeg(20, 30));
  put(voc.folder, "JPEGImages/a.jpg", jpeg(20, 25));  // smaller than its list says
  fails("a.jpg\": expected a picture of 30 x 20 pixels, as its list says, got 25 x 20",
        [&] { BoxBatches(voc.read(BoxPart::train), options).next(); });
}

TEST_CASE("BoxBatches: shares are as large as the whole batch") {
  const TemporaryFolder folder;
  BoxSet painted, files;
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t height = 16 + 3 * (i * 5 % 7), width = 16 + 4 * (i * 3 % 5);
    const BoxSet one = random_boxes(height, width, 4, 1, {7, static_cast<uint64_t>(i)});
    painted.names = files.names = one.names;
    BoxPicture picture = one.pictures[0];
    if (i % 4 == 1) picture.objects.clear();
    if (i % 4 == 2) picture.objects[0].crowd = true;
    painted.pictures.push_back(picture);
    // Half of the list says no sizes.
    put(folder, fmt::format("{}.jpg", i), jpeg(height, width));
    picture.path = folder / fmt::format("{}.jpg", i);
    if (i % 2 == 0) picture.height = picture.width = 0;
    files.pictures.push_back(picture);
  }
  for (const BoxSet* set : {&painted, &files})
    for (const bool letterbox : {false, true})
      for (const int threads : {0, 2}) {
        CAPTURE(letterbox);
        BoxBatchOptions options;
        options.batch_size = 3;
        options.letterbox = letterbox;
        options.training = threads == 0;
        options.threads = threads;
        options.height = options.width = 32;
        options.sides = {10, 14, 20};
        options.longest = 50;
        options.multiple = 8;
        const auto make = [&] { return std::make_unique<BoxBatches>(*set, options); };
        frugal_test::check_shares(make);
        frugal_test::check_smallest_batch(*make(), 2);
      }
}

namespace {

// `bad`: which of them cannot be read.
BoxSet four_pictures(const TemporaryFolder& folder, const std::set<int64_t>& bad) {
  BoxSet set;
  for (int64_t i = 0; i < 4; ++i) {
    BoxPicture picture;
    picture.path = folder / fmt::format("{}.jpg", i);
    put(folder, fmt::format("{}.jpg", i),
        bad.contains(i) ? jpeg(20, 30).substr(0, 300) : jpeg(20, 30));
    set.pictures.push_back(picture);
  }
  return set;
}

}  // namespace

TEST_CASE("BoxBatches: a picture that cannot be read is a batch of its own") {
  const TemporaryFolder folder;
  const BoxSet set = four_pictures(folder, {1, 3});
  BoxBatchOptions options;
  options.batch_size = 1;
  options.shuffle = false;
  options.height = options.width = 32;
  options.skip_bad = true;
  const auto places = [](BoxBatches& batches) {
    std::vector<int64_t> all;
    while (const auto batch = batches.next()) {
      REQUIRE(batch->input.shape() == Shape{1, 32, 32, 3});
      CHECK(batch->input.item(0) != 0);
      all.push_back(batch->target.item<int64_t>());
    }
    return all;
  };
  for (const int threads : {0, 2})
    for (const bool training : {false, true}) {
      CAPTURE(training);
      options.threads = threads;
      options.training = training;
      BoxBatches batches(set, options);
      // A step takes the next picture, and an evaluation goes on.
      for (int epoch = 0; epoch < 2; ++epoch)
        CHECK(places(batches) ==
              (training ? std::vector<int64_t>{0, 2, 2, 0} : std::vector<int64_t>{0, 2}));
      BoxSet bad = set;
      bad.pictures = {set.pictures[1], set.pictures[3]};
      BoxBatches none(bad, options);
      fails("expected a picture that can be read, got none", [&] { none.next(); });
    }
}

TEST_CASE("BoxBatches: shares with files that cannot be read") {
  const TemporaryFolder folder;
  const BoxSet set = four_pictures(folder, {1});
  BoxBatchOptions options;
  options.batch_size = 4;
  options.shuffle = false;
  options.height = options.width = 32;
  options.skip_bad = true;
  for (const bool letterbox : {false, true})
    for (const int threads : {0, 2}) {
      options.letterbox = letterbox;
      options.threads = threads;
      BoxBatches first(set, options), second(set, options), one(set, options), third(set, options);
      first.set_share({0, 2});
      second.set_share({1, 2});
      frugal_test::check_together({*first.next(), *second.next()}, *one.next());
      third.set_share({1, 4});  // picture 1 alone
      CHECK(third.next()->target.to_vector<int64_t>() == std::vector<int64_t>{2});
      // Only the process that has the picture refuses it.
      options.skip_bad = false;
      BoxBatches strict(set, options), other(set, options);
      strict.set_share({0, 2});
      other.set_share({1, 2});
      fails("1.jpg", [&] { strict.next(); });
      CHECK(other.next()->target.to_vector<int64_t>() == std::vector<int64_t>{2, 3});
      options.skip_bad = true;
    }
}

}  // namespace frugal::data
#endif

#include "data/image/image_folder.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "core/error.h"
#include "data/image/transforms.h"
#include "data/loader.h"
#include "tests/data/files.h"
#include "tests/data/image/picture_files.h"

#ifdef FRUGAL_TEST_PICTURES
namespace frugal::data {
namespace {

using frugal_test::TemporaryFolder;

namespace fs = std::filesystem;

void write(const fs::path& path, const FileBytes& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
}

// A picture of one colour.
Picture plain(uint8_t value, int64_t height = 20, int64_t width = 30) {
  return {height, width, 3, std::vector<uint8_t>(size_t(3 * height * width), value)};
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("folders are classes, sorted by name, with pictures at any depth") {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  write(root / "dog/b.PNG", png_file(plain(2)));
  write(root / "dog/a.jpg", jpeg_file(plain(1)));
  write(root / "cat/inner/c.bmp", bmp_file(plain(3)));
  write(root / "cat/notes.txt", {1, 2});
  write(root / ".hidden/d.png", png_file(plain(4)));
  const PictureList list = list_class_folders(root.string());
  CHECK(list.classes == std::vector<std::string>{"cat", "dog"});
  REQUIRE(list.files.size() == 3);
  CHECK(list.files[0].path == (root / "cat/inner/c.bmp").string());
  CHECK(list.files[0].label == 0);
  CHECK(list.files[1].path == (root / "dog/a.jpg").string());
  CHECK(list.files[2].label == 1);
  // A part of the data has the classes of the training set.
  CHECK(list_class_folders(root.string(), {"bird", "cat", "dog"}).files[0].label == 1);
  CHECK(message_of([&] { list_class_folders(root.string(), {"cat"}); }).find("dog") !=
        std::string::npos);
  fs::create_directories(root / "empty");
  CHECK(message_of([&] { list_class_folders(root.string()); }).find("empty") != std::string::npos);
  CHECK_THROWS_AS(list_class_folders((root / "cat/inner").string()), Error);
  CHECK_THROWS_AS(list_class_folders((root / "none").string()), Error);
}

TEST_CASE("a link back to a folder above is an error, and one to another folder is followed") {
  const TemporaryFolder folder;
  const fs::path top = folder.path(), root = top / "all";
  write(root / "cat/a.png", png_file(plain(1)));
  write(root / "dog/b.png", png_file(plain(2)));
  write(top / "more/c.png", png_file(plain(3)));
  fs::create_directory_symlink("../../more", root / "cat/more");
  CHECK(list_class_folders(root.string()).files.size() == 3);
  fs::create_directory_symlink("..", root / "cat/up");
  const std::string message = message_of([&] { list_class_folders(root.string()); });
  CHECK(message.find("cat/up\", which leads back to") != std::string::npos);
}

TEST_CASE("a list names paths and classes") {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  const auto list_of = [&](const std::string& text, const std::vector<std::string>& classes = {}) {
    std::ofstream(root / "list.csv") << text;
    return read_picture_list((root / "list.csv").string(), classes);
  };
  const PictureList names = list_of("path,label\nx/1.jpg,dog\n\"a,b.png\",cat\n");
  CHECK(names.classes == std::vector<std::string>{"cat", "dog"});
  CHECK(names.files[0].path == (root / "x/1.jpg").string());
  CHECK(names.files[0].label == 1);
  CHECK(names.files[1].path == (root / "a,b.png").string());
  const PictureList numbers = list_of("1.jpg,3\n2.jpg,00\n");
  CHECK(numbers.classes.size() == 4);
  CHECK(numbers.files[0].label == 3);
  CHECK(numbers.files[1].label == 0);
  CHECK(message_of([&] { list_of("1.jpg,bird\n", {"cat"}); }).find("line 1") != std::string::npos);
  CHECK_THROWS_AS(list_of("1.jpg\n"), Error);
  CHECK_THROWS_AS(list_of("path,label\n"), Error);
  CHECK_THROWS_AS(list_of("1.jpg,\n"), Error);
  CHECK_THROWS_WITH_AS(list_of("1.jpg,100000\n"),
                       doctest::Contains("line 1: expected a label below 100000, got 100000"),
                       Error);
}

TEST_CASE("a list's header is what is no picture, whatever it says") {
  const TemporaryFolder folder;
  folder.write("0001", "x");  // a picture's name need not end as one
  const auto list_of = [&](const std::string& text, const ListColumns& columns = {}) {
    return read_picture_list(folder.write("list.csv", text), {}, columns);
  };
  for (const char* header : {"", "path,label\n", "filename,class\n", "Path,Label\n", "image,9\n"}) {
    CAPTURE(header);
    const PictureList named = list_of(std::string(header) + "1.jpg,3\n2.jpg,1\n");
    CHECK(named.files.size() == 2);
    CHECK(named.classes.size() == 4);
    CHECK(list_of(std::string(header) + "0001,3\n").classes.size() == 4);
  }
  CHECK(list_of("Label,Path\n2,1.jpg\n").files[0].path == folder / "1.jpg");
  // A picture that is not there is no header.
  CHECK(list_of("gone.jpg,7\n0001,3\n").files.size() == 2);
  const std::string wide = "id,file,part,kind\n7,1.jpg,a,dog\n8,2.jpg,b,cat\n";
  const PictureList chosen = list_of(wide, {"file", "kind"});
  CHECK(chosen.classes == std::vector<std::string>{"cat", "dog"});
  CHECK(chosen.files[0].path == folder / "1.jpg");
  CHECK(chosen.files[0].label == 1);
  const auto refused = [&](const std::string& text, const ListColumns& columns,
                           const char* message) {
    CHECK_THROWS_WITH_AS(list_of(text, columns), doctest::Contains(message), Error);
  };
  refused(wide, {}, "data.path_column and data.target");
  refused(wide, {"path", "kind"}, "which has id, file, part, kind, got \"path\"");
  refused(wide, {"file", "file"}, "another column");
  refused(wide + "9,3.jpg\n", {"file", "kind"}, "line 4: expected 4 columns");

  const auto several = [&](const std::string& text, const ListColumns& columns = {}) {
    return read_several_labels(folder.write("list.csv", text), {}, columns);
  };
  CHECK(several("image,tags\n1.jpg,dog|cat\n2.jpg,\n").classes ==
        std::vector<std::string>{"cat", "dog"});
  const PictureList columns = several("file,dog,cat\n1.jpg,1,0\n2.jpg,1,1\n");
  CHECK(columns.classes == std::vector<std::string>{"dog", "cat"});
  CHECK(*columns.answers.values == std::vector<float>{1, 0, 1, 1});
  CHECK(several("dog,file,cat\n1,1.jpg,0\n", {"file", ""}).classes == columns.classes);
  const PictureList one = several(wide, {"file", "kind"});
  CHECK(*one.answers.values == std::vector<float>{0, 1, 1, 0});
}

TEST_CASE("ImageNet's validation folder takes its classes from the solution file") {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  write(root / "val/ILSVRC2012_val_00000001.JPEG", jpeg_file(plain(1)));
  write(root / "val/ILSVRC2012_val_00000002.JPEG", jpeg_file(plain(2)));
  std::ofstream(root / "s.csv") << "ImageId,PredictionString\n"
                                   "ILSVRC2012_val_00000002,n01 1 2 3 4 n01 5 6 7 8 \n"
                                   "ILSVRC2012_val_00000001,n02 85 1 499 272 \n";
  const auto listed = [&] {
    return list_imagenet_validation((root / "val").string(), (root / "s.csv").string(),
                                    {"n01", "n02"});
  };
  CHECK(listed().files[0].label == 1);
  CHECK(listed().files[1].label == 0);
  write(root / "val/ILSVRC2012_val_00000003.JPEG", jpeg_file(plain(2)));
  CHECK(message_of(listed).find("00000003") != std::string::npos);
}

PictureList three_files(const fs::path& root) {
  write(root / "a/0.png", png_file(sample_picture(60, 90)));
  write(root / "a/1.jpg", jpeg_file(sample_picture(33, 20)));
  write(root / "b/2.webp", webp_file(plain(200)));
  return list_class_folders(root.string());
}

TEST_CASE("the centre of a picture is cut out for evaluation") {
  const TemporaryFolder folder;
  PictureOptions options;
  options.height = options.width = 30;
  options.resize = 60;
  const PictureFiles files(three_files(folder.path()), options);
  std::vector<float> out(30 * 30 * 3);
  CHECK(files.get_into(0, {}, out.data()) == 0);
  // 60 x 90, not resized: rows 15 to 44 and columns 30 to 59.
  CHECK(out[0] * 255 == doctest::Approx(255 * 15 / 60));
  CHECK(out[1] * 255 == doctest::Approx(255 * 30 / 90));
  CHECK(out[(29 * 30 + 29) * 3 + 1] * 255 == doctest::Approx(255 * 59 / 90));
  CHECK(files.get_into(2, {}, out.data()) == 1);
  CHECK(out[7] * 255 == doctest::Approx(200));
}

TEST_CASE("random parts follow from the key alone, whatever the number of workers") {
  const TemporaryFolder folder;
  PictureOptions options;
  options.height = options.width = 16;
  options.least_area = 0.1;
  const auto files = std::make_shared<PictureFiles>(three_files(folder.path()), options);
  std::vector<float> a(16 * 16 * 3), b(a.size());
  files->get_into(0, {1, 2}, a.data());
  files->get_into(0, {1, 2}, b.data());
  CHECK(a == b);
  files->get_into(0, {1, 3}, b.data());
  CHECK(a != b);
  std::vector<std::vector<float>> batches;
  for (int threads : {0, 1, 3}) {
    LoaderOptions loading;
    loading.batch_size = 3;
    loading.threads = threads;
    Loader loader(files, loading);
    const Batch batch = *loader.next();
    batches.emplace_back(batch.input.data<float>(),
                         batch.input.data<float>() + batch.input.numel());
  }
  CHECK(batches[0] == batches[1]);
  CHECK(batches[0] == batches[2]);
}

TEST_CASE("a bad file is an error that names it, or a sample that does not count") {
  const TemporaryFolder folder;
  PictureList list = three_files(folder.path());
  write(fs::path(folder.path()) / "a/0.png", {1, 2, 3});
  PictureOptions options;
  options.height = options.width = 8;
  std::vector<float> out(8 * 8 * 3);
  const PictureFiles strict(list, options);
  CHECK(message_of([&] { strict.get_into(0, {}, out.data()); }).find("a/0.png") !=
        std::string::npos);
  options.skip_bad = true;
  const PictureFiles lenient(list, options);
  CHECK(lenient.get_into(0, {}, out.data()) == kIgnored);
  std::vector<float> next(out.size());
  CHECK(lenient.get_into(1, {}, next.data()) == 0);
  CHECK(out == next);
  CHECK(lenient.bad() == 1);
  for (const PictureFile& file : list.files) fs::remove(file.path);
  CHECK_THROWS_AS(lenient.get_into(1, {}, out.data()), Error);
}

TEST_CASE("a list with several labels: in one column, in several, or a column for each class") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    return read_several_labels(folder.write("train.csv", text));
  };
  const PictureList one = read("path,labels\n1.png,dog|cat\n2.png,\n3.png,cat|dog\n");
  CHECK(one.classes == std::vector<std::string>{"cat", "dog"});
  CHECK(*one.answers.values == std::vector<float>{1, 1, 0, 0});
  CHECK(one.files[0].label == one.files[2].label);
  CHECK(one.files[1].label == 1);
  CHECK(*read("path,label,label2\n1.png,dog,cat\n2.png,bird,\n").answers.values ==
        std::vector<float>{0, 1, 1, 1, 0, 0});
  CHECK(*read("1.png,2|0\n2.png,1\n").answers.values == std::vector<float>{1, 0, 1, 0, 1, 0});
  const PictureList columns = read("path,dog,cat\n1.png,1,0\n2.png,1,1\n");
  CHECK(columns.classes == std::vector<std::string>{"dog", "cat"});
  CHECK(*columns.answers.values == std::vector<float>{1, 0, 1, 1});
  const auto refused = [&](const std::string& text, const char* message) {
    CHECK_THROWS_WITH_AS(read(text), doctest::Contains(message), Error);
  };
  refused("path,dog,cat\n1.png,1,2\n", "line 2: expected 0 or 1 in column \"cat\", got \"2\"");
  refused("path,dog,cat\n1.png,1\n", "line 2");
  refused("path,labels\n", "expected lines of a path and labels, got none");
  refused("path,labels\n1.png,\n", "expected labels, got none");
  refused("path,labels\n1.png,dog\n,cat\n", "line 3: expected a path, got none");
  CHECK_THROWS_WITH_AS(read_several_labels(folder.write("val.csv", "1.png,cow\n"), {"cat"}),
                       doctest::Contains("got \"cow\""), Error);
  CHECK_THROWS_WITH_AS(read_picture_list(folder.write("val.csv", "1.png,cow,cat\n")),
                       doctest::Contains("data.several_labels=true"), Error);
}

TEST_CASE("options of picture files that cannot be are errors") {
  const TemporaryFolder folder;
  const PictureList list = three_files(folder.path());
  const auto with = [&](const std::function<void(PictureOptions&)>& change) {
    PictureOptions options;
    change(options);
    PictureFiles files(list, options);
  };
  CHECK_THROWS_AS(with([](PictureOptions& o) { o.height = 0; }), Error);
  CHECK_THROWS_AS(with([](PictureOptions& o) { o.channels = 4; }), Error);
  CHECK_THROWS_AS(with([](PictureOptions& o) { o.least_area = 1.5; }), Error);
  CHECK_THROWS_AS(with([](PictureOptions& o) { o.resize = 100; }), Error);
  CHECK_THROWS_AS(PictureFiles({}, {}), Error);
}

}  // namespace
}  // namespace frugal::data
#endif

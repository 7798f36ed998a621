#include "data/formats/idx.h"

#include <doctest/doctest.h>

#include "data/formats/file_bytes.h"
#include "tests/data/files.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

namespace {

std::string idx(const std::vector<uint32_t>& shape, const std::string& values) {
  std::string out{0, 0, 8, static_cast<char>(shape.size())};
  for (uint32_t extent : shape)
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(extent >> shift & 255u);
  return out + values;
}

void rejects_idx(const TemporaryFolder& folder, const std::string& content, const char* message) {
  const std::string path = folder.write("bad", content);
  CHECK_THROWS_WITH_AS(read_idx(path), doctest::Contains(message), Error);
  CHECK_THROWS_WITH_AS(read_idx(path), doctest::Contains(path.c_str()), Error);
}

}  // namespace

TEST_CASE("IDX files are read plain, gzipped and in several gzip members") {
  const TemporaryFolder folder;
  const std::string file = idx({2, 1, 3}, "abcdef");
  for (const std::string& content :
       {file, gzip(file), gzip(file.substr(0, 9)) + gzip(file.substr(9))}) {
    const IdxArray array = read_idx(folder.write("a", content));
    CHECK(array.shape == Shape{2, 1, 3});
    CHECK(std::string(array.values.begin(), array.values.end()) == "abcdef");
  }
  CHECK(read_idx(folder.write("none", idx({0, 28, 28}, ""))).values.empty());
  for (const std::string& content : {idx({3, 2}, "abcdef"), gzip(idx({3, 2}, "abcdef"))}) {
    const IdxArray some = read_idx(folder.write("a", content), 2);
    CHECK(some.shape == Shape{2, 2});
    CHECK(some.values == std::vector<uint8_t>{'a', 'b', 'c', 'd'});
    CHECK(read_idx(folder.write("a", content), 7).shape == Shape{3, 2});
  }
  CHECK_THROWS_WITH_AS(read_idx(folder.write("a", idx({3, 2}, "abcde")), 1),
                       doctest::Contains("truncated"), Error);
}

TEST_CASE("every lie of an IDX file is named") {
  const TemporaryFolder folder;
  const std::string file = idx({2, 3}, "abcdef");
  rejects_idx(folder, "", "expected 4 bytes of magic at offset 0, got 0");
  rejects_idx(folder, file.substr(0, 6), "expected 4 bytes of an extent at offset 4, got 2");
  rejects_idx(folder, file.substr(0, 15), "expected 6 bytes of data [2, 3] at offset 12, got 3");
  rejects_idx(folder, file + "g", "to end at offset 18 after data [2, 3], got trailing bytes");
  rejects_idx(folder, "P5 " + file, "wrong magic");
  std::string other = file;
  other[2] = 0x0d;
  rejects_idx(folder, other, "expected type 08 (unsigned byte) at offset 2");
  other = file;
  other[3] = 5;
  rejects_idx(folder, other, "expected 1 to 4 axes at offset 3");
  // A header that promises terabytes must not allocate them.
  rejects_idx(folder, idx({0xffffffffu, 1024}, "abc"), "expected 4398046510080 bytes");
  rejects_idx(folder, idx({0xffffffffu, 0xffffffffu, 0xffffffffu}, "abc"), "overflow");
}

TEST_CASE("corrupt gzip is named") {
  const TemporaryFolder folder;
  const std::string zipped = gzip(idx({40, 50}, std::string(2000, 'x')));
  for (size_t cut = 2; cut < zipped.size(); ++cut) {
    const std::string path = folder.write("cut", zipped.substr(0, cut));
    REQUIRE_THROWS_AS(read_idx(path), Error);
  }
  rejects_idx(folder, zipped.substr(0, zipped.size() - 9), "truncated");
  rejects_idx(folder, zipped + "rest", "got 4 trailing bytes at compressed offset");
  std::string checksum = zipped;
  checksum[checksum.size() - 6] = static_cast<char>(checksum[checksum.size() - 6] ^ 1);
  rejects_idx(folder, checksum, "corrupt gzip");
  std::string body = zipped;
  body[11] = static_cast<char>(~body[11]);
  rejects_idx(folder, body, "[idx]");  // inflates to other bytes, or to none
}

TEST_CASE("an IDX folder is a dataset") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(open_idx(folder.path(), true),
                       doctest::Contains("expected train-images-idx3-ubyte or"), Error);
  folder.write("train-images-idx3-ubyte.gz",
               gzip(idx({2, 2, 2}, std::string("\0\xff\x33\1abcd", 8))));
  folder.write("train-labels-idx1-ubyte", idx({2}, std::string("\3\0", 2)));
  const DatasetPtr data = open_idx(folder.path(), true);
  CHECK(data->size() == 2);
  CHECK(data->classes() == 10);
  CHECK(data->sample_shape() == Shape{2, 2, 1});
  const Sample sample = data->get(0);
  CHECK(sample.label == 3);
  CHECK(sample.input.to_vector() ==
        std::vector<double>{0, 1, double{0x33 / 255.0f}, double{1 / 255.0f}});
  CHECK(sample.input.storage()->category() == Category::input);
  CHECK_THROWS_WITH_AS(data->get(2), doctest::Contains("index in [0, 2), got 2"), Error);
  CHECK_THROWS_WITH_AS(open_idx(folder.path(), true, 3),
                       doctest::Contains("expected labels in [0, 3), got 3"), Error);
  folder.write("train-labels-idx1-ubyte", idx({3}, std::string("\3\0\1", 3)));
  CHECK_THROWS_WITH_AS(open_idx(folder.path(), true), doctest::Contains("expected 2 labels"),
                       Error);
  folder.write("train-images-idx3-ubyte.gz", gzip(idx({2, 2}, "abcd")));
  CHECK_THROWS_WITH_AS(open_idx(folder.path(), true), doctest::Contains("images [N, H, W]"), Error);
  std::filesystem::create_directory(folder / "sub");
  CHECK_THROWS_WITH_AS(read_idx(folder / "sub"), doctest::Contains("regular file"), Error);
}

TEST_CASE("Fashion-MNIST of Debian's package") {
  const std::string folder = "/usr/share/datasets/fashion-mnist";
  if (!is_file(folder + "/train-images-idx3-ubyte.gz")) {
    MESSAGE("skipped: no ", folder, " (package dataset-fashion-mnist)");
    return;
  }
  CHECK(open_idx(folder, true)->size() == 60000);
  const DatasetPtr test = open_idx(folder, false);
  CHECK(test->size() == 10000);
  std::vector<int> counts(10);
  for (int64_t i = 0; i < test->size(); ++i) ++counts[static_cast<size_t>(test->get(i).label)];
  CHECK(counts == std::vector<int>(10, 1000));
}

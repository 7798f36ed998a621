#include "data/image/cifar.h"

#include <doctest/doctest.h>

#include "data/formats/file_bytes.h"
#include "tests/data/files.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

namespace {

// Pixel (channel c, position i) of record r is (r + 50 * c + i) mod 256.
std::string record(const std::string& labels, int64_t r) {
  std::string out = labels;
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t i = 0; i < 1024; ++i) out += static_cast<char>((r + 50 * c + i) & 255);
  return out;
}

}  // namespace

TEST_CASE("CIFAR-10 records become channels-last images") {
  const TemporaryFolder folder;
  CifarRecords records;
  read_cifar_file(folder.write("a.bin", record("\7", 0) + record("\2", 1)), Cifar::c10, 2, records);
  read_cifar_file(folder.write("b.bin", record("\3", 2)), Cifar::c10, 0, records);
  CHECK(records.labels == std::vector<int64_t>{7, 2, 3});
  REQUIRE(records.pixels.size() == 3 * 3072);
  for (size_t r = 0; r < 3; ++r)
    for (size_t i : {size_t{0}, size_t{33}, size_t{1023}})
      for (size_t c = 0; c < 3; ++c)
        REQUIRE(records.pixels[(r * 1024 + i) * 3 + c] == ((r + 50 * c + i) & 255));
}

TEST_CASE("CIFAR-100 has a coarse and a fine label") {
  const TemporaryFolder folder;
  CifarRecords records;
  read_cifar_file(folder.write("a.bin", record("\5\x4d", 0)), Cifar::c100, 1, records);
  CHECK(records.labels == std::vector<int64_t>{77});
  CHECK_THROWS_WITH_AS(
      read_cifar_file(folder.write("b.bin", record("\x14\1", 0)), Cifar::c100, 1, records),
      doctest::Contains("expected a coarse label in [0, 20), got 20"), Error);
  CHECK_THROWS_WITH_AS(
      read_cifar_file(folder.write("c.bin", record("\1\x64", 0)), Cifar::c100, 1, records),
      doctest::Contains("expected a fine label in [0, 100), got 100"), Error);
}

TEST_CASE("a CIFAR file of the wrong size or with a wrong label is named") {
  const TemporaryFolder folder;
  CifarRecords records;
  const std::string one = record("\1", 0);
  CHECK_THROWS_WITH_AS(read_cifar_file(folder.write("a.bin", one + "x"), Cifar::c10, 0, records),
                       doctest::Contains("got 3074 bytes: 1 whole records and 1 bytes more"),
                       Error);
  CHECK_THROWS_WITH_AS(read_cifar_file(folder.write("a.bin", one), Cifar::c10, 2, records),
                       doctest::Contains("expected 2 records of 3073 bytes"), Error);
  CHECK_THROWS_AS(read_cifar_file(folder.write("a.bin", ""), Cifar::c10, 0, records), Error);
  CHECK_THROWS_WITH_AS(
      read_cifar_file(folder.write("a.bin", one + record("\x0a", 0)), Cifar::c10, 2, records),
      doctest::Contains("record 1 at offset 3073"), Error);
  CHECK_THROWS_WITH_AS(read_cifar_file(folder / "none.bin", Cifar::c10, 0, records),
                       doctest::Contains("none.bin"), Error);
}

TEST_CASE("a CIFAR folder is a dataset") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(open_cifar(folder.path(), Cifar::c10, false),
                       doctest::Contains("test_batch.bin"), Error);
  std::filesystem::create_directory(folder / "cifar-10-batches-bin");
  std::string all;
  const std::string one = record("\4", 0);
  for (int r = 0; r < 10000; ++r) all += one;
  folder.write("cifar-10-batches-bin/test_batch.bin", all);
  const DatasetPtr data = open_cifar(folder.path(), Cifar::c10, false);
  CHECK(data->size() == 10000);
  CHECK(data->classes() == 10);
  CHECK(data->sample_shape() == Shape{32, 32, 3});
  CHECK(data->get(9999).label == 4);
  const DatasetPtr few = open_cifar(folder.path(), Cifar::c10, false, 3);
  CHECK(few->size() == 3);
  CHECK(few->get(2).label == 4);
  CifarRecords kept;
  read_cifar_file(folder / "cifar-10-batches-bin/test_batch.bin", Cifar::c10, 10000, kept, 5);
  CHECK(kept.labels.size() == 5);
  CHECK(kept.pixels.size() == 5 * 3072);  // nothing of the other records
  folder.write("test_batch.bin", one);    // the folder's own files come first
  CHECK_THROWS_WITH_AS(open_cifar(folder.path(), Cifar::c10, false),
                       doctest::Contains("expected 10000 records"), Error);
}

TEST_CASE("CIFAR-10 in FRUGAL_DATA") {
  const char* root = std::getenv("FRUGAL_DATA");
  if (root == nullptr || !is_file(std::string(root) + "/cifar-10-batches-bin/data_batch_1.bin")) {
    MESSAGE("skipped: no cifar-10-batches-bin in $FRUGAL_DATA");
    return;
  }
  CHECK(open_cifar(root, Cifar::c10, true)->size() == 50000);
  const DatasetPtr test = open_cifar(root, Cifar::c10, false);
  std::vector<int> counts(10);
  std::vector<float> image(3072);
  for (int64_t i = 0; i < test->size(); ++i)
    ++counts[static_cast<size_t>(test->get_into(i, {}, image.data()))];
  CHECK(counts == std::vector<int>(10, 1000));
}

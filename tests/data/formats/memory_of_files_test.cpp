// Data sets lie in memory once, as they come, and files are written without a copy.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "core/memory.h"
#include "data/formats/idx.h"
#include "data/formats/safetensors.h"
#include "data/image/cifar.h"
#include "tests/data/files.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

#ifndef FRUGAL_SANITIZED  // it keeps what was freed
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// How far `work` raises the process's memory, at most; nothing where the system cannot say.
template <class F>
int64_t growth(const F& work) {
  allocator(kCpu).trim();
  std::ofstream("/proc/self/clear_refs") << '5';  // counts the highest anew
  const int64_t before = host_peak_rss();
  work();
  return host_peak_rss() - before;
}

}  // namespace

TEST_CASE("CIFAR-10 takes its pixels and labels, and no file beside them") {
  const TemporaryFolder folder;
  const std::string content(10000 * 3073, '\1');
  for (int i = 1; i <= 5; ++i) folder.write("data_batch_" + std::to_string(i) + ".bin", content);
  DatasetPtr data;
  const int64_t grown = growth([&] { data = open_cifar(folder.path(), Cifar::c10, true); });
  CHECK(data->size() == 50000);
  CHECK(grown < 50000 * (3072 + 8) + 4 * kMiB);
}

TEST_CASE("an IDX file takes its values, plain and gzipped") {
  const TemporaryFolder folder;
  const int64_t images = 40000, bytes = images * 28 * 28;
  std::string content("\0\0\10\3", 4);
  for (const int64_t extent : {images, int64_t{28}, int64_t{28}})
    for (int shift = 24; shift >= 0; shift -= 8)
      content += static_cast<char>(extent >> shift & 255);
  content += std::string(static_cast<size_t>(bytes), '\7');
  for (const bool zipped : {false, true}) {
    CAPTURE(zipped);
    const std::string path = folder.write("images", zipped ? gzip(content) : content);
    IdxArray array;
    const int64_t grown = growth([&] { array = read_idx(path); });
    CHECK(array.values.size() == static_cast<size_t>(bytes));
    CHECK(std::count(array.values.begin(), array.values.end(), 7) == bytes);
    CHECK(grown < bytes + 6 * kMiB);
  }
}

TEST_CASE("a file is written without a copy of its tensors") {
  const TemporaryFolder folder;
  const Tensor plain = Tensor::full({8 << 20}, 1),
               turned = plain.view({2048, 4096}).transpose(0, 1);
  allocator(kCpu).reset_peak();
  const int64_t before = allocator(kCpu).report().peak_total;
  const int64_t grown = growth([&] {
    write_safetensors(folder / "t", {{"plain", plain}, {"turned", turned}});
  });
  CHECK(allocator(kCpu).report().peak_total == before);
  CHECK(grown < 6 * kMiB);
  CHECK(SafetensorsFile::open(folder / "t").read("turned").shape() == Shape{4096, 2048});
}
#endif

#include "compress/offload/file_store.h"

#include <doctest/doctest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>
#include <vector>

#include "compress/offload/file_store_checksum.h"
#include "core/memory.h"
#include "tests/compress/offload/offload_samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

FileStoreOptions file_in(const TempFolder& folder, bool direct = true, int64_t max_bytes = 0) {
  return {folder.path(), max_bytes, direct};
}

Tensor read_back(FileStore& store, const FileStore::Region& region) {
  CategoryScope scope(Category::packed);
  Tensor tensor = Tensor::empty({region.bytes}, DType::u8);
  REQUIRE(store.read(region, tensor.raw()));
  return tensor;
}

FileStore::Region write(FileStore& store, const Tensor& tensor) {
  const auto region = store.write(tensor.raw(), tensor.nbytes());
  REQUIRE(region);
  return *region;
}

constexpr int64_t kMiB = int64_t{1} << 20;

}  // namespace

TEST_CASE("a checksum tells bytes and their places, in parts as at once") {
  std::vector<uint8_t> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * i);
  const uint32_t whole = checksum(0, bytes.data(), 1000);
  CHECK(checksum(0, bytes.data(), 0) == 0);
  for (const int64_t part : {1, 7, 8, 500, 999})
    CHECK(checksum(checksum(0, bytes.data(), part), bytes.data() + part, 1000 - part) == whole);
  std::swap(bytes[3], bytes[4]);
  CHECK(checksum(0, bytes.data(), 1000) != whole);
  std::swap(bytes[3], bytes[4]);
  for (size_t bit = 0; bit < 8000; bit += 37) {
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ 1u << bit % 8);
    CHECK(checksum(0, bytes.data(), 1000) != whole);
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ 1u << bit % 8);
  }
#if defined(__x86_64__)
  // Ref: RFC 3720, B.4; and of CRC-32, by which others check.
  const uint32_t known = checksum(0, "123456789", 9);
  CHECK((known == 0xe3069283u || known == 0xcbf43926u));
#endif
}

TEST_CASE("a file store gives back what was written, aligned or not") {
  for (bool direct : {true, false}) {
    const TempFolder folder;
    const int64_t workspace = live(Category::workspace);
    {
      FileStore store(file_in(folder, direct));
      CHECK((!store.direct() || direct));
      CHECK((live(Category::workspace) > workspace) == store.direct());
      CHECK(folder.is_empty());  // the file has no name
      std::vector<std::pair<Tensor, FileStore::Region>> all;
      for (int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{4095}, int64_t{4096}, int64_t{4097},
                            kMiB - 1, kMiB, kMiB + 5, 9 * kMiB, 9 * kMiB + 3}) {
        const Tensor whole = payload(bytes + 3, static_cast<uint64_t>(bytes));
        for (int64_t skip : {0, 3}) {
          const Tensor part = whole.slice(0, skip, skip + bytes);
          all.emplace_back(part, write(store, part));
        }
      }
      int64_t capacity = 0;
      for (const auto& [tensor, region] : all) {
        CHECK(region.bytes == tensor.nbytes());
        CHECK(same_bytes(read_back(store, region), tensor));
        capacity += region.capacity;
      }
      CHECK(store.used_bytes() == capacity);
      CHECK(store.file_bytes() == capacity);
      for (const auto& [tensor, region] : all) store.release(region);
      CHECK(store.used_bytes() == 0);
    }
    CHECK(live(Category::workspace) == workspace);
  }
}

TEST_CASE("released regions are used again and neighbours join") {
  const TempFolder folder;
  FileStore store(file_in(folder));
  const Tensor one = payload(4096, 1), two = payload(8192, 2), three = payload(12288, 3);
  const auto a = write(store, one), b = write(store, two), c = write(store, one);
  const auto d = write(store, two);
  store.release(b);
  const auto e = write(store, one);  // the first half of b's place
  CHECK(e.offset == b.offset);
  const auto f = write(store, one);
  CHECK(f.offset == b.offset + 4096);
  CHECK(same_bytes(read_back(store, c), one));
  store.release(f);
  store.release(a);
  store.release(e);  // joins both sides: three blocks from 0
  const auto g = write(store, three);
  CHECK(g.offset == 0);
  const int64_t length = store.file_bytes();
  store.release(d);
  store.release(c);
  const auto h = write(store, three);  // what was free at the end counts
  CHECK(h.offset == g.capacity);
  CHECK(store.file_bytes() == length);
  store.release(g);
  store.release(h);
  CHECK(store.used_bytes() == 0);
}

TEST_CASE("the file does not grow from round to round") {
  const TempFolder folder;
  FileStore store(file_in(folder));
  int64_t length = 0;
  for (int round = 0; round < 8; ++round) {
    std::vector<FileStore::Region> regions;
    for (uint64_t i = 0; i < 12; ++i)
      regions.push_back(write(store, payload(static_cast<int64_t>(1 + i * 7919 % 40000), i)));
    if (round == 0) length = store.file_bytes();
    for (size_t i = 0; i < regions.size(); ++i)  // in another order each round
      store.release(regions[(i * 5 + static_cast<size_t>(round)) % regions.size()]);
  }
  CHECK(store.file_bytes() == length);
  CHECK(store.used_bytes() == 0);
}

TEST_CASE("a full file says where, what and how much, and goes on when there is room") {
  const TempFolder folder;
  FileStore store(file_in(folder, true, 20000));  // four blocks
  const Tensor half = payload(8000, 1);
  const auto a = write(store, half), b = write(store, half);
  const std::string text = fmt::format(
      "[offload] expected to write 8000 bytes to the file in {}, got: a file of at most 20000 "
      "bytes (free there: ",
      folder.path());
  CHECK_THROWS_WITH_AS(store.write(half.raw(), 8000), doctest::Contains(text.c_str()), Error);
  CHECK(store.used_bytes() == a.capacity + b.capacity);
  store.release(a);
  CHECK(same_bytes(read_back(store, write(store, half)), half));
}

TEST_CASE("bytes that changed on the disk are noticed") {
  for (bool direct : {true, false}) {
    const TempFolder folder;
    FileStore store(file_in(folder, direct));
    const Tensor tensor = payload(70000, 1);
    const auto region = write(store, tensor), other = write(store, tensor);
    REQUIRE(spoil_files(folder.path()) == 1);
    std::vector<char> to(70000);
    const std::string text =
        fmt::format("[offload] expected checksum {:08x}, got ", region.checksum);
    CHECK_THROWS_WITH_AS(store.read(region, to.data()), doctest::Contains(text.c_str()), Error);
    CHECK_THROWS_WITH_AS(store.read(region, to.data()),
                         doctest::Contains(("at byte 0 of the file in " + folder.path()).c_str()),
                         Error);
    CHECK(same_bytes(read_back(store, other), tensor));
  }
}

TEST_CASE("a read beyond the end of the file is an error") {
  const TempFolder folder;
  FileStore store(file_in(folder));
  FileStore::Region nowhere;
  nowhere.offset = 1 << 20;
  nowhere.bytes = nowhere.capacity = 4096;
  std::vector<char> to(4096);
  CHECK_THROWS_WITH_AS(
      store.read(nowhere, to.data()),
      doctest::Contains("[offload] expected to read 4096 bytes at byte 1048576 of the file"),
      Error);
}

TEST_CASE("what is cancelled leaves nothing") {
  const TempFolder folder;
  FileStore store(file_in(folder));
  const Tensor tensor = payload(3 * kMiB, 1);
  const auto region = write(store, tensor);
  const std::atomic<bool> cancel{true};
  CHECK(!store.write(tensor.raw(), tensor.nbytes(), &cancel));
  CHECK(!store.read(region, tensor.raw(), &cancel));
  CHECK(store.used_bytes() == region.capacity);
}

TEST_CASE("a file needs a directory that takes it") {
  CHECK_THROWS_WITH_AS(FileStore({"/nowhere/at/all"}),
                       "compression.offload: expected a directory to write a file in, got "
                       "/nowhere/at/all: No such file or directory",
                       OptionError);
  CHECK_THROWS_WITH_AS(FileStore({""}), "[offload] expected a directory, got an empty name", Error);
  const TempFolder folder;
  CHECK_THROWS_WITH_AS(FileStore(file_in(folder, true, -1)),
                       "[offload] expected max_bytes >= 0, got -1", Error);
  const int64_t workspace = live(Category::workspace);
  allocator(kCpu).fail_after(0);
  CHECK_THROWS_AS(FileStore{file_in(folder)}, OutOfMemory);
  allocator(kCpu).fail_after(-1);
  CHECK(live(Category::workspace) == workspace);
}

TEST_CASE("a limit on the length of files is an error and not the end") {
  struct rlimit before, low;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  low = before;
  low.rlim_cur = 1 << 16;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &low) == 0);
  std::string message;
  int64_t used = -1;
  {
    const TempFolder folder;
    FileStore store(file_in(folder));
    const Tensor tensor = payload(1 << 17, 1);
    try {
      store.write(tensor.raw(), tensor.nbytes());
    } catch (const Error& e) {
      message = e.what();
    }
    used = store.used_bytes();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(message.find("[offload] expected to write 131072 bytes to the file in ") == 0);
  CHECK(message.find("got: File too large (free there: ") != std::string::npos);
  CHECK(used == 0);
}

TEST_CASE("a full disk is an error that tells what is free") {
  const TempFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    MESSAGE("needs to mount a file system");
    return;
  }
  {
    FileStore store({folder.path()});
    const Tensor large = payload(2 * kMiB, 1), small = payload(kMiB / 2, 2);
    CHECK_THROWS_WITH_AS(store.write(large.raw(), large.nbytes()),
                         doctest::Contains("got: No space left on device (free there: "), Error);
    CHECK(store.used_bytes() == 0);
    CHECK(same_bytes(read_back(store, write(store, small)), small));
  }
  umount(folder.path().c_str());
}

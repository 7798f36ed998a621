#include "compress/offload/payload_store.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <map>

#include "core/rng.h"
#include "tests/compress/offload/offload_samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

constexpr int64_t kKiB = 1024;

OffloadOptions in(const TempFolder& folder, int64_t window, int64_t max_bytes = 0) {
  OffloadOptions options;
  options.directory = folder.path();
  options.window = window;
  options.max_bytes = max_bytes;
  return options;
}

bool holds(PayloadStore& store, PayloadStore::Id id, int64_t bytes, uint64_t seed) {
  const bool same = same_bytes(store.pin(id), payload(bytes, seed));
  store.unpin(id);
  return same;
}

// Waits until the payloads are in the file: those beyond half a window, that is.
bool written(const PayloadStore& store, int64_t bytes) {
  return soon([&] { return store.stats().written >= bytes; });
}

}  // namespace

TEST_CASE("payloads come back bit for bit in any order, within the window") {
  const TempFolder folder;
  const int64_t before = live(Category::packed), window = 100 * kKiB, largest = 40 * kKiB;
  Rng rng(7);
  {
    PayloadStore store(in(folder, window));
    std::map<PayloadStore::Id, std::pair<int64_t, uint64_t>> alive;
    const RngKey key = rng.state();
    uint64_t draw = 0;
    const auto random = [&](uint64_t n) {
      return static_cast<uint64_t>(1e6 * std::abs(static_cast<double>(normal(key, draw++)))) % n;
    };
    allocator(kCpu).reset_peak();
    for (uint64_t i = 0; i < 1500; ++i) {
      const uint64_t what = random(6);
      auto some = alive.begin();
      if (!alive.empty()) std::advance(some, random(alive.size()));
      if (alive.empty() || (what < 2 && alive.size() < 40)) {
        const auto bytes = static_cast<int64_t>(random(static_cast<uint64_t>(largest)));
        alive.emplace(store.put(payload(bytes, i)), std::make_pair(bytes, i));
      } else if (what < 4) {
        store.prefetch(some->first);
      } else if (what == 4) {
        const Tensor here = store.pin(some->first);
        REQUIRE(here.nbytes() == some->second.first);
        // Without a second tensor beside it, which would count.
        const Tensor expected = [&] {
          CategoryScope scope(Category::workspace);
          return payload(some->second.first, some->second.second);
        }();
        REQUIRE(same_bytes(here, expected));
        store.unpin(some->first);
      } else {
        store.drop(some->first);
        alive.erase(some);
      }
      REQUIRE(store.resident_bytes() <= window + largest);  // the one unpacked last
    }
    // The one that waits to be taken in, and the one that its bytes are compared with.
    CHECK(allocator(kCpu).report().peak[static_cast<size_t>(Category::packed)] <=
          before + window + 2 * largest);
    CHECK(store.stats().written > window);
    CHECK(store.stats().read > window);
    for (const auto& [id, what] : alive) store.drop(id);
    CHECK(store.resident_bytes() == 0);
    CHECK(store.file().used_bytes() == 0);
    CHECK(live(Category::packed) == before);
  }
  CHECK(folder.is_empty());
}

TEST_CASE("below half a window nothing is written, beyond it the oldest") {
  const TempFolder folder;
  PayloadStore store(in(folder, 64 * kKiB));
  const auto a = store.put(payload(20 * kKiB, 1)), b = store.put(payload(12 * kKiB, 2));
  CHECK(store.stats().written == 0);
  const auto c = store.put(payload(kKiB, 3));
  CHECK(written(store, 20 * kKiB));
  CHECK(store.stats().written == 20 * kKiB);
  CHECK(store.resident_bytes() == 33 * kKiB);  // it stays in memory: there is room
  const auto d = store.put(payload(40 * kKiB, 4));
  CHECK(store.resident_bytes() == 53 * kKiB);  // the first went
  for (const auto id : {a, b, c, d}) store.drop(id);
  CHECK(store.file().used_bytes() == 0);
}

TEST_CASE("a payload larger than the window goes alone, whatever the window") {
  for (int64_t window : {int64_t{0}, 10 * kKiB}) {
    const TempFolder folder;
    PayloadStore store(in(folder, window));
    const auto a = store.put(payload(100 * kKiB, 1)), b = store.put(payload(50 * kKiB, 2));
    CHECK(store.resident_bytes() == 50 * kKiB);
    const auto c = store.put(payload(100 * kKiB, 3));
    CHECK(store.resident_bytes() == 100 * kKiB);
    store.prefetch(b);
    CHECK(holds(store, c, 100 * kKiB, 3));
    CHECK(holds(store, b, 50 * kKiB, 2));
    CHECK(holds(store, a, 100 * kKiB, 1));
    for (const auto id : {a, b, c}) store.drop(id);
  }
}

TEST_CASE("what is asked for is read before it is used, and later if there is no room yet") {
  const TempFolder folder;
  PayloadStore store(in(folder, 64 * kKiB));
  std::vector<PayloadStore::Id> ids;
  for (uint64_t i = 0; i < 8; ++i) ids.push_back(store.put(payload(20 * kKiB, i)));
  // In memory: the last three, of which two are in the file too.
  REQUIRE(written(store, 7 * 20 * kKiB));
  store.prefetch(ids[7]);
  CHECK(holds(store, ids[6], 20 * kKiB, 6));
  store.prefetch(ids[4]);  // takes the place of what was used
  CHECK(soon([&] { return store.stats().read == 20 * kKiB; }));
  store.prefetch(ids[3]);  // the others are needed before it
  CHECK(holds(store, ids[5], 20 * kKiB, 5));
  CHECK(holds(store, ids[7], 20 * kKiB, 7));
  CHECK(store.stats().read == 20 * kKiB);
  store.drop(ids[7]);
  CHECK(soon([&] { return store.stats().read == 40 * kKiB; }));
  CHECK(holds(store, ids[4], 20 * kKiB, 4));
  CHECK(holds(store, ids[3], 20 * kKiB, 3));
  CHECK(store.stats().read == 40 * kKiB);
  for (size_t i = 0; i < 7; ++i) store.drop(ids[i]);
  CHECK(store.resident_bytes() == 0);
}

TEST_CASE("a file that takes no more is an error once the window is full, and then goes on") {
  const TempFolder folder;
  const int64_t before = live(Category::packed);
  PayloadStore store(in(folder, 40 * kKiB, 64 * kKiB));
  std::vector<PayloadStore::Id> ids;
  const auto fill = [&] {
    for (;;) ids.push_back(store.put(payload(10 * kKiB, ids.size())));
  };
  const std::string text = fmt::format(
      "[offload] expected to write 10240 bytes to the file in {}, got: a file of at most 65536 "
      "bytes (free there: ",
      folder.path());
  CHECK_THROWS_WITH_AS(fill(), doctest::Contains(text.c_str()), Error);
  CHECK_THROWS_WITH_AS(fill(), doctest::Contains("and the 40960 bytes in memory are full"), Error);
  CHECK(ids.size() >= 9);  // five in the file and four in memory
  for (size_t i = 0; i < ids.size(); ++i) CHECK(holds(store, ids[i], 10 * kKiB, i));
  for (size_t i = 0; i < ids.size(); ++i) store.drop(ids[i]);
  CHECK(store.file().used_bytes() == 0);
  CHECK(live(Category::packed) == before);
  ids.clear();
  for (size_t i = 0; i < 9; ++i) ids.push_back(store.put(payload(10 * kKiB, i)));
  for (size_t i = 0; i < ids.size(); ++i) CHECK(holds(store, ids[i], 10 * kKiB, i));
  for (const auto id : ids) store.drop(id);
}

TEST_CASE("a limit on files reaches the writing thread as an error") {
  struct rlimit before, low;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  low = before;
  low.rlim_cur = 1 << 16;
  std::string message;
  {
    const TempFolder folder;
    PayloadStore store(in(folder, 32 * kKiB));
    REQUIRE(setrlimit(RLIMIT_FSIZE, &low) == 0);  // SIGXFSZ is not ignored here
    std::vector<PayloadStore::Id> ids;
    try {
      for (uint64_t i = 0; i < 100; ++i) ids.push_back(store.put(payload(16 * kKiB, i)));
    } catch (const Error& e) {
      message = e.what();
    }
    setrlimit(RLIMIT_FSIZE, &before);
    ids.push_back(store.put(payload(16 * kKiB, ids.size())));
    for (size_t i = 0; i < ids.size(); ++i) CHECK(holds(store, ids[i], 16 * kKiB, i));
    for (const auto id : ids) store.drop(id);
  }
  CHECK(message.find("File too large") != std::string::npos);
}

TEST_CASE("a payload that was spoiled on the disk is an error for it alone") {
  const TempFolder folder;
  PayloadStore store(in(folder, 0));
  const auto a = store.put(payload(5000, 1)), b = store.put(payload(5000, 2));
  const auto c = store.put(payload(1, 3));
  REQUIRE(written(store, 10000));
  REQUIRE(spoil_files(folder.path()) == 1);
  CHECK_THROWS_WITH_AS(store.pin(a), doctest::Contains("[offload] expected checksum "), Error);
  CHECK_THROWS_AS(store.pin(a), Error);
  CHECK(holds(store, b, 5000, 2));
  store.prefetch(a);
  CHECK_THROWS_AS(store.pin(a), Error);
  CHECK(holds(store, c, 1, 3));
  for (const auto id : {a, b, c}) store.drop(id);
  CHECK(store.resident_bytes() == 0);
}

TEST_CASE("a payload that is written in place before it leaves memory is an error") {
  const TempFolder folder;
  PayloadStore store(in(folder, 30 * kKiB));
  std::vector<Tensor> own;
  std::vector<PayloadStore::Id> ids;
  for (uint64_t i = 0; i < 2; ++i) {
    own.push_back(payload(10 * kKiB, i));
    ids.push_back(store.put(own.back()));
  }
  own[0].bump_version();  // in memory
  CHECK_THROWS_WITH_AS(
      store.pin(ids[0]),
      "[offload] expected a saved [10240] u8 unchanged until backward, got one written in place",
      Error);
  CHECK(holds(store, ids[1], 10 * kKiB, 1));
  for (uint64_t i = 2; i < 9; ++i) ids.push_back(store.put(payload(10 * kKiB, i)));
  own[1].bump_version();  // it left: what happens to its owner's is no matter
  CHECK(holds(store, ids[1], 10 * kKiB, 1));
  for (int i = 0; i < 2; ++i)
    CHECK_THROWS_AS(store.pin(ids[0]), Error);  // whenever it is asked for
  for (const auto id : ids) store.drop(id);
}

TEST_CASE("without memory to read into, others make room or the error is raised") {
  const TempFolder folder;
  const int64_t before = live(Category::packed);
  PayloadStore store(in(folder, 64 * kKiB));
  std::vector<PayloadStore::Id> ids;
  for (uint64_t i = 0; i < 8; ++i) ids.push_back(store.put(payload(20 * kKiB, i)));
  REQUIRE(written(store, 7 * 20 * kKiB));
  CHECK(holds(store, ids[6], 20 * kKiB, 6));  // may go for what is asked for
  allocator(kCpu).fail_after(0);
  store.prefetch(ids[0]);  // no error: it is a wish
  CHECK(store.resident_bytes() == 40 * kKiB);
  allocator(kCpu).fail_after(-1);
  allocator(kCpu).set_limit(allocator(kCpu).report().live_total + kKiB);
  CHECK_NOTHROW(store.pin(ids[1]));  // took the place of another
  CHECK_NOTHROW(store.unpin(ids[1]));
  {
    std::vector<PayloadStore::Id> pinned;
    CHECK_THROWS_AS(
        for (const auto id
             : ids) {
          store.pin(id);
          pinned.push_back(id);
        },
        OutOfMemory);
    for (const auto id : pinned) store.unpin(id);
  }
  allocator(kCpu).set_limit(0);
  for (size_t i = 0; i < ids.size(); ++i) CHECK(holds(store, ids[i], 20 * kKiB, i));
  while (store.resident_bytes() > 20 * kKiB) {  // the window has room, memory has none
    store.drop(ids.back());
    ids.pop_back();
  }
  allocator(kCpu).set_limit(allocator(kCpu).report().live_total + kKiB);
  CHECK_NOTHROW(store.pin(ids[0]));
  store.unpin(ids[0]);
  allocator(kCpu).set_limit(0);
  for (const auto id : ids) store.drop(id);
  CHECK(live(Category::packed) == before);
}

TEST_CASE("what is dropped early is never written, and a write under way is broken off") {
  const TempFolder folder;
  const int64_t before = live(Category::packed);
  PayloadStore store(in(folder, int64_t{64} << 20));
  for (int i = 0; i < 5; ++i) {
    const auto a = store.put(payload(int64_t{30} << 20, 1));
    const auto b = store.put(payload(int64_t{20} << 20, 2));
    store.drop(b);
    store.drop(a);
    CHECK(live(Category::packed) == before);
    CHECK(store.file().used_bytes() == 0);
  }
  CHECK(store.stats().written < 5 * (int64_t{30} << 20));
}

TEST_CASE("on meta payloads take room and no file") {
  const TempFolder folder;
  PayloadStore store(in(folder, 64 * kKiB));
  std::vector<PayloadStore::Id> ids;
  for (int i = 0; i < 10; ++i) {
    CategoryScope scope(Category::packed);
    ids.push_back(store.put(Tensor::empty({20 * kKiB}, DType::u8, kMeta)));
    CHECK(store.resident_bytes() <= 64 * kKiB);
    CHECK(allocator(kMeta).report().of(Category::packed) <= 64 * kKiB);
  }
  store.prefetch(ids[0]);
  CHECK(store.pin(ids[1]).device() == kMeta);
  store.unpin(ids[1]);
  for (const auto id : ids) store.drop(id);
  CHECK(allocator(kMeta).report().of(Category::packed) == 0);
  CHECK(store.stats().written == 0);
  CHECK(store.stats().read == 0);
  CHECK(store.file().file_bytes() == 0);
}

TEST_CASE("on meta nothing waits: what was asked for ahead makes room, what is pinned stays") {
  const TempFolder folder;
  PayloadStore store(in(folder, 64 * kKiB));
  const auto put = [&] {
    CategoryScope scope(Category::packed);
    return store.put(Tensor::empty({20 * kKiB}, DType::u8, kMeta));
  };
  std::vector<PayloadStore::Id> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(put());
  for (int i = 0; i < 3; ++i) store.prefetch(ids[static_cast<size_t>(i)]);
  ids.push_back(put());  // the window is full of what no disk will ever have read
  CHECK(store.resident_bytes() <= 64 * kKiB);
  for (size_t i = 0; i < 3; ++i) store.pin(ids[i]);
  const int64_t pinned = store.resident_bytes();
  ids.push_back(put());
  CHECK(store.resident_bytes() == pinned + 20 * kKiB);
  for (size_t i = 0; i < 3; ++i) store.unpin(ids[i]);
  for (const auto id : ids) store.drop(id);
  CHECK(allocator(kMeta).report().of(Category::packed) == 0);
}

TEST_CASE("a process that is killed leaves nothing behind") {
  const TempFolder folder;
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    PayloadStore store(in(folder, 0));
    store.put(payload(100 * kKiB, 1));
    store.put(payload(100 * kKiB, 2));  // the first is in the file now
    const bool told = ::write(pipes[1], "x", 1) == 1;
    while (told) pause();
    _exit(1);
  }
  char letter = 0;
  CHECK(::read(pipes[0], &letter, 1) == 1);
  kill(child, SIGKILL);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(folder.is_empty());
  close(pipes[0]);
  close(pipes[1]);
}

TEST_CASE("a store wants a window of at least nothing") {
  const TempFolder folder;
  CHECK_THROWS_WITH_AS(PayloadStore(in(folder, -1)), "[offload] expected window >= 0, got -1",
                       Error);
}

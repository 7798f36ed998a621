#include "core/memory/page_pool.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "core/rng.h"

using frugal::PagePool;

namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB, kPage = 4096, kHuge = 2 * kMiB;

// Addresses without memory. `gone` counts the bytes that the pool gave back.
struct PageSource {
  std::map<char*, int64_t> ranges;
  int64_t longest = INT64_MAX, next = int64_t{1} << 40, dropped = 0;
  bool drops = true;
  PagePool::System system(bool huge) {
    return {.reserve = [this](int64_t bytes) -> void* {
              if (bytes > longest) return nullptr;
              auto* data = reinterpret_cast<char*>(next);
              next += (bytes + 2 * kHuge) / kHuge * kHuge;
              ranges[data] = bytes;
              return data;
            },
            .unmap =
                [this](void* data, int64_t bytes) {
                  const auto range = ranges.find(static_cast<char*>(data));
                  REQUIRE(range != ranges.end());
                  CHECK(range->second == bytes);
                  CHECK(bytes % kPage == 0);
                  ranges.erase(range);
                },
            .drop =
                [this](void* data, int64_t bytes) {
                  CHECK(reinterpret_cast<uintptr_t>(data) % kPage == 0);
                  CHECK(bytes % kPage == 0);
                  const auto range = std::prev(ranges.upper_bound(static_cast<char*>(data)));
                  CHECK(static_cast<char*>(data) + bytes <= range->first + range->second);
                  if (drops) dropped += bytes;
                  return drops;
                },
            .page = kPage,
            .huge = huge ? kHuge : 0};
  }
};

}  // namespace

TEST_CASE("pages of free blocks stay for the next blocks") {
  PageSource machine;
  PagePool pool(machine.system(false));
  void* a = pool.allocate(8 * kMiB);
  CHECK(reinterpret_cast<uintptr_t>(a) % 64 == 0);
  CHECK(pool.held() == 8 * kMiB);
  pool.release(a);
  CHECK(pool.used() == 0);
  CHECK(pool.held() == 8 * kMiB);
  void* b = pool.allocate(6 * kMiB);
  CHECK(b == a);
  CHECK(pool.held() == 8 * kMiB);
  CHECK(machine.dropped == 0);
  pool.release(b);
  pool.trim();
  CHECK(pool.held() == 0);
  CHECK(machine.ranges.empty());
}

TEST_CASE("pages that would exceed the highest use go back") {
  PageSource machine;
  PagePool pool(machine.system(false));
  void* a = pool.allocate(100 * kMiB);
  void* b = pool.allocate(kMiB);
  pool.release(a);
  void* c = pool.allocate(120 * kMiB);  // does not fit where `a` was
  CHECK(pool.used() == 121 * kMiB);
  CHECK(pool.held() <= 121 * kMiB + 121 * kMiB / 32 + 8 * kMiB);
  CHECK(machine.dropped >= 85 * kMiB);
  pool.release(c);
  pool.release(b);
}

TEST_CASE("no more pages go back than must, and those at the end of a block go first") {
  for (bool huge : {true, false}) {
    CAPTURE(huge);
    PageSource machine;
    PagePool pool(machine.system(huge));
    pool.release(pool.allocate(40 * kMiB));
    REQUIRE(pool.held() == 40 * kMiB);
    pool.shrink(30 * kMiB + 1);
    CHECK(pool.held() == 30 * kMiB);
    pool.allocate(30 * kMiB);
    CHECK(pool.held() == 30 * kMiB);
  }
}

TEST_CASE("a limit counts pages in memory: free ones go back before a block takes more") {
  PageSource machine;
  PagePool pool(machine.system(false));
  void* a = pool.allocate(100 * kMiB);
  void* b = pool.allocate(kMiB);
  pool.release(a);
  void* c = pool.allocate(110 * kMiB, 112 * kMiB);
  CHECK(pool.held() <= 112 * kMiB);
  pool.release(c);
  pool.shrink(2 * kMiB);
  CHECK(pool.held() <= 2 * kMiB);
  CHECK(pool.held() >= pool.used());
  pool.release(b);
}

TEST_CASE("the first touch of a huge page brings all of it, and huge pages go back whole") {
  PageSource machine;
  PagePool pool(machine.system(true));
  void* a = pool.allocate(3 * kMiB);
  CHECK(pool.held() == 2 * kHuge);
  void* b = pool.allocate(kMiB);  // the rest of the second one
  CHECK(pool.held() == 2 * kHuge);
  pool.release(a);
  pool.shrink(2 * kHuge - 1);
  CHECK(pool.held() == kHuge);
  CHECK(machine.dropped == kHuge);
  pool.shrink(0);  // now the pages beside `b`
  CHECK(pool.held() == kMiB);
  void* c = pool.allocate(3 * kMiB);  // half of it lies in the broken huge page
  CHECK(c == a);
  CHECK(pool.held() == 2 * kHuge);
  pool.release(b);
  pool.release(c);
}

TEST_CASE("small blocks share pages apart from large ones") {
  PageSource machine;
  PagePool pool(machine.system(true));
  void* small = pool.allocate(16 * kKiB);
  CHECK(pool.held() == 16 * kKiB);
  void* large = pool.allocate(4 * kMiB);
  CHECK(machine.ranges.size() == 2);
  pool.release(small);
  pool.release(large);
}

TEST_CASE("where pages cannot go back, they count on") {
  PageSource machine;
  machine.drops = false;
  PagePool pool(machine.system(false));
  void* a = pool.allocate(10 * kMiB);
  void* b = pool.allocate(kMiB);
  pool.release(a);
  pool.shrink(0);
  CHECK(pool.held() == 11 * kMiB);
  pool.release(b);
}

TEST_CASE("few addresses: a range only for the block, then nothing") {
  PageSource machine;
  machine.longest = 100 * kMiB;
  PagePool pool(machine.system(true));
  void* a = pool.allocate(90 * kMiB + 64);
  CHECK(a != nullptr);
  CHECK(pool.allocate(101 * kMiB) == nullptr);
  CHECK(pool.used() == 90 * kMiB + 64);
  pool.release(a);
  pool.trim();
  CHECK(machine.ranges.empty());
  CHECK(pool.held() == 0);
}

TEST_CASE("after steps that need less, memory of earlier steps goes back") {
  PageSource machine;
  PagePool pool(machine.system(true));
  pool.release(pool.allocate(512 * kMiB));
  CHECK(pool.held() == 512 * kMiB);
  int64_t steps = 0;
  for (; pool.held() > 100 * kMiB && steps < 20'000; ++steps)
    pool.release(pool.allocate(8 * kMiB + steps % 64 * 64 * kKiB));
  CHECK(steps > 1000);  // not at once: a training alternates
  CHECK(steps < 20'000);
  CHECK(pool.held() < 22 * kMiB);
}

TEST_CASE(
    "blocks are apart, pages are counted exactly, and little is held beyond the highest use") {
  for (const bool huge : {false, true}) {
    PageSource machine;
    PagePool pool(machine.system(huge));
    std::map<char*, int64_t> blocks;
    int64_t highest = 0, worst = 0, taken = 0;
    for (uint64_t i = 0; i < 4000; ++i) {
      // The sizes of a step: many small ones, few large ones, more and fewer of them by turns.
      const bool grows = blocks.size() < 20 || (blocks.size() < 120 && i / 150 % 2 == 0);
      if (!grows) {
        const auto at = frugal::uniform_int({3, 0}, i, blocks.size());
        const auto gone = std::next(blocks.begin(), static_cast<int64_t>(at));
        pool.release(gone->first);
        blocks.erase(gone);
        continue;
      }
      const int64_t scale = i % 8 == 0 ? 16 * kMiB : i % 3 == 0 ? kMiB : 100 * kKiB;
      const int64_t bytes = 64 + static_cast<int64_t>(frugal::uniform_int({4, 0}, i, scale));
      auto* data = static_cast<char*>(pool.allocate(bytes));
      taken += bytes;
      const auto after = blocks.upper_bound(data);
      if (after != blocks.end()) CHECK(data + bytes <= after->first);
      if (after != blocks.begin())
        CHECK(std::prev(after)->first + std::prev(after)->second <= data);
      blocks[data] = bytes;
      highest = std::max(highest, pool.used());
      worst = std::max(worst, pool.held());
      CHECK(pool.held() >= pool.used());
    }
    CHECK(worst <= highest + highest / 32 + 8 * kMiB + static_cast<int64_t>(240) * kPage);
    CHECK(machine.dropped < taken / 4);  // most blocks find pages in memory
    pool.shrink(0);
    // The pages that live blocks touch, and no others.
    std::set<char*> pages;
    for (const auto& [data, bytes] : blocks) {
      const auto range = std::prev(machine.ranges.upper_bound(data));
      for (int64_t page = (data - range->first) / kPage;
           page <= (data - range->first + bytes - 1) / kPage; ++page)
        pages.insert(range->first + page * kPage);
    }
    CHECK(pool.held() == static_cast<int64_t>(pages.size()) * kPage);
    for (const auto& [data, bytes] : blocks) pool.release(data);
    pool.trim();
    CHECK(pool.held() == 0);
    CHECK(pool.used() == 0);
  }
}

TEST_CASE("a block that grows holds pages as it grows, and its tail gives back what was there") {
  PageSource machine;
  PagePool pool(machine.system(false));
  void* a = pool.reserve(8 * kMiB);
  CHECK(pool.used() == 0);
  CHECK(pool.held() == 0);
  pool.grow(a, 2 * kMiB);
  CHECK(pool.used() == 2 * kMiB);
  CHECK(pool.held() == 2 * kMiB);
  pool.grow(a, kMiB);  // no less than before
  CHECK(pool.used() == 2 * kMiB);
  void* b = pool.allocate(kMiB);
  CHECK(b != a);
  pool.release(a);
  CHECK(pool.used() == kMiB);
  void* whole = pool.allocate(8 * kMiB);
  CHECK(whole == a);
  CHECK(pool.held() == 9 * kMiB);
  pool.release(whole);
  void* again = pool.reserve(8 * kMiB);
  CHECK(again == a);
  pool.grow(again, 3 * kMiB);
  CHECK(pool.held() == 9 * kMiB);
  pool.shrink(0);
  CHECK(pool.held() == 4 * kMiB);  // what may be touched
  CHECK(machine.dropped == 5 * kMiB);
  pool.grow(again, 8 * kMiB);
  CHECK(pool.used() == 9 * kMiB);
  CHECK(pool.held() == 9 * kMiB);
  pool.shrink(0);
  CHECK(pool.held() == 9 * kMiB);
  pool.release(again);
  pool.release(b);
  CHECK(pool.used() == 0);
}

TEST_CASE("on this machine, bytes of live blocks stay while pages around them go back") {
  PagePool pool;
  std::map<unsigned char*, std::pair<int64_t, unsigned char>> blocks;
  for (uint64_t i = 0; i < 400; ++i) {
    if (blocks.size() > 12) {
      const auto at = frugal::uniform_int({5, 0}, i, blocks.size());
      const auto gone = std::next(blocks.begin(), static_cast<int64_t>(at));
      pool.release(gone->first);
      blocks.erase(gone);
    }
    const auto bytes = static_cast<int64_t>(frugal::uniform_int({6, 0}, i, 3 * kMiB)) + 1;
    auto* data = static_cast<unsigned char*>(pool.allocate(bytes));
    const auto value = static_cast<unsigned char>(i % 251 + 1);
    std::memset(data, value, static_cast<size_t>(bytes));
    blocks[data] = {bytes, value};
    if (i % 5 == 0) pool.shrink(0);
    if (i % 20 != 0) continue;
    for (const auto& [block, content] : blocks)
      CHECK(std::count(block, block + content.first, content.second) == content.first);
  }
  for (const auto& [data, content] : blocks) pool.release(data);
}

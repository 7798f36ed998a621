#include "core/memory/segment_pool.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <vector>

#include "core/rng.h"

using frugal::SegmentPool;

namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

// Addresses without memory, and a limit.
struct SegmentSource {
  std::map<char*, int64_t> held;
  int64_t limit = INT64_MAX, total = 0, next = int64_t{1} << 40, acquired = 0;
  SegmentPool::Source source() {
    return {[this](int64_t bytes) -> void* {
              if (total + bytes > limit) return nullptr;
              auto* data = reinterpret_cast<char*>(next);
              next += bytes + kMebibyte;  // segments are never neighbours
              held[data] = bytes;
              total += bytes;
              ++acquired;
              return data;
            },
            [this](void* data) {
              const auto found = held.find(static_cast<char*>(data));
              REQUIRE(found != held.end());
              total -= found->second;
              held.erase(found);
            }};
  }
};

}  // namespace

TEST_CASE("blocks do not overlap, are aligned, and lie inside their segments") {
  SegmentSource machine;
  SegmentPool pool(machine.source());
  std::map<char*, int64_t> blocks;
  for (uint64_t i = 0; i < 300; ++i) {
    const auto bytes = static_cast<int64_t>(frugal::uniform_int({1, 0}, i, 3 * kMebibyte));
    auto* data = static_cast<char*>(pool.allocate(bytes));
    CHECK(reinterpret_cast<uintptr_t>(data) % 512 == 0);
    CHECK(pool.owns(data));
    const auto after = blocks.upper_bound(data);
    if (after != blocks.end()) CHECK(data + bytes <= after->first);
    if (after != blocks.begin()) CHECK(std::prev(after)->first + std::prev(after)->second <= data);
    const auto segment = std::prev(machine.held.upper_bound(data));
    CHECK(data + bytes <= segment->first + segment->second);
    blocks[data] = bytes;
  }
  CHECK(pool.held() == machine.total);
  for (const auto& [data, bytes] : blocks) pool.release(data);
  CHECK(pool.used() == 0);
  CHECK_FALSE(pool.owns(blocks.begin()->first));
  pool.trim();
  CHECK(pool.held() == 0);
  CHECK(machine.total == 0);
}

TEST_CASE("what was split is joined again, in any order of release") {
  SegmentSource machine;
  SegmentPool pool(machine.source());
  for (const std::vector<size_t>& order :
       {std::vector<size_t>{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}}) {
    std::vector<void*> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(pool.allocate(8 * kMebibyte));
    for (size_t i : order) pool.release(parts[i]);
    void* whole = pool.allocate(30 * kMebibyte);
    CHECK(whole != nullptr);
    pool.release(whole);
  }
  // One segment that holds four eights, and those of 32 and more: none is ever asked for again.
  const int64_t acquired = machine.acquired;
  for (int i = 0; i < 10; ++i) pool.release(pool.allocate(30 * kMebibyte));
  CHECK(machine.acquired == acquired);
}

TEST_CASE("a pool that keeps segments gives nothing back before it is destroyed") {
  SegmentSource machine;
  {
    SegmentPool pool(machine.source(), true);
    pool.release(pool.allocate(9 * kMebibyte));
    pool.trim();
    CHECK(pool.held() > 0);
    CHECK(machine.total == pool.held());
  }
  CHECK(machine.total == 0);
}

TEST_CASE("10,000 steps of varying shapes do not grow the pool") {
  SegmentSource machine;
  SegmentPool pool(machine.source());
  int64_t highest = 0, after_warmup = 0;
  for (uint64_t step = 0; step < 10'000; ++step) {
    // A step: activations of a batch of some size, freed in reverse order, with temporaries.
    const double scale = 0.5 + static_cast<double>(frugal::uniform({2, 0}, step));
    std::vector<void*> kept;
    for (uint64_t layer = 0; layer < 12; ++layer) {
      const double bytes = scale * static_cast<double>(1 + layer % 4) * 3e6;
      kept.push_back(pool.allocate(static_cast<int64_t>(bytes)));
      pool.release(pool.allocate(static_cast<int64_t>(bytes * 2 / 3)));
    }
    highest = std::max(highest, pool.used());
    while (!kept.empty()) {
      pool.release(pool.allocate(static_cast<int64_t>(scale * 5e6)));
      pool.release(kept.back());
      kept.pop_back();
    }
    if (step == 500) after_warmup = pool.held();
  }
  CHECK(pool.used() == 0);
  CHECK(pool.held() <= after_warmup + after_warmup / 4);
  CHECK(pool.held() <= highest * 3 / 2 + 96 * kMebibyte);
}

TEST_CASE("an exhausted source: idle memory goes back first, then nullptr is returned") {
  SegmentSource machine;
  machine.limit = 100 * kMebibyte;
  SegmentPool pool(machine.source());
  void* a = pool.allocate(60 * kMebibyte);
  CHECK(pool.allocate(60 * kMebibyte) == nullptr);
  pool.release(a);
  void* b = pool.allocate(90 * kMebibyte);  // the segment of 60 has to go
  CHECK(b != nullptr);
  CHECK(pool.held() <= machine.limit);
  pool.release(b);
}

TEST_CASE("a source without large pieces gives pieces for one block") {
  SegmentSource machine;
  machine.limit = 20 * kMebibyte;
  SegmentPool pool(machine.source());  // it asks for 32 MiB at first
  void* a = pool.allocate(7 * kMebibyte);
  CHECK(a != nullptr);
  CHECK(pool.held() == 7 * kMebibyte);
  CHECK(pool.size_of(a) == 7 * kMebibyte);
  pool.release(a);
  pool.trim();
  CHECK(machine.total == 0);
}

TEST_CASE("free blocks are named, the largest first") {
  SegmentSource machine;
  SegmentPool pool(machine.source());
  void* a = pool.allocate(7 * kMebibyte);
  void* b = pool.allocate(kMebibyte);
  pool.release(a);
  std::vector<int64_t> sizes;
  pool.for_each_free([&](char*, int64_t bytes) {
    sizes.push_back(bytes);
    return true;
  });
  CHECK(sizes == std::vector<int64_t>{24 * kMebibyte, 7 * kMebibyte});
  pool.release(b);
}

// Cuts large segments into blocks: best fit, the rest of a block split off, free neighbours joined
// again. For memory that is slow to get from its source (CUDA, pinned host memory), and for the
// address ranges of PagePool. Not thread-safe.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace frugal {

class SegmentPool {
 public:
  struct Source {
    std::function<void*(int64_t bytes)> acquire;  // nullptr when exhausted
    std::function<void(void*)> give_back;
  };
  // Small blocks have segments of their own, so that they do not cut the large ones.
  struct Sizes {
    int64_t alignment = 512;
    int64_t small = int64_t{1} << 20;  // blocks below this are small
    int64_t small_segment = int64_t{2} << 20, large_segment = int64_t{32} << 20;
  };
  static Sizes usual() { return {}; }
  // keeps: segments stay until the pool goes, for somebody may still touch what is free here.
  explicit SegmentPool(Source source, bool keeps = false, const Sizes& sizes = usual())
      : source_(std::move(source)), keeps_(keeps), sizes_(sizes) {}
  ~SegmentPool();  // gives everything back, blocks in use too
  SegmentPool(const SegmentPool&) = delete;
  SegmentPool& operator=(const SegmentPool&) = delete;

  // Aligned to Sizes::alignment. nullptr when the source is exhausted, even after trim().
  void* allocate(int64_t bytes);
  void release(void* data) noexcept;  // REQUIRES: of allocate
  void trim() noexcept;               // gives segments without a block in use back, unless it keeps

  bool owns(const void* data) const;        // a block in use here
  int64_t size_of(const void* data) const;  // REQUIRES: owns(data)
  // Calls f(data, bytes) for the free blocks, the largest first, until it returns false.
  template <class F>
  void for_each_free(const F& f) const {
    for (const Free& free : free_)
      for (auto block = free.rbegin(); block != free.rend(); ++block)
        if (!f(block->second, block->first)) return;
  }
  int64_t held() const { return held_; }
  int64_t used() const { return used_; }

 private:
  struct Block {
    int64_t bytes = 0;
    char* segment = nullptr;  // where its segment begins
    bool free = false;
  };
  struct Segment {
    int64_t bytes = 0;
    bool small = false;
  };
  using Blocks = std::map<char*, Block>;
  using Free = std::set<std::pair<int64_t, char*>>;  // by size, then address

  int64_t segment_bytes(int64_t bytes) const;
  bool grow(int64_t bytes);
  Free& free_of(const Block& block) { return free_[segments_[block.segment].small ? 1 : 0]; }

  Source source_;
  bool keeps_;
  Sizes sizes_;
  Blocks blocks_;  // all, by address: neighbours are adjacent
  std::map<char*, Segment> segments_;
  Free free_[2];  // of large, of small segments
  int64_t held_ = 0, used_ = 0, high_water_ = 0;
};

}  // namespace frugal

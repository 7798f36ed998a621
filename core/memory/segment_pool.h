// Cuts large segments into blocks: a request gets the smallest free block that fits, the rest of
// that block is split off, and free neighbours are joined again. For memory that its source is slow
// to give (CUDA, pinned host memory), and for the address ranges of PagePool. Not thread-safe.
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
  // Small blocks lie in segments of their own, so that they do not cut up the large segments.
  struct Sizes {
    int64_t alignment = 512;
    int64_t small = int64_t{1} << 20;  // blocks below this are small
    int64_t small_segment = int64_t{2} << 20, large_segment = int64_t{32} << 20;
  };
  static Sizes usual() { return {}; }
  // keeps: segments stay until the pool is destroyed, because somebody may still touch memory that
  // is free here.
  explicit SegmentPool(Source source, bool keeps = false, const Sizes& sizes = usual())
      : source_(std::move(source)), keeps_(keeps), sizes_(sizes) {}
  ~SegmentPool();  // gives every segment back, even if blocks in it are in use
  SegmentPool(const SegmentPool&) = delete;
  SegmentPool& operator=(const SegmentPool&) = delete;

  // Aligned to Sizes::alignment. nullptr if the source has no more, even after trim().
  void* allocate(int64_t bytes);
  void release(void* data) noexcept;  // REQUIRES: `data` came from allocate()
  void trim() noexcept;               // gives back segments in which no block is in use; does
                                      // nothing if the pool keeps segments

  bool owns(const void* data) const;        // whether `data` is a block of this pool that is in use
  int64_t size_of(const void* data) const;  // REQUIRES: owns(data)
  // Calls f(data, bytes) for the free blocks, from the largest to the smallest, until f returns
  // false.
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
    char* segment = nullptr;  // first byte of the segment that holds the block
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
  Blocks blocks_;  // all blocks by address, so that neighbours in memory are neighbours here
  std::map<char*, Segment> segments_;
  Free free_[2];  // [0]: free blocks of large segments, [1]: of small ones
  int64_t held_ = 0, used_ = 0, high_water_ = 0;
};

}  // namespace frugal

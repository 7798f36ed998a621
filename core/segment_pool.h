// Cuts large segments into blocks: best fit, the rest of a block split off, free neighbours joined
// again. For memory that is slow to get from its source (CUDA, pinned host memory). Not
// thread-safe.
#pragma once
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
  // keeps: segments stay until the pool goes, for somebody may still touch what is free here.
  explicit SegmentPool(Source source, bool keeps = false)
      : source_(std::move(source)), keeps_(keeps) {}
  ~SegmentPool();  // gives everything back, blocks in use too
  SegmentPool(const SegmentPool&) = delete;
  SegmentPool& operator=(const SegmentPool&) = delete;

  // Aligned to 512 bytes. nullptr when the source is exhausted, even after trim().
  void* allocate(int64_t bytes);
  void release(void* data) noexcept;  // REQUIRES: of allocate
  void trim() noexcept;               // gives segments without a block in use back, unless it keeps

  bool owns(const void* data) const;  // a block in use here
  int64_t held() const { return held_; }
  int64_t used() const { return used_; }

 private:
  struct Block {
    int64_t bytes = 0;
    char* segment = nullptr;  // where its segment begins
    bool free = false;
  };
  using Blocks = std::map<char*, Block>;
  using Free = std::set<std::pair<int64_t, char*>>;  // by size, then address

  // Small blocks have segments of their own, so that they do not cut the large ones.
  static constexpr int64_t kAlignment = 512, kSmall = int64_t{1} << 20;
  static constexpr int64_t kSmallSegment = int64_t{2} << 20, kLargeSegment = int64_t{32} << 20;
  static int64_t segment_bytes(int64_t bytes);
  static bool is_small(int64_t segment) { return segment == kSmallSegment; }
  bool grow(int64_t bytes);
  Free& free_of(const Block& block) { return free_[is_small(segments_[block.segment]) ? 1 : 0]; }

  Source source_;
  bool keeps_;
  Blocks blocks_;                      // all, by address: neighbours are adjacent
  std::map<char*, int64_t> segments_;  // their sizes
  Free free_[2];                       // of large, of small segments
  int64_t held_ = 0, used_ = 0, high_water_ = 0;
};

}  // namespace frugal

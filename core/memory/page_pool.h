// PagePool: the host memory of tensors. Blocks are cut from large address ranges (SegmentPool). The
// pool knows which pages of a range are in memory. Pages of free blocks stay for the next tensors.
// They go back to the system where all pages together would exceed the highest use of the last
// allocations. Not thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/memory/segment_pool.h"

namespace frugal {

class PagePool {
 public:
  struct System {
    std::function<void*(int64_t bytes)> reserve;  // returns an address range, or nullptr where the
                                                  // system has none
    std::function<void(void*, int64_t bytes)> unmap;
    // Takes the pages out of memory; a page is zero when it is touched again. Returns false where
    // that is not possible.
    std::function<bool(void*, int64_t bytes)> drop;
    int64_t page = 4096;
    int64_t huge = 0;  // The first touch of a large block brings so many bytes into memory at once.
                       // 0: one page.
  };
  static System this_machine();

  explicit PagePool(System system = this_machine());
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // Aligned to 64 bytes. nullptr: the system has no more addresses. If the pages in memory would
  // exceed `most` bytes, pages of free blocks go back to the system first (0: no limit).
  void* allocate(int64_t bytes, int64_t most = 0);
  // The addresses of a block, of which nothing may be touched but what grow() brought into memory:
  // its first `bytes`.
  void* reserve(int64_t bytes);
  void grow(void* data, int64_t bytes, int64_t most = 0);
  void release(void* data) noexcept;   // REQUIRES: `data` came from allocate() or reserve()
  void shrink(int64_t most) noexcept;  // gives pages of free blocks back until at most `most` bytes
                                       // are in memory
  void trim() noexcept;                // gives back every page that no block needs

  int64_t held() const { return held_; }  // bytes of the pages in memory
  int64_t used() const { return blocks_.used() - ungrown_; }

 private:
  // Which pages of a range are in memory: one bit for each page, in words.
  struct Range {
    int64_t bytes = 0;
    bool huge = false;
    std::vector<uint64_t> pages;
  };
  using Ranges = std::map<char*, Range>;

  // A block of which `grown` of `bytes` may be touched.
  struct Growing {
    int64_t bytes = 0, grown = 0;
  };

  void* reserve_range(int64_t bytes);
  void unmap(void* data) noexcept;
  void bring(char* data, int64_t bytes, int64_t most);
  Ranges::iterator range_of(char* data) { return std::prev(ranges_.upper_bound(data)); }
  int64_t count(const Range& range, int64_t first, int64_t last) const;
  // Bytes of the pages that a touch of [data, data + bytes) brings into memory. With `mark` these
  // pages count as in memory from now on.
  int64_t touch(char* data, int64_t bytes, bool mark);
  // Gives back about `wanted` bytes of the pages in [data, data + bytes), in multiples of `grain`.
  void drop(char* data, int64_t bytes, int64_t grain, int64_t wanted) noexcept;
  int64_t target(int64_t most) const;

  System system_;
  Ranges ranges_;
  SegmentPool blocks_;
  std::map<char*, Growing> growing_;
  int64_t ungrown_ = 0;  // bytes of the blocks in growing_ that may not be touched yet
  int64_t held_ = 0;
  // The highest use among the last allocations: the present stretch of them, and the stretch
  // before.
  int64_t highest_ = 0, highest_before_ = 0, passed_ = 0;
};

}  // namespace frugal

// PagePool: the host memory of tensors. Blocks are cut from large address ranges (SegmentPool). The
// pool knows which pages of a range are in memory. Pages of free blocks stay for the next tensors,
// and go back to the system where all pages together would exceed what tensors needed lately.
// Not thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/segment_pool.h"

namespace frugal {

class PagePool {
 public:
  struct System {
    std::function<void*(int64_t bytes)> reserve;  // an address range; nullptr: there is none
    std::function<void(void*, int64_t bytes)> unmap;
    // Takes the pages out of memory; they are zero when they are touched again. False: it cannot.
    std::function<bool(void*, int64_t bytes)> drop;
    int64_t page = 4096;
    int64_t huge = 0;  // bytes that the first touch brings into memory, in large blocks; 0: a page
  };
  static System this_machine();

  explicit PagePool(System system = this_machine());
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // Aligned to 64 bytes. nullptr: the system has no addresses. Pages of free blocks go back first
  // where the pages in memory would exceed `most` bytes (0: no limit).
  void* allocate(int64_t bytes, int64_t most = 0);
  void release(void* data) noexcept;   // REQUIRES: of allocate
  void shrink(int64_t most) noexcept;  // the same giving back, at once
  void trim() noexcept;                // gives back every page that no block needs

  int64_t held() const { return held_; }  // bytes of the pages in memory
  int64_t used() const { return blocks_.used(); }

 private:
  // Which pages of a range are in memory: a bit each, in words.
  struct Range {
    int64_t bytes = 0;
    bool huge = false;
    std::vector<uint64_t> pages;
  };
  using Ranges = std::map<char*, Range>;

  void* reserve(int64_t bytes);
  void unmap(void* data) noexcept;
  Ranges::iterator range_of(char* data) { return std::prev(ranges_.upper_bound(data)); }
  int64_t count(const Range& range, int64_t first, int64_t last) const;
  // The pages that touching [data, data + bytes) brings into memory; marks them if asked to.
  int64_t touch(char* data, int64_t bytes, bool mark);
  void drop(char* data, int64_t bytes, int64_t grain) noexcept;
  int64_t target(int64_t most) const;

  System system_;
  Ranges ranges_;
  SegmentPool blocks_;
  int64_t held_ = 0;
  // The highest use in the present and the last stretch of allocations.
  int64_t highest_ = 0, highest_before_ = 0, passed_ = 0;
};

}  // namespace frugal

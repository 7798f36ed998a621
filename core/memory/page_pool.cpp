#include "core/memory/page_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>
#include <string>

#include "core/integers.h"

namespace frugal {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kHugePage = 2 * kMiB;
// Small blocks lie together, in pages of the usual size. Address ranges are large: addresses
// without pages cost nothing.
constexpr SegmentPool::Sizes kSizes{
    .alignment = 64, .small = 256 << 10, .small_segment = 64 * kMiB, .large_segment = 1024 * kMiB};
// The bytes that are held beyond the highest use: a 32nd of it and 8 MiB. With less, steps would
// bring in pages again and again.
constexpr int64_t kSlackShare = 32, kSlack = 8 * kMiB;
// A stretch ends when so many times the highest use was allocated, which takes some training steps.
constexpr int64_t kStretch = 64;

bool has_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string text;
  return std::getline(file, text) && text.find("[never]") == std::string::npos;
}

// The bits [first, last) of a word, as a mask.
uint64_t bits(int64_t first, int64_t last) {
  const uint64_t below = last == 64 ? ~uint64_t{0} : (uint64_t{1} << last) - 1;
  return below & ~((uint64_t{1} << first) - 1);
}

// Calls f(word, mask) for the words that hold the bits [first, last).
template <class Words, class F>
void for_each_word(Words& words, int64_t first, int64_t last, const F& f) {
  while (first < last) {
    const int64_t end = std::min(last, (first / 64 + 1) * 64);
    f(words[static_cast<size_t>(first / 64)], bits(first % 64, end - first / 64 * 64));
    first = end;
  }
}

}  // namespace

PagePool::System PagePool::this_machine() {
  System system;
  system.page = sysconf(_SC_PAGESIZE);
#ifdef MADV_HUGEPAGE
  if (has_huge_pages() && kHugePage % (64 * system.page) == 0) system.huge = kHugePage;
#endif
  system.reserve = [](int64_t bytes) -> void* {
    // The range is aligned to huge pages. Addresses before and after the aligned range are given
    // back at once.
    const auto size = static_cast<size_t>(bytes), all = size + static_cast<size_t>(kHugePage);
    void* data = mmap(nullptr, all, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    auto* from = static_cast<char*>(data);
    const auto address = reinterpret_cast<uintptr_t>(data);
    const size_t before = (static_cast<size_t>(kHugePage) - address % kHugePage) % kHugePage;
    if (before > 0) munmap(from, before);
    munmap(from + before + size, all - before - size);
    from += before;
#ifdef MADV_HUGEPAGE
    madvise(from, size, bytes == kSizes.small_segment ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
#endif
    return from;
  };
  system.unmap = [](void* data, int64_t bytes) { munmap(data, static_cast<size_t>(bytes)); };
  system.drop = [](void* data, int64_t bytes) {
    return madvise(data, static_cast<size_t>(bytes), MADV_DONTNEED) == 0;
  };
  return system;
}

PagePool::PagePool(System system)
    : system_(std::move(system)),
      blocks_({.acquire = [this](int64_t bytes) { return reserve_range(bytes); },
               .give_back = [this](void* data) { unmap(data); }},
              false, kSizes) {}

void* PagePool::reserve_range(int64_t bytes) {
  bytes = round_up(bytes, system_.page);  // pages that a range has in part cannot be given back
  auto* data = static_cast<char*>(system_.reserve(bytes));
  if (data == nullptr) return nullptr;
  const bool huge = system_.huge > 0 && bytes != kSizes.small_segment;
  const auto words = static_cast<size_t>(ceil_div(bytes, 64 * system_.page));
  ranges_[data] = {bytes, huge, std::vector<uint64_t>(words)};
  return data;
}

void PagePool::unmap(void* data) noexcept {
  const auto range = ranges_.find(static_cast<char*>(data));
  held_ -= count(range->second, 0, range->second.bytes / system_.page) * system_.page;
  system_.unmap(data, range->second.bytes);
  ranges_.erase(range);
}

int64_t PagePool::count(const Range& range, int64_t first, int64_t last) const {
  int64_t pages = 0;
  for_each_word(range.pages, first, last,
                [&](uint64_t word, uint64_t mask) { pages += std::popcount(word & mask); });
  return pages;
}

int64_t PagePool::touch(char* data, int64_t bytes, bool mark) {
  const auto found = range_of(data);
  Range& range = found->second;
  int64_t missing = 0;
  const auto bring = [&](int64_t first, int64_t last) {
    for_each_word(range.pages, first, last, [&](uint64_t& word, uint64_t mask) {
      missing += std::popcount(~word & mask);
      if (mark) word |= mask;
    });
  };
  const int64_t begin = (data - found->first) / system_.page;
  const int64_t end = ceil_div(data - found->first + bytes, system_.page);
  if (!range.huge) {
    bring(begin, end);
    return missing;
  }
  // The first touch of an empty huge page brings the whole page into memory.
  const int64_t grain = system_.huge / system_.page;
  for (int64_t page = begin; page < end;) {
    const int64_t first = page / grain * grain, next = first + grain;
    const int64_t last = std::min(next, range.bytes / system_.page);
    if (count(range, first, last) == 0)
      bring(first, last);
    else
      bring(page, std::min(end, last));
    page = next;
  }
  return missing;
}

void PagePool::drop(char* data, int64_t bytes, int64_t grain, int64_t wanted) noexcept {
  const auto found = range_of(data);
  const int64_t begin = round_up(data - found->first, grain);
  const int64_t end = (data - found->first + bytes) / grain * grain;
  if (begin >= end || count(found->second, begin / system_.page, end / system_.page) == 0) return;
  // From the end: the next block is cut from the front.
  const int64_t step = std::max(grain, 64 * system_.page);
  int64_t from = end, pages = 0;
  while (from > begin && pages * system_.page < wanted) {
    const int64_t next = std::max(begin, (from - 1) / step * step);
    pages += count(found->second, next / system_.page, from / system_.page);
    from = next;
  }
  if (!system_.drop(found->first + from, end - from)) return;
  for_each_word(found->second.pages, from / system_.page, end / system_.page,
                [](uint64_t& word, uint64_t mask) { word &= ~mask; });
  held_ -= pages * system_.page;
}

void PagePool::shrink(int64_t most) noexcept {
  // Whole huge pages are given back first: the rest of a broken huge page is slower to use.
  for (const int64_t grain : {system_.huge, system_.page}) {
    if (grain == 0) continue;
    blocks_.for_each_free([&](char* data, int64_t bytes) {
      if (held_ <= most) return false;
      drop(data, bytes, grain, held_ - most);
      return true;
    });
    for (const auto& [data, block] : growing_) {
      if (held_ <= most) break;
      drop(data + block.grown, block.bytes - block.grown, grain, held_ - most);
    }
  }
}

int64_t PagePool::target(int64_t most) const {
  const int64_t use = std::max(highest_, highest_before_);
  const int64_t wanted = use + use / kSlackShare + kSlack;
  return most > 0 ? std::min(most, wanted) : wanted;
}

void* PagePool::allocate(int64_t bytes, int64_t most) {
  auto* data = static_cast<char*>(blocks_.allocate(bytes));
  if (data != nullptr) bring(data, bytes, most);
  return data;
}

void* PagePool::reserve(int64_t bytes) {
  auto* data = static_cast<char*>(blocks_.allocate(bytes));
  if (data == nullptr) return nullptr;
  growing_[data] = {bytes, 0};
  ungrown_ += bytes;
  return data;
}

void PagePool::grow(void* data, int64_t bytes, int64_t most) {
  const auto block = growing_.find(static_cast<char*>(data));
  if (block == growing_.end()) return;  // the block is whole
  const int64_t grown = block->second.grown, more = bytes - grown;
  if (more <= 0) return;
  ungrown_ -= more;
  if (bytes == block->second.bytes)
    growing_.erase(block);
  else
    block->second.grown = bytes;
  bring(static_cast<char*>(data) + grown, more, most);
}

void PagePool::release(void* data) noexcept {
  if (const auto block = growing_.find(static_cast<char*>(data)); block != growing_.end()) {
    ungrown_ -= block->second.bytes - block->second.grown;
    growing_.erase(block);
  }
  blocks_.release(data);
}

// Counts the first touch of [data, data + bytes), after pages of free blocks made room.
void PagePool::bring(char* data, int64_t bytes, int64_t most) {
  highest_ = std::max(highest_, used());
  passed_ += bytes;
  if (passed_ / kStretch > highest_) {
    passed_ = 0;
    highest_before_ = highest_;
    highest_ = used();
    shrink(target(most));
  }
  const int64_t missing = touch(data, bytes, false) * system_.page;
  if (held_ + missing > target(most)) shrink(target(most) - missing);
  if (missing > 0) held_ += touch(data, bytes, true) * system_.page;
}

void PagePool::trim() noexcept {
  blocks_.trim();
  shrink(0);
}

}  // namespace frugal

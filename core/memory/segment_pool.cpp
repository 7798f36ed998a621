#include "core/memory/segment_pool.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "core/integers.h"

namespace frugal {

SegmentPool::~SegmentPool() {
  for (const auto& [data, segment] : segments_) source_.give_back(data);
}

int64_t SegmentPool::segment_bytes(int64_t bytes) const {
  const int64_t step = sizes_.small_segment;
  if (bytes < sizes_.small) return step;
  return bytes < sizes_.large_segment / 4 ? sizes_.large_segment : round_up(bytes, step) + step;
}

bool SegmentPool::grow(int64_t bytes) {
  int64_t size = segment_bytes(bytes);
  // Requests whose sizes keep changing would leave behind segments that fit nothing. So, as long as
  // segments can be given back, the pool holds at most a quarter more than its highest use.
  if (held_ + size > high_water_ + high_water_ / 4 + 2 * sizes_.large_segment) trim();
  auto* data = static_cast<char*>(source_.acquire(size));
  if (data == nullptr) {
    trim();
    data = static_cast<char*>(source_.acquire(size));
  }
  const bool small = bytes < sizes_.small;
  if (data == nullptr && !small) {  // a segment only for this block
    size = bytes;
    data = static_cast<char*>(source_.acquire(size));
  }
  if (data == nullptr) return false;
  segments_[data] = {size, small};
  held_ += size;
  const auto block = blocks_.emplace(data, Block{size, data, true}).first;
  free_of(block->second).emplace(size, data);
  return true;
}

void* SegmentPool::allocate(int64_t bytes) {
  bytes = std::max(round_up(bytes, sizes_.alignment), sizes_.alignment);
  Free& free = free_[bytes < sizes_.small ? 1 : 0];
  auto fit = free.lower_bound({bytes, nullptr});
  if (fit == free.end()) {
    if (!grow(bytes)) return nullptr;
    fit = free.lower_bound({bytes, nullptr});
  }
  const auto [size, data] = *fit;
  free.erase(fit);
  Block& block = blocks_.at(data);
  block.free = false;
  if (size > bytes) {
    block.bytes = bytes;
    blocks_.emplace(data + bytes, Block{size - bytes, block.segment, true});
    free.emplace(size - bytes, data + bytes);
  }
  used_ += bytes;
  high_water_ = std::max(high_water_, used_);
  return data;
}

void SegmentPool::release(void* data) noexcept {
  auto here = blocks_.find(static_cast<char*>(data));
  Free& free = free_of(here->second);
  used_ -= here->second.bytes;
  here->second.free = true;
  const auto join = [&](Blocks::iterator first, Blocks::iterator second) {
    free.erase({first->second.bytes, first->first});
    free.erase({second->second.bytes, second->first});
    first->second.bytes += second->second.bytes;
    blocks_.erase(second);
    return first;
  };
  const auto joins = [](const Blocks::iterator& a, const Blocks::iterator& b) {
    return a->second.free && b->second.free && a->second.segment == b->second.segment;
  };
  if (const auto next = std::next(here); next != blocks_.end() && joins(here, next))
    join(here, next);
  if (here != blocks_.begin())
    if (const auto before = std::prev(here); joins(before, here)) here = join(before, here);
  free.emplace(here->second.bytes, here->first);
}

void SegmentPool::trim() noexcept {
  if (keeps_) return;
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto block = blocks_.find(segment->first);
    if (!block->second.free || block->second.bytes != segment->second.bytes) {
      ++segment;
      continue;
    }
    free_of(block->second).erase({block->second.bytes, block->first});
    blocks_.erase(block);
    held_ -= segment->second.bytes;
    source_.give_back(segment->first);
    segment = segments_.erase(segment);
  }
}

bool SegmentPool::owns(const void* data) const {
  const auto block = blocks_.find(static_cast<char*>(const_cast<void*>(data)));
  return block != blocks_.end() && !block->second.free;
}

int64_t SegmentPool::size_of(const void* data) const {
  return blocks_.at(static_cast<char*>(const_cast<void*>(data))).bytes;
}

}  // namespace frugal

#include "core/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

#include "core/cuda/cuda_memory.h"
#include "core/integers.h"
#include "core/memory/borrowed.h"
#include "core/memory/memory_trace.h"
#include "core/memory/page_pool.h"

namespace frugal {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kSmallest = int64_t{16} << 10;  // malloc holds smaller blocks

thread_local Category current_category = Category::activation;

// What a LentBlock of this thread holds until the next block is allocated.
thread_local void* lent_data = nullptr;
thread_local std::shared_ptr<void> lent_owner;

std::string readable(int64_t bytes) {
  if (bytes < (1 << 20)) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
  if (bytes < (int64_t{1} << 30))
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

// A PagePool holds all blocks except the small ones.
class CpuAllocator final : public Allocator {
 protected:
  void* acquire(int64_t bytes) override {
    return std::aligned_alloc(static_cast<size_t>(kAlignment), static_cast<size_t>(bytes));
  }
  void give_back(void* data, int64_t) noexcept override { std::free(data); }
#ifdef FRUGAL_SANITIZED
  bool caching() const override { return false; }  // so that the sanitizer sees every free
#endif
};

class MetaAllocator final : public Allocator {
 protected:
  void* acquire(int64_t) override { return this; }  // callers only check that it is not null
  void give_back(void*, int64_t) noexcept override {}
  bool caching() const override { return false; }
};

}  // namespace

struct Allocator::State {
  mutable std::mutex mutex;
  MemoryReport report;
  std::unique_ptr<PagePool> pages;  // made with the first block of an allocator that caches
  int64_t fail_after = -1;
  int64_t most_reserved = 0;
  std::multimap<void*, std::shared_ptr<void>> owners;  // they hold the memory that is lent

  // The bound on live bytes and kept free bytes together; 0: none.
  int64_t most() const {
    if (report.limit == 0 || most_reserved == 0) return std::max(report.limit, most_reserved);
    return std::min(report.limit, most_reserved);
  }
  int64_t idle() const { return pages == nullptr ? 0 : pages->held() - pages->used(); }
  // What the pool may hold beside what is live elsewhere.
  int64_t most_of_pages() const {
    const int64_t others = report.live_total - pages->used();
    return most() > 0 ? std::max<int64_t>(most() - others, 1) : 0;
  }
  void account(const Allocator& allocator, int64_t bytes, Category category) {
    auto& live = report.live[static_cast<size_t>(category)];
    auto& peak = report.peak[static_cast<size_t>(category)];
    live += bytes;
    peak = std::max(peak, live);
    report.live_total += bytes;
    if (report.live_total > report.peak_total) {
      report.peak_total = report.live_total;
      report.at_peak = report.live;
    }
    MemoryTrace::note(allocator, report.live);
  }
  // Errors: OutOfMemory
  void fail(const Allocator& allocator, const std::string& why, int64_t bytes,
            Category category) const {
    MemoryReport now = report;
    now.reserved = report.live_total + idle() + allocator.idle();
    throw OutOfMemory(fmt::format("out of memory: {} for {} of {}\n{}", why, readable(bytes),
                                  name_of(category), now.str()),
                      now);
  }
  void check(const Allocator& allocator, int64_t bytes, Category category) {
    if (fail_after >= 0 && fail_after-- == 0)
      fail(allocator, "allocation failed on request", bytes, category);
    if (report.limit > 0 && report.live_total + round_up(bytes, kAlignment) > report.limit)
      fail(allocator, fmt::format("the limit of {} leaves no room", readable(report.limit)), bytes,
           category);
  }
};

Allocator::Allocator() : state_(std::make_unique<State>()) {}
Allocator::~Allocator() = default;

Allocator::Block Allocator::take(int64_t bytes, Category category, bool grows) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  Block block;
  if (lent_data != nullptr) {  // a block of 0 bytes that has data: see release()
    block.data = lent_data;
    block.category = category;
    s.owners.emplace(lent_data, std::move(lent_owner));
    lent_data = nullptr;
    return block;
  }
  block.most = round_up(bytes, kAlignment);
  block.bytes = grows ? 0 : block.most;
  block.category = category;
  s.check(*this, grows ? 0 : bytes, category);
  if (block.most >= kSmallest && caching()) {
    if (s.pages == nullptr) s.pages = std::make_unique<PagePool>();
    block.data =
        grows ? s.pages->reserve(block.most) : s.pages->allocate(block.most, s.most_of_pages());
  } else if (block.most > 0) {
    block.data = acquire(block.most);
  }
  if (block.data == nullptr && block.most > 0)
    s.fail(*this, "the system has none left", bytes, category);
  s.account(*this, block.bytes, category);
  return block;
}

Allocator::Block Allocator::allocate(int64_t bytes, Category category) {
  return take(bytes, category, false);
}

Allocator::Block Allocator::reserve(int64_t most, Category category) {
  return take(most, category, grows());
}

void Allocator::grow(Block& block, int64_t bytes) {
  const int64_t to = round_up(bytes, kAlignment), more = to - block.bytes;
  FRUGAL_ASSERT(to <= block.most);
  if (more <= 0) return;
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  s.check(*this, more, block.category);
  if (block.data != nullptr && block.most >= kSmallest && caching())
    s.pages->grow(block.data, to, s.most_of_pages());
  block.bytes = to;
  s.account(*this, more, block.category);
}

void Allocator::release(const Block& block) noexcept {
  State& s = *state_;
  std::shared_ptr<void> owner;  // let go after the lock, because it may release a block itself
  std::lock_guard lock(s.mutex);
  if (block.data != nullptr && block.most == 0) {
    const auto lent = s.owners.find(block.data);
    owner = std::move(lent->second);
    s.owners.erase(lent);
    return;
  }
  s.report.live[static_cast<size_t>(block.category)] -= block.bytes;
  s.report.live_total -= block.bytes;
  MemoryTrace::note(*this, s.report.live);
  if (block.data == nullptr) return;
  if (block.most >= kSmallest && caching()) return s.pages->release(block.data);
  give_back(block.data, block.most);
}

void Allocator::set_limit(int64_t bytes) {
  std::lock_guard lock(state_->mutex);
  state_->report.limit = bytes;
}

void Allocator::set_most_reserved(int64_t bytes) {
  std::lock_guard lock(state_->mutex);
  state_->most_reserved = bytes;
}

void Allocator::fail_after(int64_t allocations) {
  std::lock_guard lock(state_->mutex);
  state_->fail_after = allocations;
}

void Allocator::reset_peak() {
  std::lock_guard lock(state_->mutex);
  MemoryReport& r = state_->report;
  r.peak = r.at_peak = r.live;
  r.peak_total = r.live_total;
}

MemoryReport Allocator::report() const {
  std::lock_guard lock(state_->mutex);
  MemoryReport r = state_->report;
  r.reserved = r.live_total + state_->idle() + idle();
  return r;
}

void Allocator::trim() {
  std::lock_guard lock(state_->mutex);
  if (state_->pages != nullptr) state_->pages->trim();
}

LentBlock::LentBlock(void* data, std::shared_ptr<void> owner) {
  lent_data = data;
  lent_owner = std::move(owner);
}

LentBlock::~LentBlock() {
  lent_data = nullptr;
  lent_owner.reset();
}

Allocator& allocator(Device device) {
  // Never destroyed: tensors of static storage duration may outlive every other static.
  static Allocator* cpu = new CpuAllocator;
  static Allocator* meta = new MetaAllocator;
  if (device.type == DeviceType::cpu) return *cpu;
  if (device.type == DeviceType::meta) return *meta;
  if constexpr (kHasCuda) return cuda::allocator(device.index);
  throw Error(kWithoutCuda);
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  FRUGAL_ASSERT(to_device != kMeta && from_device != kMeta);
  if (bytes == 0) return;
  if (to_device == kCpu && from_device == kCpu) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  if constexpr (kHasCuda) return cuda::copy_bytes(to, to_device, from, from_device, bytes);
  throw Error(kWithoutCuda);
}

std::string_view name_of(Category category) {
  switch (category) {
    case Category::parameter:
      return "parameter";
    case Category::gradient:
      return "gradient";
    case Category::optimizer:
      return "optimizer";
    case Category::activation:
      return "activation";
    case Category::packed:
      return "packed";
    case Category::workspace:
      return "workspace";
    case Category::input:
      break;
  }
  return "input";
}

std::string MemoryReport::str() const {
  // The largest category comes first, because it is the one to reduce.
  std::array<size_t, kCategories> order{};
  for (size_t i = 0; i < kCategories; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return live[a] > live[b]; });
  std::string parts;
  for (const size_t i : order)
    if (live[i] > 0)
      parts += fmt::format("{}{} {}", parts.empty() ? ": " : ", ",
                           name_of(static_cast<Category>(i)), readable(live[i]));
  return fmt::format("held {}{}; highest {}, reserved {}{}", readable(live_total), parts,
                     readable(peak_total), readable(reserved),
                     limit > 0 ? fmt::format(", limit {}", readable(limit)) : "");
}

CategoryScope::CategoryScope(Category category) : previous_(current_category) {
  current_category = category;
}
CategoryScope::~CategoryScope() { current_category = previous_; }
Category CategoryScope::current() { return current_category; }

int64_t host_peak_rss() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  return 0;
}

}  // namespace frugal

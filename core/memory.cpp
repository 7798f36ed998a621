#include "core/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>

#include "core/cuda/cuda_memory.h"
#include "core/integers.h"
#include "core/memory_trace.h"
#include "core/page_pool.h"

namespace frugal {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kSmallest = int64_t{16} << 10;  // malloc holds smaller blocks

thread_local Category current_category = Category::activation;

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
#ifdef __SANITIZE_ADDRESS__
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

  // The bound on live bytes and kept free bytes together; 0: none.
  int64_t most() const {
    if (report.limit == 0 || most_reserved == 0) return std::max(report.limit, most_reserved);
    return std::min(report.limit, most_reserved);
  }
  int64_t idle() const { return pages == nullptr ? 0 : pages->held() - pages->used(); }
};

Allocator::Allocator() : state_(std::make_unique<State>()) {}
Allocator::~Allocator() = default;

Allocator::Block Allocator::allocate(int64_t bytes, Category category) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  Block block;
  block.bytes = round_up(bytes, kAlignment);
  block.category = category;
  MemoryReport& r = s.report;
  auto fail = [&](const std::string& why) {
    MemoryReport now = r;
    now.reserved = r.live_total + s.idle() + idle();
    throw OutOfMemory(fmt::format("out of memory: {} for {} of {}\n{}", why, readable(bytes),
                                  name_of(category), now.str()),
                      now);
  };
  if (s.fail_after >= 0 && s.fail_after-- == 0) fail("allocation failed on request");
  if (r.limit > 0 && r.live_total + block.bytes > r.limit)
    fail(fmt::format("the limit of {} leaves no room", readable(r.limit)));

  if (block.bytes >= kSmallest && caching()) {
    if (s.pages == nullptr) s.pages = std::make_unique<PagePool>();
    const int64_t others = r.live_total - s.pages->used();
    block.data =
        s.pages->allocate(block.bytes, s.most() > 0 ? std::max<int64_t>(s.most() - others, 1) : 0);
  } else if (block.bytes > 0) {
    block.data = acquire(block.bytes);
  }
  if (block.data == nullptr && block.bytes > 0) fail("the system has none left");
  auto& live = r.live[static_cast<size_t>(category)];
  auto& peak = r.peak[static_cast<size_t>(category)];
  live += block.bytes;
  peak = std::max(peak, live);
  r.live_total += block.bytes;
  if (r.live_total > r.peak_total) {
    r.peak_total = r.live_total;
    r.at_peak = r.live;
  }
  MemoryTrace::note(*this, r.live);
  return block;
}

void Allocator::release(const Block& block) noexcept {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  s.report.live[static_cast<size_t>(block.category)] -= block.bytes;
  s.report.live_total -= block.bytes;
  MemoryTrace::note(*this, s.report.live);
  if (block.data == nullptr) return;
  if (block.bytes >= kSmallest && caching()) return s.pages->release(block.data);
  give_back(block.data, block.bytes);
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
  constexpr std::string_view names[kCategories] = {
      "parameter", "gradient", "optimizer", "activation", "packed", "workspace", "input"};
  return names[static_cast<size_t>(category)];
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
